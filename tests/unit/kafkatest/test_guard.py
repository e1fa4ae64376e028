"""Processes of the test kit that are frozen."""

import os
import select
import signal
import subprocess
import sys
import time

from koff.kafkatest import freeze, reap, spawn

WRITES_IN_A_THREAD = """
import os, threading, time

def write():
    while True:
        os.write(1, b"x")

threading.Thread(target=write).start()
time.sleep(600)
"""


def test_a_frozen_process_does_nothing_more():
    with spawn([sys.executable, "-c", WRITES_IN_A_THREAD], stdout=subprocess.PIPE, bufsize=0) as process:
        try:
            assert process.stdout is not None
            for _ in range(30):
                assert process.stdout.read(1 << 16)
                freeze(process)
                os.set_blocking(process.stdout.fileno(), False)
                while process.stdout.read(1 << 16):
                    pass
                time.sleep(0.01)
                assert not process.stdout.read(1)
                os.set_blocking(process.stdout.fileno(), True)
                process.send_signal(signal.SIGCONT)
                assert select.select([process.stdout], [], [], 60)[0]
        finally:
            reap(process)


def test_a_process_that_has_ended_is_not_waited_for():
    process = spawn([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    freeze(process)
    assert reap(process) == 0
