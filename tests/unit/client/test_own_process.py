"""Calls in a process of their own: results and errors come back, and a crash is an error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
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
        call_in_own_process(time.sleep, 600, timeout_s=0.5)
    assert time.monotonic() - began < 60


def end_by_a_signal_without_a_name() -> None:
    os.kill(os.getpid(), signal.SIGRTMIN + 1)
    time.sleep(60)


def test_a_crash_by_a_signal_without_a_name_is_an_error_with_its_number():
    with pytest.raises(ConnectError, match=rf"has crashed \(signal {signal.SIGRTMIN + 1}\)$"):
        call_in_own_process(end_by_a_signal_without_a_name, timeout_s=60)


def print_and_read_as_foreign_code_does() -> str:
    print("a line of foreign code")
    os.write(1, b"and another")
    return sys.stdin.read()


def test_what_the_function_prints_and_reads_does_not_disturb_its_result(capfd):
    assert call_in_own_process(print_and_read_as_foreign_code_does, timeout_s=60) == ""
    assert capfd.readouterr() == ("", "")


def leave_a_thread_behind() -> str:
    threading.Thread(target=time.sleep, args=(600,)).start()
    return "result"


def test_a_thread_that_the_function_leaves_behind_does_not_delay_the_result():
    assert call_in_own_process(leave_a_thread_behind, timeout_s=60) == "result"


def echo(data: bytes) -> bytes:
    return data


def test_calls_and_results_may_be_larger_than_what_a_socket_buffers():
    data = os.urandom(8 << 20)
    assert call_in_own_process(echo, data, timeout_s=60) == data


def test_a_process_that_cannot_be_started_is_an_error(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(ConnectError, match="cannot start a process for echo: No such file or directory"):
        call_in_own_process(echo, b"", timeout_s=60)


def say_that_it_hangs() -> None:
    os.write(2, b"it hangs\n")
    time.sleep(600)


CALLS = """
from koff.client.own_process import call_in_own_process
from tests.unit.client.test_own_process import say_that_it_hangs
call_in_own_process(say_that_it_hangs, timeout_s=600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_when_koff_ends_and_keeps_no_pipe_open(number):
    with subprocess.Popen([sys.executable, "-c", CALLS], stderr=subprocess.PIPE) as koff:
        try:
            assert koff.stderr is not None
            assert koff.stderr.readline() == b"it hangs\n"
            koff.send_signal(number)
            koff.communicate(timeout=60)  # returns when no process has standard error open any more
        finally:
            koff.kill()


def test_a_cluster_that_cannot_be_reached_is_the_same_error_as_in_koffs_own_process():
    # The timeout is long: the probe finds the cause after a second, and both must have waited for it.
    conf = ClusterConf("127.0.0.1:1", connect_timeout_s=30)
    with pytest.raises(ConnectError) as own:
        Cluster(conf).connect()
    with pytest.raises(ConnectError) as other:
        call_in_own_process(connect, conf, timeout_s=60)
    assert str(other.value) == str(own.value)


def connect(conf: ClusterConf) -> None:
    Cluster(conf).connect()
