"""Fetches offsets for many callers at once, in a thread, so that a leader that hangs delays no caller."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future

from koff.client.calls import call_in_thread
from koff.client.cluster_conf import TopicPartition
from koff.errors import copy_error

FetchOffsets = Callable[[list[TopicPartition]], Mapping[TopicPartition, int | Exception]]


class OffsetRequests:
    """Collects requests for offsets, and sends those that wait together. The thread ends with the requests.

    `fetch` returns the offset or the error of each partition. An error that it raises is that of all.
    """

    def __init__(self, fetch: FetchOffsets) -> None:
        self._fetch = fetch
        self._lock = threading.Lock()
        self._waiting: dict[TopicPartition, Future[int]] = {}
        self._running = False

    def request_offset(self, partition: TopicPartition) -> Future[int]:
        """The offset of the partition, which a leader returns later."""
        with self._lock:
            future = self._waiting.setdefault(partition, Future())
            if not self._running:
                self._running = True
                thread = call_in_thread(self._run)
                if thread.done() and thread.exception():  # the operating system gives no thread
                    self._running, self._waiting = False, {}
                    future.set_exception(thread.exception())
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                batch, self._waiting = self._waiting, {}
                if not batch:
                    self._running = False
                    return
            results: Mapping[TopicPartition, int | Exception]
            try:
                results = self._fetch(list(batch))
            except Exception as error:
                results = dict.fromkeys(batch, copy_error(error))
            for partition, future in batch.items():
                result = results[partition]
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)
