"""Calls in a process of their own: results and errors come back, and a crash is an error."""

from __future__ import annotations

import os
import time

import pytest

from koff.client import ClusterConf
from koff.client.cluster import Cluster
from koff.client.own_process import call_in_own_process
from koff.errors import ConnectError, Denied


def refuse(why: str) -> None:
    raise Denied(why)


def fail() -> None:
    raise LookupError("a fault of koff")


def describe(conf: ClusterConf) -> tuple[int, str, dict[str, str]]:
    return os.getpid(), conf.brokers, dict(conf.properties)


def test_the_result_comes_from_another_process():
    conf = ClusterConf("localhost:1", {"sasl.password": "secret"})
    pid, *rest = call_in_own_process(describe, conf, timeout_s=60)
    assert pid != os.getpid()
    assert rest == ["localhost:1", {"sasl.password": "secret"}]


def test_modules_of_the_current_directory_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "signal.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    assert call_in_own_process(os.getcwd, timeout_s=60) == str(tmp_path)


def test_koffs_own_errors_are_raised_as_they_are():
    with pytest.raises(Denied, match=r"^not allowed$"):
        call_in_own_process(refuse, "not allowed", timeout_s=60)


def test_a_crash_is_an_error_that_names_the_signal():
    with pytest.raises(ConnectError, match=r"^abort has crashed \(SIGABRT\)$"):
        call_in_own_process(os.abort, timeout_s=60)


def test_any_other_error_is_an_error_too():
    with pytest.raises(ConnectError, match=r"^fail has crashed \(exit code 1\)$"):
        call_in_own_process(fail, timeout_s=60)


def test_a_call_that_hangs_is_killed():
    began = time.monotonic()
    with pytest.raises(ConnectError, match=r"did not end within 0\.5 s and was killed"):
        call_in_own_process(time.sleep, 60, timeout_s=0.5)
    assert time.monotonic() - began < 30


def test_a_cluster_that_cannot_be_reached_is_the_same_error_as_in_koffs_own_process():
    conf = ClusterConf("127.0.0.1:1", connect_timeout_s=1)
    with pytest.raises(ConnectError) as own:
        Cluster(conf).connect()
    with pytest.raises(ConnectError) as other:
        call_in_own_process(connect, conf, timeout_s=60)
    assert str(other.value) == str(own.value)


def connect(conf: ClusterConf) -> None:
    Cluster(conf).connect()
