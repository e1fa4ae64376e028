"""The client stack: connections, producers, consumers and groups' offsets.

The names are those of `koff.client.public`, which is imported when one is first used: koff itself reads from
Kafka without confluent-kafka.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koff.client.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """A public name. Raises `AttributeError` for any other, also for a module, which Python then imports."""
    if find_spec(f"{__name__}.{name}") is None:
        named = vars(import_module(f"{__name__}.public"))
        public = {name: named[name] for name in named if not name.startswith("_")}
        if name == "__all__":
            return list(public)
        if name in public:
            return public[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
