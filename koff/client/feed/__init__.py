"""Reading partitions without a consumer group, over one librdkafka client for many partitions."""
