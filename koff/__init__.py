"""koff tells how far behind every Kafka consumer group is, and why."""

__version__ = "0.1.0"
