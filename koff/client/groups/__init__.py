"""All groups of a cluster with their offsets, at once: over koff's own connections or the admin API."""
