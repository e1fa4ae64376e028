"""Reads Kafka's internal topics through `koff.client`. Gives batches of records, or decoded messages."""
