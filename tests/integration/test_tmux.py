"""The live view in a real terminal, tmux: sizes, keys, lost brokers, and how it leaves the terminal."""

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
LATE = GROUPS[10:13]
OBJECTIVES = [
    {"groups": f"^({'|'.join(LATE)})$", "seconds": 2},
    {"groups": ".", "seconds": 86_400},
]


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
    """A shell in a folder with a koff.yaml."""
    settings = {"name": "c", "brokers": cluster.bootstrap, "objectives": OBJECTIVES}
    (tmp_path / "koff.yaml").write_text(json.dumps({"clusters": [settings]}))  # JSON is YAML, too
    with run_tmux(tmp_path) as terminal:
        yield terminal


def watch(terminal: Tmux) -> None:
    terminal.start_koff("lag", "--config", "koff.yaml", "--watch", "--interval", "1")
    terminal.wait_for("200 groups")
    terminal.wait_for(f"{len(LATE)} ERR")


def find_rows(lines: list[str]) -> dict[int, str]:
    """By line, the groups on the screen, without the mark of the chosen one."""
    return {at: line[2:] for at, line in enumerate(lines) if re.match(r"[> ] (UNKNOWN|OK|WARN|ERR) ", line)}


def check_list(terminal: Tmux, width: int, height: int) -> None:
    """The late groups come first, what is cut has a sign, and columns are aligned."""
    terminal.wait_until(
        lambda: (
            "q quit" in terminal.lines[height - 1]
            and any(line.startswith("> ERR") for line in terminal.lines)
            and max(map(measure_text, terminal.lines)) > width - 30
        ),
        what=f"a list for {width}x{height}",
    )
    lines = terminal.lines
    rows = find_rows(lines)
    first = min(rows)
    assert lines[0].startswith("koff  ")
    assert re.search(r"3 ERR  0 WARN  0 UNKNOWN  \d+ OK  0 withheld", "  ".join(lines[:first]))
    assert max(map(measure_text, lines)) <= width
    header = lines[first - 1]
    end = header.index("LAG") + len("LAG") - 2
    for row in rows.values():
        (group,) = (
            [name for name in GROUPS if ascii(name)[1:8] in ascii(row)]
            if "group-" not in row
            else [row.split()[1]]
        )
        found = re.search(rf" {1000 - GROUPS.index(group)} ", row)
        assert found, row
        assert measure_text(row[: found.end() - 1]) == end, row
    # What there is to say of a late group is beside it or below, whole or with a sign.
    shown = [row.split()[1] for row in rows.values()]
    assert set(shown[: len(LATE)]) <= set(LATE)
    late = [at for at, row in rows.items() if row.startswith("ERR")]
    for at, following in zip(late, [*list(rows)[1:], height - 1], strict=False):
        said = " ".join("  ".join(lines[at:following]).split())
        assert "Stopped: " in said or "Late" in said
        assert re.search(r"the oldest for \d+ \w+|…", said), said


@pytest.mark.parametrize(("width", "height"), [(60, 10), (80, 24), (200, 50)])
def test_the_list_fits_each_size_with_wide_names_and_200_groups(
    terminal: Tmux, cluster: LocalKafka, width: int, height: int
):
    watch(terminal)
    for size in ((width, height), (120, 30), (width, height)):
        terminal.resize(*size)
        check_list(terminal, *size)
    terminal.press("End")
    terminal.wait_for("> OK ")
    assert terminal.lines[max(find_rows(terminal.lines))].startswith("> OK ")
    terminal.press("Home", "Enter")
    terminal.wait_for(f"group     {LATE[0][:-1]}")
    assert max(map(measure_text, terminal.lines)) <= width
    terminal.wait_until(lambda: terminal.lines[height - 1].startswith("esc back"), what="the foot")
    terminal.press("Escape")
    check_list(terminal, width, height)


def test_the_screen_does_not_flicker(terminal: Tmux, cluster: LocalKafka, tmp_path: Path):
    """After the first picture, koff writes over what has changed, and never erases the screen or a line."""
    watch(terminal)
    check_list(terminal, 80, 24)
    terminal.copy_output(tmp_path / "written")
    terminal.press("Down")
    terminal.wait_for("order paused")
    terminal.wait_until(lambda: "order paused" not in terminal.text, what="some seconds")
    written = (tmp_path / "written").read_bytes()
    assert written
    assert not re.search(rb"\x1b\[[0-3]?[JK]|\x1bc", written)
    assert b"\x1b[?1049" not in written


def test_the_page_of_one_group_is_live(terminal: Tmux, cluster: LocalKafka):
    name = GROUPS[3]
    terminal.resize(60, 10)
    terminal.start_koff("group", name, "--config", "koff.yaml", "--watch", "--interval", "1")
    terminal.wait_for(f"group     {name}")
    assert max(map(measure_text, terminal.lines)) <= 60
    commit(cluster, (name,))  # its offset becomes 0
    terminal.wait_for("1,000 offsets in 1 partition")
    assert commit(cluster, GROUPS)
    terminal.wait_for("997 offsets in 1 partition")
    terminal.press("q")
    terminal.wait_for("code=0")
    terminal.type_line("clear; export NO_COLOR=1")
    terminal.start_koff("group", name, "--config", "koff.yaml", "--watch")
    terminal.wait_for(f"group     {name}")
    terminal.press("q")
    terminal.wait_for("code=0")


@pytest.mark.parametrize(("key", "code"), [("q", 0), pytest.param("C-c", 130, marks=pytest.mark.thorough)])
def test_the_terminal_is_left_as_it_was(terminal: Tmux, cluster: LocalKafka, key: str, code: int):
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
