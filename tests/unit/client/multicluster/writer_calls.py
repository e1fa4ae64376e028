"""Calls of a writer in threads of their own."""

from __future__ import annotations

import threading
from typing import Any

from koff.client.cluster_conf import ClusterConf
from koff.client.multicluster import Writer, WriterConf

NOWHERE = "127.0.0.1:1"


def new_writer(**options: Any) -> Writer:
    return Writer({"a": ClusterConf(NOWHERE)}, WriterConf("t", **options))


class Rescue:
    """Runs a call in a thread: the test fails if the call does not return, and does not hang."""

    def __init__(self, call: Any) -> None:
        self.raised: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.raised = error

    def wait(self) -> BaseException | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.raised
