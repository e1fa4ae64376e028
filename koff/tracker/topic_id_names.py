"""The names of topics by topic id, of present topics and of earlier ones."""

from collections.abc import Callable, Iterable, Mapping

SPARE = 1000
"""This many unused names may stay before `TopicNames` searches for them."""


class TopicNames:
    """Names by topic id. Earlier ids keep their names: assignments and share state may still have them.

    `names` and `present` are replaced when they change: snapshots share them.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.present: dict[str, str] = {}
        """By name, the id of the present topic, or of the last one."""
        self._unlisted: set[str] = set()  # the ids that only responses of coordinators have had
        self._limit = SPARE

    def is_present(self, topic_id: str) -> bool:
        """Whether no later topic has taken the name of that topic."""
        return self.present.get(self.names.get(topic_id, "")) == topic_id

    def is_listed(self, topic_id: str) -> bool:
        """Whether that topic has been the present one of its name. Then its name is known."""
        return topic_id in self.names and topic_id not in self._unlisted

    def identify(self, ids: Mapping[str, str], find_referenced: Callable[[], set[str]]) -> set[str]:
        """Sets the present ids of topics, by name. Returns the names that have another id than before.

        `find_referenced` returns the ids whose names are still needed.
        """
        known = {name: id_ for name, id_ in ids.items() if id_}
        replaced = {name for name, id_ in known.items() if self.present.get(name, id_) != id_}
        self.present = {**self.present, **known}
        self.names = {**self.names, **{id_: name for name, id_ in known.items()}}
        self._unlisted.difference_update(known.values())
        self._forget_unused(known.values(), find_referenced)
        return replaced

    def name(self, ids: Mapping[str, str], find_referenced: Callable[[], set[str]]) -> None:
        """Adds names of ids, by name. The present id of a name stays as it is."""
        named = {id_: name for name, id_ in ids.items() if id_ and self.names.get(id_) != name}
        if not named:
            return
        self._unlisted.update(named.keys() - self.names.keys())
        self.names = {**self.names, **named}
        self._forget_unused(self.present.values(), find_referenced)

    def _forget_unused(self, present: Iterable[str], find_referenced: Callable[[], set[str]]) -> None:
        """Drops the names of ids that are neither `present` nor referenced, once there may be many."""
        if len(self.names) <= self._limit:
            return
        needed = {*present, *find_referenced()}
        self.names = {id_: name for id_, name in self.names.items() if id_ in needed}
        self.present = {name: id_ for name, id_ in self.present.items() if id_ in self.names}
        self._unlisted &= self.names.keys()
        self._limit = 2 * len(self.names) + SPARE
