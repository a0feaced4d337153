"""Networks and data of the examples; the programs beside this folder put them together."""
