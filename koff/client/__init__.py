"""The client stack: connections, producers, consumers and groups' offsets.

The names are those of `koff.client.public`, which is imported when one is first used: koff itself reads from
Kafka without confluent-kafka.
"""

from typing import TYPE_CHECKING

from koff.public_names import import_public_names

if TYPE_CHECKING:
    from koff.client.public import *  # noqa: F403

__getattr__ = import_public_names(__name__)
