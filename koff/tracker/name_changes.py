"""Which groups changed since somebody last looked."""

from collections.abc import Iterable

_MOST = 10_000


class NameChanges:
    """Collects names until they are drained. From a certain number on, it says "all", and stays small.

    `version` changes whenever a change is noted.
    """

    __slots__ = ("_all", "_names", "version")

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._all = False
        self.version = 0

    def __bool__(self) -> bool:
        return self._all or bool(self._names)

    def add(self, name: str) -> None:
        """Notes one name."""
        self.version += 1
        self._names.add(name)
        if len(self._names) > _MOST:
            self.note_all()

    def update(self, names: Iterable[str]) -> None:
        """Notes many names."""
        self.version += 1
        self._names.update(names)
        if len(self._names) > _MOST:
            self.note_all()

    def note_all(self) -> None:
        """Notes that any name may have changed."""
        self.version += 1
        self._names, self._all = set(), True

    def drain(self) -> set[str] | None:
        """The names since the last call; None: any name may have changed."""
        names, everything = self._names, self._all
        self._names, self._all = set(), False
        return None if everything else names
