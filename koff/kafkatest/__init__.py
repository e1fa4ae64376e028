"""The test kit: a real Apache Kafka on loopback without Docker, and waits without sleeping.

with LocalKafka() as kafka:
    topic = kafka.create_topic(partitions=3)
    print(kafka.bootstrap)

The names are those of `koff.kafkatest.public`, which is imported when one is first used: `make demo` fetches
the jars before confluent-kafka is installed.
"""

from typing import TYPE_CHECKING

from koff.public_names import import_public_names

if TYPE_CHECKING:
    from koff.kafkatest.public import *  # noqa: F403

__getattr__ = import_public_names(__name__)
