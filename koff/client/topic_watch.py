"""`TopicWatch` notices that a topic was deleted and created again, by its id in the metadata (KIP-516).

Neither Fetch nor librdkafka shows it: if the new log is long enough, it has the next offset of the old log,
too. What is before that offset would be skipped.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from koff.client.calls import call_in_thread
from koff.errors import KoffError

CHECK_S = 5.0
"""How often the ids of topics are fetched while they are read."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class WatchedTopic:
    """A topic that is watched as long as somebody keeps this object.

    `recreations` is how often it was found to be another topic of the same name. `former_ids` are not
    believed again: a broker may return old metadata, and Kafka gives no id twice.
    """

    name: str
    topic_id: str = ""
    recreations: int = 0
    former_ids: set[str] = field(default_factory=set)

    def note_id(self, topic_id: str) -> None:
        """Notes an id that a broker returned; "" if it returned none."""
        if not topic_id or topic_id == self.topic_id or topic_id in self.former_ids:
            return
        if self.topic_id:
            self.former_ids.add(self.topic_id)
            self.recreations += 1
        self.topic_id = topic_id


class TopicWatch:
    """Fetches the ids of the watched topics, with `fetch_ids`. Threads may share it."""

    def __init__(self, fetch_ids: Callable[[Collection[str]], Mapping[str, str]]) -> None:
        self._fetch_ids = fetch_ids
        self._lock = threading.Lock()
        self._topics: WeakValueDictionary[str, WatchedTopic] = WeakValueDictionary()
        self._due_s = 0.0
        self._check: Future[None] | None = None

    def watch(self, name: str) -> WatchedTopic:
        """The topic of that name. Its id is fetched at the next `check_if_due`."""
        with self._lock:
            watched = self._topics.get(name)
            if watched is None:
                watched = self._topics[name] = WatchedTopic(name)
                self._due_s = 0.0
            return watched

    def check_if_due(self) -> None:
        """Has a thread fetch the ids if they are `CHECK_S` old. Does not wait."""
        now_s = time.monotonic()
        if now_s < self._due_s:  # without the lock: readers call this for each batch
            return
        with self._lock:
            if now_s >= self._due_s and (self._check is None or self._check.done()):
                self._due_s = now_s + CHECK_S
                self._check = call_in_thread(self.check_now)

    def check_now(self) -> None:
        """Fetches the ids of all watched topics. Without a response, nothing has changed."""
        with self._lock:
            names = list(self._topics)
        try:
            fetched = self._fetch_ids(names)
        except KoffError:
            return
        with self._lock:
            for name, topic_id in fetched.items():
                watched = self._topics.get(name)
                if watched is not None:
                    watched.note_id(topic_id)
