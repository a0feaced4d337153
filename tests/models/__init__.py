"""Models of every kind and library: definitions, and one suite of tests that all of them pass."""
