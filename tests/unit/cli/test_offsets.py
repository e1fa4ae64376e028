"""`koff offsets`: what its options may be, and what it refuses before it connects."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from koff.cli import main
from koff.cli.offsets import TARGET, TOPIC
from koff.client.cluster_conf import TopicPartition
from koff.client.offset_plan import Commit
from tests.unit.client.test_offset_plan import PLAN


@pytest.mark.parametrize(
    ("given", "kind", "number"),
    [
        ("earliest", "earliest", 0),
        ("latest", "latest", 0),
        ("time=1970-01-01T00:00:01", "time", 1000),
        ("time=1970-01-01T02:00:01+02:00", "time", 1000),
        ("time=5000", "time", 5000),
        ("by=-100", "by", -100),
        ("by=+1", "by", 1),
        ("offset=9223372036854775807", "offset", 2**63 - 1),
    ],
)
def test_a_target_is_read(given, kind, number):
    target = TARGET.parse(given)
    assert (target.text, target.kind, target.number) == (given, kind, number)


@pytest.mark.parametrize("given", ["duration=2h", "time=-2h"])
def test_a_duration_counts_from_now(given):
    before = time.time()
    target = TARGET.parse(given)
    assert target.kind == "time"
    assert before - 7200 - 1 <= target.number / 1000 <= time.time() - 7200


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", "must be earliest"),
        ("now", "must be earliest"),
        ("earliest=1", "must be earliest"),
        ("time=", "has no time"),
        ("time=-9999999d", "has no time"),
        ("duration=x", "is not a duration"),
        ("by=1.5", "has no number"),
        ("by=", "has no number"),
        ("offset=-1", "has no offset"),
        ("offset=9223372036854775808", "has no offset"),
        ("offset=²", "has no offset"),
        ("file=/no/such", "cannot be read: No such file"),
        ("file=/", "cannot be read: Is a directory"),
    ],
)
def test_a_target_that_is_wrong_is_refused(given, text):
    with pytest.raises(ValueError, match=text):
        TARGET.parse(given)


def test_a_file_names_the_offset_of_each_partition(tmp_path: Path):
    file = tmp_path / "offsets.csv"
    file.write_text('"orders",0,7\n\norders,1,8\n')
    each = {TopicPartition("orders", 0): Commit(7), TopicPartition("orders", 1): Commit(8)}
    assert TARGET.parse(f"file={file}").each == each


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "names no partition"),
        (b"orders,0,1\norders,0,2\n", "names orders,0 twice"),
        (b"orders,0,1\norders,x,2\n", "is wrong in line 2"),
        (b"group,orders,0,1\n", "is wrong in line 1"),
        (b"orders,0,-1\n", "has no offset"),
        (b"\xff,0,1\n", "cannot be read"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path: Path, content, text):
    file = tmp_path / "offsets.csv"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=text):
        TARGET.parse(f"file={file}")


def test_a_topic_may_name_partitions():
    assert TOPIC.parse("orders") == ("orders", [])
    assert TOPIC.parse("orders:3,0,3") == ("orders", [0, 3])


@pytest.mark.parametrize("given", ["", ":0", "orders:", "orders:x", "orders:1,", "orders:-1", "a:0:1"])
def test_a_topic_that_is_wrong_is_refused(given):
    with pytest.raises(ValueError, match="must be a topic"):
        TOPIC.parse(given)


def refuse(*args: str) -> str:
    ended = CliRunner().invoke(main, ["offsets", *args, "--brokers", "127.0.0.1:1"])
    assert ended.exit_code == 2, ended.output
    return " ".join(ended.output.split())


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("g",),
        ("--to", "latest"),
        ("g", "--undo", "{plan}"),
        ("--to", "latest", "--undo", "{plan}"),
        ("--topic", "t", "--undo", "{plan}"),
    ],
)
def test_a_reset_needs_a_group_and_a_target_and_an_undo_nothing_else(tmp_path: Path, args):
    plan = tmp_path / "plan.json"
    plan.write_text(PLAN.format_file())
    assert "give GROUP and --to, or --undo alone" in refuse("plan", *(arg.format(plan=plan) for arg in args))


def test_a_plan_is_not_overwritten(tmp_path: Path):
    plan = tmp_path / "plan.json"
    plan.write_text("")
    assert "exists, and may be needed for --undo" in refuse(
        "plan", "g", "--to", "latest", "--file", str(plan)
    )
    assert plan.read_text() == ""


@pytest.mark.parametrize("command", [("apply",), ("plan", "--undo")])
@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff", "cannot be read: "),
        (b"{}", "is no plan of this version of koff"),
        (PLAN.format_file().replace("150", "151").encode(), "was changed after koff wrote it"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_its_name(tmp_path: Path, command, content, text):
    plan = tmp_path / "plan.json"
    if content is not None:
        plan.write_bytes(content)
    said = refuse(*command, str(plan))
    assert "plan.json" in said
    assert text in said


def test_a_cluster_that_does_not_respond_is_no_decision(tmp_path: Path):
    plan = tmp_path / "plan.json"
    plan.write_text(replace(PLAN, group="g").format_file())
    ended = CliRunner().invoke(main, ["offsets", "apply", str(plan), "--brokers", "127.0.0.1:1"])
    assert ended.exit_code == 1
    assert "127.0.0.1:1" in ended.output
