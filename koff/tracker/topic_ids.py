"""The present ids of topics, in 64 bits each."""

import functools
from collections.abc import Container, Mapping

import numpy as np
from numpy.typing import NDArray

from koff.proto.primitives import parse_uuid
from koff.records.key_codes import NameCodes
from koff.tracker.row_index import Ints


class TopicIds:
    """By topic name, for topics that have a code in `topics`: the folded id that the history is of.

    Until the topic is identified, it is the id that a restored history was saved with.
    """

    def __init__(self, topics: NameCodes) -> None:
        self._topics = topics
        self._ids: dict[str, int] = {}
        self._present: Mapping[str, str] = {}  # as of the last `identify`

    def __len__(self) -> int:
        return len(self._ids)

    def identify(self, present: Mapping[str, str]) -> list[str]:
        """Sets the present ids, by name. Returns the topics that were created again: their id is another now.

        Keeps `present`, and looks up a topic once it has a code.
        """
        self._look_up()
        self._present = present
        found = {name: fold_topic_id(present[name]) for name in self._ids.keys() & present.keys()}
        again = {name: id_ for name, id_ in found.items() if id_ and self._ids[name] != id_}
        self._ids |= again
        return list(again)

    def find(self, name: str) -> int:
        """The folded id of the topic, 0 if unknown."""
        return self._ids.get(name, 0) or fold_topic_id(self._present.get(name, ""))

    def restore(self, ids: Mapping[str, int]) -> None:
        """Adds the ids that a restored history was saved with. 0 is unknown."""
        self._ids |= {name: id_ for name, id_ in ids.items() if id_}

    def keep_only(self, codes: Container[int]) -> None:
        """Drops the ids of topics whose codes are not given."""
        names = (name for code, name in enumerate(self._topics.names) if code in codes)
        self._ids = {name: self._ids[name] for name in names if name in self._ids}

    def list_by_code(self) -> Ints:
        """The present id of each topic, 0 if unknown, and at last a 0 for code -1."""
        self._look_up()
        return np.array([*(self._ids.get(name, 0) for name in self._topics.names), 0], np.int64)

    def _look_up(self) -> None:
        for name in self._topics.names:
            if name not in self._ids and (id_ := self.find(name)):
                self._ids[name] = id_


def fold_topic_ids(ids: NDArray[np.uint8]) -> Ints:
    """Topic ids (N, 16) reduced to 64 bits each, 0 for the zero id.

    That suffices to distinguish the id of a topic from that of its successor of the same name.
    """
    # Without the factor, an id with two equal halves would become 0.
    halves = np.ascontiguousarray(ids).view(np.int64).reshape(-1, 2)
    return halves[:, 0] ^ (halves[:, 1] * 3)


@functools.lru_cache(maxsize=1024)
def fold_topic_id(topic_id: str) -> int:
    """`fold_topic_ids` of one id in Kafka's text form of 22 characters; 0 for ""."""
    return int(fold_topic_ids(np.frombuffer(parse_uuid(topic_id), np.uint8))[0]) if topic_id else 0
