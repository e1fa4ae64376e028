"""All groups of a cluster with their offsets, at once."""
