"""`koff lag --watch` in a terminal, on a real Kafka that stops."""

import re
import signal

import pytest

from koff.kafkatest import wait_until
from tests.kafka_groups import make_lag
from tests.terminal import koff_in_terminal

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def test_the_view_shows_groups_says_that_brokers_stopped_and_ends_with_q(more_kafka):
    cluster = more_kafka()
    make_lag(cluster, "payments", committed=40, records=100)
    with koff_in_terminal("lag", "--brokers", cluster.bootstrap, "--watch", "--interval", "1") as terminal:
        terminal.wait_for("payments")
        assert b"\x1b[?1049h" in terminal.written  # the alternate screen
        terminal.press(b"\r")
        terminal.wait_for("60 offsets in 1 partition")
        terminal.press(b"\x1b")
        cluster.stop()
        terminal.wait_for("not all is known since")
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
        assert b"\x1b[?1049l" in terminal.written
        colors = re.findall(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-7]|4[0-7]|38|48)[;m]", terminal.written)
        assert colors == []


def test_a_terminal_that_can_only_print_gets_the_plain_output(kafka):
    with koff_in_terminal("lag", "--brokers", kafka.bootstrap, "--watch", env={"TERM": "dumb"}) as terminal:
        wait_until(lambda: re.search("GROUP|no consumer groups", terminal.text), timeout_s=120, what="output")
        assert b"\x1b" not in terminal.written


def test_a_cluster_that_cannot_be_reached_is_one_line_after_the_view():
    with koff_in_terminal("lag", "--brokers", "127.0.0.1:1", "--watch") as terminal:
        assert terminal.wait_for_end() == 1
        assert "Error: " in terminal.text
        assert "Traceback" not in terminal.text
