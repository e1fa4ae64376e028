"""A thread that carries out requests in order."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue

import structlog

from koff.errors import ConnectError, KoffError, lacks_right
from koff.monitor.means import Means
from koff.monitor.requests import Failed, Request, Result
from koff.monitor.worker_thread import Post, WorkerThread

log = structlog.get_logger(component="monitor.in_order")
HANG_S = 60.0
"""After a request to the disk that takes so long, further ones fail at once: they may hold much memory."""


def carry_out(request: Request, means: Means) -> Result | None:
    """The result of the request, or why there is none; None if it posts its results. Raises nothing."""
    try:
        return request.carry_out(means)
    except KoffError as error:
        return Failed(request.id, str(error), denied=lacks_right(error))
    except Exception as error:  # a fault of koff must not end the process
        log.exception("a request failed", request=type(request).__name__)
        return Failed(request.id, f"{type(error).__name__}: {error}")


class InOrder(WorkerThread):
    """A thread that carries out requests one after the other. It calls `on_end` when it ends."""

    def __init__(
        self,
        name: str,
        means: Means,
        post: Post,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name)
        self._means, self._post, self._on_end = means, post, on_end
        self._began_s: float | None = None
        self._requests: SimpleQueue[Request | None] = SimpleQueue()

    def send(self, request: Request) -> None:
        """Carries out the request after those that were sent before. It fails if one of them hangs."""
        began_s = self._began_s
        if began_s is not None and time.monotonic() - began_s > HANG_S:
            self._post(Failed(request.id, f"a request before it has not returned for {HANG_S:.0f} s"))
            return
        try:
            self.start()
        except ConnectError as error:
            self._post(Failed(request.id, str(error)))
        else:
            self._requests.put(request)

    def close(self) -> None:
        """Ends the thread once all requests are carried out."""
        self._requests.put(None)

    def finish(self, timeout_s: float) -> None:
        """Waits until all requests are carried out, and ends the thread."""
        self.close()
        self.join(timeout_s)

    def _run(self) -> None:
        try:
            while (request := self._requests.get()) is not None:
                self._began_s = time.monotonic()
                result = carry_out(request, self._means)
                self._began_s = None
                log.debug("carried out", what=type(request).__name__)
                if result is not None:
                    self._post(result)
        finally:
            self._on_end()
