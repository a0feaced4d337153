"""Program: the loss of one example, traced, read and replayed.

| module | does |
|---|---|
| `trace` | the loss as a jaxpr over trainable leaves and one example |
| `shared_data` | refuses data of single examples that all would see |
| `isolation` | takes away what would let examples see each other |
| `views`, `rules`, `sites` | where every parameter is used, and how |
| `replay`, `book` | the program evaluated again, with taps at the sites |
"""
