"""What a test leaves behind fails that test alone."""

from tests.left_behind import LeftBehind

TESTS = """
import signal, subprocess, threading, pytest

processes, done = [], threading.Event()

@pytest.fixture(scope="module")
def kept():
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()

def test_uses_a_process_of_the_module(kept):
    assert kept.poll() is None

def test_leaves_a_process():
    processes.append(subprocess.Popen(["sleep", "60"]))

def test_leaves_a_process_of_a_process():
    subprocess.run(["sh", "-c", "sleep 60 &"], check=True)

def test_leaves_a_thread():
    threading.Thread(target=done.wait, name="left").start()

def test_sets_a_handler():
    signal.signal(signal.SIGINT, signal.SIG_IGN)

def test_leaves_nothing(kept):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    done.set()
    processes[0].wait()
"""


def test_processes_and_threads_that_are_left_fail_the_test_that_left_them(pytester, monkeypatch):
    monkeypatch.setattr("tests.left_behind.PATIENCE_S", 0.2)
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:koff", plugins=[LeftBehind()])
    result.assert_outcomes(passed=6, errors=3)
    result.stdout.fnmatch_lines(
        [
            "*the test leaves behind: process *: sleep 60",
            "*the test leaves behind: process *: sleep 60",
            "*the test leaves behind: thread left",
        ]
    )
