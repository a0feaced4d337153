"""What `make docs` is made of: staging, the API reference, the list of errors, pictures of pages."""
