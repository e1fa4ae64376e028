"""What requests are carried out with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from koff.client.cluster import Cluster
    from koff.client.offsets.lister import OffsetLister
    from koff.client.wire.brokers import Brokers
    from koff.monitor.leaders import Leaders
    from koff.monitor.state import StateDir
    from koff.monitor.zookeeper import ZooKeeper

_Part = TypeVar("_Part")


class Means(Protocol):
    """`koff.monitor.workers.Workers` is it. Each request has a thread that may wait."""

    cluster: Cluster
    lister: OffsetLister
    leaders: Leaders
    zookeeper: ZooKeeper
    timeout_s: float
    """How long a broker is waited for: less than the core waits, so that it learns why there is no result."""

    @property
    def brokers(self) -> Brokers:
        """The connections to the brokers."""

    @property
    def state_dir(self) -> StateDir:
        """The state directory."""

    def is_stopping(self) -> bool:
        """Whether a request is to end as soon as it can."""

    def refresh_leaders(self) -> None:
        """Fetches, in a thread of its own, the leaders that are asked for offsets."""

    def fetch_parts(
        self,
        parts: Sequence[Sequence[_Part]],
        fetch: Callable[[_Part], Any],
        fail: Callable[[_Part, str], Any],
    ) -> None:
        """Posts a result of each part. The parts of one broker, which are in one list, are fetched in order.

        So a broker that hangs delays only its own parts. `fetch` may raise; `fail` makes a result of the
        error. Other threads help the thread that calls.
        """
