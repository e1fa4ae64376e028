"""A member of a group on ZooKeeper that does what the Go library's members do: a script without messages."""

import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from koff.client.zookeeper.znodes import GroupPaths, Registration


class GoMember:
    """Divides the partitions sorted by leader and number among the sorted ids, and claims its share.

    Rebalances only when the members change. Its session ends with the `with` block.
    """

    def __init__(self, hosts: str, group: str, topic: str, leaders: Callable[[], Sequence[int]]) -> None:
        self.id = f"host:{uuid.uuid4()}"
        self._topic, self._leaders, self._paths = topic, leaders, GroupPaths(group)
        self._client = KazooClient(hosts, timeout=4.0)
        self._changed, self._leaving = threading.Event(), False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._client.start()
        data = Registration({self._topic: 1}, "white_list").encode()
        self._client.create(self._paths.member(self.id), data, ephemeral=True, makepath=True)
        self._changed.set()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._leaving = True
        self._changed.set()
        self._thread.join(60)
        self._client.stop()
        self._client.close()

    def _run(self) -> None:
        wanted: set[int] = set()
        owned: set[int] = set()
        while not self._leaving:
            if self._changed.wait(0.1):  # else a partition that was not free is tried again
                self._changed.clear()
                wanted = self._divide()
            for partition in owned - wanted:
                self._client.delete(self._paths.owner(self._topic, partition))
            owned &= wanted
            for partition in wanted - owned:
                with suppress(NodeExistsError):
                    path = self._paths.owner(self._topic, partition)
                    self._client.create(path, self.id.encode(), ephemeral=True, makepath=True)
                    owned.add(partition)

    def _divide(self) -> set[int]:
        members = sorted(self._client.get_children(self._paths.ids, watch=self._note_change))
        leaders = self._leaders()
        ordered = sorted(range(len(leaders)), key=lambda partition: (leaders[partition], partition))
        length, remainder = divmod(len(ordered), len(members))
        index = members.index(self.id)
        first = index * length + min(index, remainder)
        return set(ordered[first : first + length + (index < remainder)])

    def _note_change(self, _event: Any) -> None:
        self._changed.set()
