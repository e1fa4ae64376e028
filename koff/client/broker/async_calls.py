"""Calls of a producer that nobody waits for: a thread waits for their delivery reports."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from koff.client.broker.produce_call import ProduceCall
from koff.client.calls import call_in_thread
from koff.errors import Closed, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client")

OnDone = Callable[["Future[int | None]"], object]
_IDLE_S = 1.0
"""The thread ends when there was no call for so long."""
_CLOSE_S = 5.0
"""How long `close` waits for the reports of messages that were dropped."""
_SETTLE_S = 5.0
"""How long `close` waits after that until the thread has completed the futures."""


class AsyncCalls:
    """The calls that are under way, with their futures. The thread ends with the calls.

    `finish` returns the result of a call that is done, or raises its error.
    """

    def __init__(self, finish: Callable[[Any, ProduceCall], int | None]) -> None:
        self._finish = finish
        self._changed = threading.Condition()
        self._waiting: list[tuple[Any, ProduceCall, Future[int | None]]] = []
        self._thread: int | None = None
        self._closed = False

    def add(self, producer: Any, call: ProduceCall, on_done: OnDone | None) -> Future[int | None]:
        """The future result of the call. `on_done` gets the future, in the thread that completes it."""
        future = Future[int | None]()
        future.set_running_or_notify_cancel()  # the messages are on their way: it cannot be cancelled
        add_callback(future, on_done)
        with self._changed:
            self._waiting.append((producer, call, future))
            self._changed.notify_all()
            must_start = self._thread is None
            if must_start:
                self._thread = 0
        if must_start:
            started = call_in_thread(self._run)
            if started.done() and started.exception():  # the operating system gives no thread
                self._run()
        return future

    def close(self) -> None:
        """Waits until the calls that are under way are done. The producer has dropped their messages."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if self._thread == threading.get_ident():  # a callback closes the producer
                return
            self._changed.wait_for(lambda: not self._waiting, _CLOSE_S)
            left = [call for _, call, _ in self._waiting]
        for call in left:
            call.give_up(Closed("the producer is closed"))
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, _SETTLE_S)

    def _run(self) -> None:
        self._thread = threading.get_ident()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed, _IDLE_S)
                if not self._waiting:
                    self._thread = None
                    return
                waiting = list(self._waiting)
            # One call's flush runs the callbacks of all calls of its producer.
            unreported = ((producer, call) for producer, call, _ in reversed(waiting) if not call.done)
            for producer, call in dict(unreported).items():
                call.flush(producer)
            done = [each for each in waiting if each[1].done]
            for producer, call, future in done:
                self._settle(producer, call, future)
            with self._changed:
                self._waiting = [each for each in self._waiting if each not in done]
                self._changed.notify_all()

    def _settle(self, producer: Any, call: ProduceCall, future: Future[int | None]) -> None:
        try:
            result = self._finish(producer, call)
        except BaseException as error:
            if not isinstance(error, KoffError):  # a bug: without this, the caller would wait for ever
                log.exception("a call of a producer cannot be completed")
            future.set_exception(copy_error(error))
        else:
            future.set_result(result)


def add_callback(future: Future[int | None], on_done: OnDone | None) -> None:
    """Calls `on_done` with the future when it is done. An error of `on_done` is logged."""
    if on_done is None:
        return

    def call_back(done: Future[int | None]) -> None:
        try:
            on_done(done)
        except Exception:
            log.exception("a callback of produce_async raised an error")

    future.add_done_callback(call_back)
