"""Random programs: losses that no person wrote."""
