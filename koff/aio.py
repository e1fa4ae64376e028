"""The client stack for asyncio: the names of `koff.client.aio`."""

from koff.client.aio import *  # noqa: F403
from koff.client.aio import __all__ as __all__  # noqa: PLC0414  # that is how type checkers learn what is public
