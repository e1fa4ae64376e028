"""`koff lag --watch` in a terminal, on a real Kafka that stops."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import TopicPartition

from koff.kafkatest import wait_until
from tests.koff_process import KOFF

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
_SEQUENCE = re.compile(rb"\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1bP.*?\x1b\\", re.DOTALL)


class Terminal:
    """koff in a terminal of its own. `text` is all that it wrote, without control sequences."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process, self._master, self.written = process, master, b""
        self._reading = threading.Thread(target=self._read, daemon=True, name="terminal")
        self._reading.start()

    def _read(self) -> None:
        while True:
            select.select([self._master], [], [])
            try:
                data = os.read(self._master, 65536)
            except OSError:  # the other end was closed
                return
            if not data:
                return
            self.written += data

    @property
    def text(self) -> str:
        return _SEQUENCE.sub(b" ", self.written).decode(errors="replace")

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.text, timeout_s=120, what=f"{text!r} in the terminal")

    def wait_for_end(self) -> int:
        return self.process.wait(timeout=60)


@contextmanager
def koff_in_terminal(*args: str, env: dict[str, str] | None = None) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    process = subprocess.Popen(
        [*KOFF, *args],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color", **(env or {})},
    )
    os.close(slave)
    terminal = Terminal(process, master)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        os.close(master)


def commit(cluster, topic: str, group: str) -> None:
    cluster.create_topic(topic)
    producer = cluster.producer()
    for _ in range(100):
        producer.produce(topic, value=b"x")
    producer.flush(30)
    consumer = cluster.consumer(group)
    consumer.commit(offsets=[TopicPartition(topic, 0, 40)], asynchronous=False)
    consumer.close()


def test_the_view_shows_groups_says_that_brokers_stopped_and_ends_with_q(more_kafka):
    cluster = more_kafka()
    commit(cluster, "orders", "payments")
    with koff_in_terminal("lag", "--brokers", cluster.bootstrap, "--watch", "--interval", "1") as terminal:
        terminal.wait_for("payments")
        assert b"\x1b[?1049h" in terminal.written  # the alternate screen
        terminal.press(b"\r")
        terminal.wait_for("60 offsets in 1 partition")
        terminal.press(b"\x1b")
        cluster.stop()
        terminal.wait_for("not all is known")
        assert terminal.process.poll() is None
        terminal.press(b"q")
        assert terminal.wait_for_end() == 0
        assert b"\x1b[?1049l" in terminal.written


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (lambda terminal: terminal.press(b"\x03"), 130),
        (lambda terminal: terminal.process.send_signal(signal.SIGINT), 130),
        (lambda terminal: terminal.process.send_signal(signal.SIGTERM), 143),
    ],
    ids=["ctrl-c", "SIGINT", "SIGTERM"],
)
def test_the_view_leaves_the_terminal_as_it_was(kafka, end, code):
    with koff_in_terminal("lag", "--brokers", kafka.bootstrap, "--watch", env={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for("q quit")
        end(terminal)
        assert terminal.wait_for_end() == code
        wait_until(lambda: b"\x1b[?1049l" in terminal.written, what="the end of the alternate screen")
        colors = re.findall(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|38|48)[;m]", terminal.written)
        assert colors == []


def test_a_cluster_that_cannot_be_reached_is_one_line_after_the_view():
    with koff_in_terminal("lag", "--brokers", "127.0.0.1:1", "--watch") as terminal:
        assert terminal.wait_for_end() == 1
        wait_until(lambda: "Error: " in terminal.text, what="the error")
        assert "Traceback" not in terminal.text
