"""Errors of one partition, and the queue in which the errors of a reader or a member wait."""

import threading
from collections import deque
from collections.abc import Callable, Iterator

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
    """Keeps the latest 1,000 errors until they are taken. Safe for threads.

    They are copies without tracebacks. `at_close` has all errors that count for the end of a shutdown.
    """

    def __init__(self) -> None:
        self.at_close: list[KoffError] = []
        self._errors: deque[KoffError] = deque(maxlen=_MAX_ERRORS)
        self._changed = threading.Condition()

    def put_error(self, error: KoffError, *, at_close: bool = False) -> None:
        """Adds the error; drops the oldest if there are too many."""
        kept = copy_error(error)
        with self._changed:
            self._errors.append(kept)
            self.at_close += [kept] if at_close else []
            self._changed.notify()

    def take_errors(self, has_ended: Callable[[], bool]) -> Iterator[KoffError]:
        """The errors, as they come; ends once `has_ended` is true and no error is left."""
        while True:
            with self._changed:
                while not self._errors:
                    if has_ended():
                        return
                    self._changed.wait(_CHECK_S)
                error = self._errors.popleft()
            yield error

    def wake_all(self) -> None:
        """Makes waiting threads check `has_ended` again."""
        with self._changed:
            self._changed.notify_all()
