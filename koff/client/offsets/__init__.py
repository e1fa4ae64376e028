"""Offsets of many partitions over koff's own connections: ListOffsets, sent to the leader of each partition.

librdkafka's admin API merges the responses of the brokers at a cost that grows with the square of the
number of partitions.
"""
