"""The client stack for asyncio, public as `koff.aio`: the objects of `koff.client`, for tasks.

Configurations, messages and errors are those of `koff.client`. Threads do what blocks; they end soon after
their object is closed. An object belongs to the event loop in which it was opened.
"""

from koff.client.aio.broker import Broker, OffsetCoordinator, Producer, dial
from koff.client.aio.clusters import Reader, Writer
from koff.client.aio.consumer import Consumer
from koff.client.aio.group import ConsumerGroup, join_consumer_group

__all__ = [
    "Broker",
    "Consumer",
    "ConsumerGroup",
    "OffsetCoordinator",
    "Producer",
    "Reader",
    "Writer",
    "dial",
    "join_consumer_group",
]
