"""The live view in a real terminal, tmux: sizes, keys, lost brokers, and how it leaves the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from koff.cli.text_table import measure_text
from koff.kafkatest import LocalKafka, wait_until
from tests.clusters import lend_kafka
from tests.terminal import HAS_TMUX, Tmux, run_tmux

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not HAS_TMUX, reason="needs tmux: apt-get install tmux"),
]
WIDE = (
    "\u652f\u6255\u3044\u30b0\u30eb\u30fc\u30d7",
    "\u6ce8\u6587-" + "\u3068\u3066\u3082\u9577\u3044\u540d\u524d" * 5,
    "\ud55c\uad6d\uc5b4 \uadf8\ub8f9",
    "\uff26\uff35\uff2c\uff2c",
    "\u2764\ufe0f-heart",
    "\U0001f468\u200d\U0001f467-family",
)
"""Names with characters of two columns, and with some that terminals take for one or two."""
GROUPS = (*WIDE, *(f"group-{number:03}" for number in range(200 - len(WIDE))))
"""The larger the lag, the earlier here."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    """A Kafka with these groups on topic t."""
    with lend_kafka() as kafka:
        kafka.create_topic("t")
        producer = kafka.producer()
        for _ in range(1000):
            producer.produce("t", value=b"x")
        producer.flush(60)
        wait_until(lambda: commit(kafka, GROUPS[:1]), what="a coordinator")
        assert commit(kafka, GROUPS)
        yield kafka


def commit(kafka: LocalKafka, groups: tuple[str, ...]) -> bool:
    """Whether the number of each group was committed as its offset."""
    offsets = [
        ConsumerGroupTopicPartitions(group, [TopicPartition("t", 0, number)])
        for number, group in enumerate(groups)
    ]
    # A request has one group.
    futures = [
        kafka.admin.alter_consumer_group_offsets([each], request_timeout=30)[each.group_id]
        for each in offsets
    ]
    try:
        return all(future.result(60).topic_partitions[0].error is None for future in futures)
    except KafkaException:  # a new cluster has no coordinator for a while
        return False


@pytest.fixture
def terminal(tmp_path: Path, cluster: LocalKafka) -> Iterator[Tmux]:
    """A shell in a folder with a koff.yaml. Its objective keeps lines of incidents off the list."""
    settings = {"name": "c", "brokers": cluster.bootstrap, "objectives": [{"groups": ".", "seconds": 86_400}]}
    (tmp_path / "koff.yaml").write_text(json.dumps({"clusters": [settings]}))  # JSON is YAML, too
    with run_tmux(tmp_path) as terminal:
        yield terminal


def watch(terminal: Tmux) -> None:
    terminal.start_koff("lag", "--config", "koff.yaml", "--watch", "--interval", "1")
    terminal.wait_for("200 groups")


def list_rows(terminal: Tmux) -> list[str]:
    """The lines with groups, without the mark of the chosen one."""
    return [line[2:] for line in terminal.lines if re.match(r"[> ] (UNKNOWN|OK|WARN|ERR) ", line)]


def check_list(terminal: Tmux, width: int, height: int) -> None:
    """The list fills the screen, and its columns are aligned."""
    terminal.wait_until(
        lambda: len(list_rows(terminal)) == height - 3 and "q quit" in terminal.lines[height - 1],
        what=f"a list for {width}x{height}",
    )
    lines = terminal.lines
    header, rows = lines[1], list_rows(terminal)
    assert lines[0].startswith("koff  ")
    assert max(map(measure_text, lines)) <= width
    end = header.index("LAG") + len("LAG") - 2
    for row, lag in zip(rows, range(1000, 0, -1), strict=False):
        found = re.search(rf" {lag} ", row)
        assert found, (row, lag)
        assert measure_text(row[: found.end() - 1]) == end, row


def test_the_list_fits_each_size_with_wide_names_and_200_groups(terminal: Tmux, cluster: LocalKafka) -> None:
    watch(terminal)
    for width, height in ((80, 24), (60, 12), (160, 50), (60, 12), (80, 24)):
        terminal.resize(width, height)
        check_list(terminal, width, height)
    terminal.press("End")
    last = rf"^> [A-Z]+ +{GROUPS[-1]} "
    terminal.wait_until(lambda: re.search(last, terminal.text, re.MULTILINE), what="the last group")
    terminal.press("Home", "Enter")
    terminal.wait_for(f"group     {GROUPS[0]}")
    terminal.resize(60, 12)
    terminal.wait_until(lambda: terminal.lines[11].startswith("esc back"), what="the page, smaller")
    terminal.press("Escape")
    check_list(terminal, 60, 12)


@pytest.mark.parametrize(("key", "code"), [("q", 0), pytest.param("C-c", 130, marks=pytest.mark.thorough)])
def test_the_terminal_is_left_as_it_was(terminal: Tmux, cluster: LocalKafka, key: str, code: int) -> None:
    terminal.type_line("stty -a >before; echo before")
    terminal.wait_for("\nbefore")
    watch(terminal)
    assert (terminal.read("alternate_on"), terminal.read("cursor_flag")) == ("1", "0")
    assert terminal.read("mouse_any_flag") == "0"  # the user can select text
    terminal.press("C-z")
    terminal.wait_until(lambda: terminal.read("alternate_on") == "0", what="the shell")
    terminal.type_line("clear; fg; echo code=$?")
    terminal.wait_until(lambda: "200 groups" in terminal.text, what="the view, again")
    terminal.press(key)
    terminal.wait_for(f"code={code}")
    modes = ("alternate_on", "cursor_flag", "mouse_any_flag", "keypad_flag", "wrap_flag")
    assert [terminal.read(mode) for mode in modes] == ["0", "1", "0", "0", "1"]
    terminal.type_line("stty -a | diff before - && echo same")
    terminal.wait_for("\nsame")
