"""What all threads of the workers have in common, and how they give results to the owner."""

import contextvars
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from koff.client.foreign_errors import start_thread
from koff.monitor.requests import Input


class Post(Protocol):
    """Gives an input to the owner. `on_applied` is called once the owner has applied it."""

    def __call__(self, given: Input, on_applied: Callable[[], None] | None = None) -> None: ...


class WorkerThread(ABC):
    """A thread that works from its first request to `close`.

    It is a daemon: a thread that hangs keeps no process alive.
    """

    def __init__(self, name: str) -> None:
        # In the context of its creator: its log lines name the same cluster.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name=f"koff-{name}", daemon=True)

    def start(self) -> None:
        """Starts the thread, unless it was started. Raises `ConnectError` if there is no thread for it."""
        if self._thread.ident is None:
            start_thread(self._thread, f"thread {self._thread.name}")

    @abstractmethod
    def close(self) -> None:
        """Ends the thread, soon. Safe to call twice, and before `start`."""

    def join(self, timeout_s: float) -> None:
        """Waits until the thread has ended. A thread that waits for a broker or a disk may be left behind."""
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    @abstractmethod
    def _run(self) -> None:
        """What the thread does."""
