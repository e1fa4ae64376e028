"""Kafka's binary encoding: primitives, and schema tables compiled into codecs. No I/O."""
