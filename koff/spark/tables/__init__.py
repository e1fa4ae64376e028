"""The Delta tables: their schemas, how rows get into them, and their maintenance."""
