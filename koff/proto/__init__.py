"""Kafka's binary protocol, without I/O: requests and responses, record batches, and what they are made of.

- `requests`: frames, headers, and the bodies of requests and responses, whose schemas are those of kio;
- `messages`: record batches and message sets, as Python objects;
- `record_batch`: the same as columns, for many records at once;
- `schema`, `readers`, `writers`: codecs compiled from tables, for the records of `__consumer_offsets`.

The names are those of `koff.proto.public`, which is imported when one is first used: kio is large.
"""

from typing import TYPE_CHECKING

from koff.public_names import import_public_names

if TYPE_CHECKING:
    from koff.proto.public import *  # noqa: F403

__getattr__ = import_public_names(__name__)
