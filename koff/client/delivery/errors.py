"""Errors of one partition, and the queue in which the errors of a reader or a member wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from koff.client.message import Message
from koff.errors import KoffError, copy_error

_MAX_ERRORS = 1000
_CHECK_S = 0.2


class PartitionError(KoffError):
    """An error in one partition; its cause is chained. `message` is the message that failed, if any."""

    def __init__(self, topic: str, partition: int, text: str, message: Message | None = None) -> None:
        super().__init__(f"{topic}/{partition}: {text}")
        self.topic = topic
        self.partition = partition
        self.message = message


class ErrorQueue:
    """Keeps the latest 1,000 errors until they are taken. Safe for threads."""

    def __init__(self) -> None:
        self._errors: deque[KoffError] = deque(maxlen=_MAX_ERRORS)
        self._changed = threading.Condition()

    def put_error(self, error: KoffError) -> None:
        """Adds a copy of the error, without its traceback; drops the oldest if there are too many."""
        with self._changed:
            self._errors.append(copy_error(error))
            self._changed.notify()

    def take_error(self, has_ended: Callable[[], bool]) -> KoffError | None:
        """The oldest error; waits for it. None once `has_ended` is true and no error is left."""
        with self._changed:
            while not self._errors:
                if has_ended():
                    return None
                self._changed.wait(_CHECK_S)
            return self._errors.popleft()

    def wake_all(self) -> None:
        """Makes waiting threads check `has_ended` again."""
        with self._changed:
            self._changed.notify_all()
