"""Reads Kafka's internal topics through `koff.client`; hands out batches of records, or decoded messages."""
