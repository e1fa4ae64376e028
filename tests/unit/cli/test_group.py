"""The page of one group, and its history from the log."""

import importlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from koff.cli import main
from koff.cli.group_history import MOST_EVENTS, GroupHistory
from koff.cli.group_page import format_page
from koff.errors import ConnectError
from koff.records import decode, encode
from koff.records.topics import OFFSETS_TOPIC
from koff.serve.api.queries import show_group
from koff.view.cluster_view import Views
from koff.view.owners import Owner, Owners
from tests.group_records import Share, Streams
from tests.unit.builders import classic_group, commit, consumer_group
from tests.unit.serve.views import fill_tracker, take_view
from tests.unit.view.test_causes import Life

group: Any = importlib.import_module("koff.cli.group")  # koff.cli may have a command of that name
AT_MS = 1_795_225_081_984
HISTORY = {
    "seconds": 3600,
    "commits": 2,
    "first_commit_ms": AT_MS,
    "last_commit_ms": AT_MS + 5000,
    "events": [{"timestamp_ms": AT_MS, "text": "rebalanced: generation 6 to 7, 2 members"}],
}


def show(life: Life, **more: Any) -> dict[str, Any]:
    shown = show_group(Views.from_one(life.take_view()), {"cluster": "c", "group": "g"}, {})
    return {**shown, "history": None, **more}


def test_the_page_compares_with_other_days_and_shows_the_error_budget():
    life = Life()
    life.pass_s(240, reads={1: 0})
    windows = [
        {"window_s": 3600, "late": 0.1, "known": 1.0, "burn_rate": 10.0},
        {"window_s": 30 * 86_400, "late": None, "known": 0.0, "burn_rate": None},
    ]
    earlier = [
        {"days": 1, "lag": [None, 1200.0], "time_lag_s": [None, 200.0]},
        {"days": 7, "lag": [5.0, None], "time_lag_s": [1.0, None]},
    ]
    budget = {"target": 0.99, "left": 0.4, "windows": windows}
    page = format_page(show(life, earlier=earlier, budget=budget), "broker:9092", None).splitlines()
    assert "day ago   1,200 offsets, the oldest 3 min 20 s old" in page
    assert "week ago  unknown" in page
    assert "budget    40% is left of 30 days; burn rate 10.0 over 1 h" in page


def test_the_page_says_what_the_group_is_why_it_lags_and_what_helps():
    life = Life()
    life.pass_s(240, reads={1: 0})
    page = format_page(show(life, history=HISTORY), "broker:9092", None)
    for line in (
        "group     g",
        "state     classic, Stable, 2 members, assignor range, generation 2",
        "status    ERR (2 min is allowed, as for any group)",
        "lag       2,400 offsets in 4 partitions, the oldest 4 min old",
        "  stuck_partition (100% of the lag): t-1 stands at offset 3,000: the group commits the same "
        "offset again and again, while its other partitions advance; perhaps its next record cannot be "
        "processed; a at /10.0.0.1 has it",
        "  2 commits in the log, from 2026-11-21 01:38:01Z to 2026-11-21 01:38:06Z",
        "  2026-11-21 01:38:01Z  rebalanced: generation 6 to 7, 2 members",
        "  kafka-console-consumer.sh --bootstrap-server broker:9092 --topic t --partition 1 --offset 3000 "
        "--max-messages 1",
    ):
        assert line in page.splitlines()
    members = page[page.index("Members\n") :].splitlines()
    assert members[2].split() == ["a-id", "a", "/10.0.0.1", "Stable", "2400", "t", "0-1"]


def test_the_page_says_who_owns_the_group_and_where_its_runbook_is():
    owners = Owners((Owner(re.compile("g"), "search", "#a\x1b", "https://wiki/{cause}"),))
    view = replace(Life().take_view(), owners=owners)
    shown = show_group(Views.from_one(view), {"cluster": "c", "group": "g"}, {})
    lines = format_page({**shown, "history": None}, "b:1", None).splitlines()
    assert lines[7:9] == ["owner     search ('#a\\x1b')", "runbook   https://wiki/none"]


def test_a_group_that_keeps_up_has_no_part_for_causes_and_nothing_to_reset():
    page = format_page(show(Life()), "b:1", None)
    assert "Why it lags" not in page
    assert "--reset-offsets" not in page


def test_names_are_quoted_in_commands():
    shown = show(Life())
    shown["group"]["group"] = "it's; rm -rf"
    assert "--group 'it'\"'\"'s; rm -rf' --describe" in format_page(shown, "b:1", None)


def test_control_characters_of_names_do_not_reach_the_terminal():
    shown = show(Life())
    shown["group"] |= {"group": "a\x1b[2J'\n\u202eb", "protocol": "range\x1b[2J"}
    page = format_page(shown, "b:1", None)
    assert "--group $'a\\x1b[2J\\x27\\x0a\\xe2\\x80\\xaeb' --describe" in page
    assert all(line.isprintable() for line in page.splitlines())


@pytest.mark.parametrize(
    ("kind", "commands"),
    [
        ("share", ["kafka-share-groups.sh --bootstrap-server b:1 --group g --describe --members"]),
        ("streams", ["kafka-streams-groups.sh --bootstrap-server b:1 --group g --describe --members"]),
        ("zookeeper", []),
    ],
)
def test_the_commands_are_of_the_tool_that_knows_the_group(kind, commands):
    shown = show(Life())
    shown["group"]["type"] = kind
    _, _, after = format_page(shown, "b:1", None).partition("Commands of Kafka")
    assert [line.strip() for line in after.splitlines()[1:]] == commands


def test_a_hanging_transaction_is_looked_for_where_it_is():
    life = Life()
    life.stable = {0: 3000}
    life.pass_s(180, reads={0: 0})
    command = "kafka-transactions.sh --bootstrap-server b:1 find-hanging --topic t --partition 0\n"
    assert command in format_page(show(life), "b:1", None)


def test_a_time_that_is_in_no_year_is_a_number():
    far = {**HISTORY, "events": [{"timestamp_ms": 2**63 - 1, "text": "rebalanced"}]}
    assert "  9223372036854775807 ms  rebalanced" in format_page(show(Life(), history=far), "b:1", None)


def test_the_page_fits_a_terminal():
    life = Life()
    life.pass_s(240, reads={1: 0})
    tables = format_page(show(life), "b:1", 60).split("Members\n")[1].split("Commands")[0]
    assert max(map(len, tables.splitlines())) <= 60


def read_history(*pairs: tuple[bytes, bytes | None]) -> dict[str, Any]:
    history = GroupHistory()
    history.add((AT_MS + number, decode(*pair)) for number, pair in enumerate(pairs))
    return json.loads(json.dumps(history.to_json()))


def test_the_history_has_commits_resets_and_rebalances():
    found = read_history(
        classic_group("g", {"a": b""}, generation=3),
        commit("g", "t", 0, 100),
        commit("g", "t", 0, 90),
        classic_group("g", {"a": b""}, generation=3),
        classic_group("g", {}, generation=4),
        commit("g", "t", 0, None),
        commit("g", "t", 0, 5),
    )
    assert (found["commits"], found["first_commit_ms"], found["last_commit_ms"]) == (3, AT_MS + 1, AT_MS + 6)
    assert [event["text"] for event in found["events"]] == [
        "rebalanced: generation 3, 1 member",
        "the committed offset of t-0 went back from 100 to 90",
        "rebalanced: generation 3 to 4, 0 members",
        "the committed offset of t-0 was deleted",
    ]


def test_the_history_of_a_group_of_the_new_protocol():
    first = consumer_group("g", epoch=1, assignment_epoch=1, members={"a": (1, 0)})
    found = read_history(*first, *consumer_group("g", epoch=2, assignment_epoch=2, members={"a": (2, 0)}))
    assert [event["text"] for event in found["events"]] == ["rebalanced: epoch 1", "rebalanced: epoch 1 to 2"]


@pytest.mark.parametrize("kind", [Share, Streams])
def test_the_history_of_share_and_streams_groups(kind):
    found = read_history(encode(kind.own("g", 3)), encode(kind.own("g", 4)))
    assert [event["text"] for event in found["events"]] == ["rebalanced: epoch 3", "rebalanced: epoch 3 to 4"]


def test_a_topic_with_control_characters_in_the_history():
    found = read_history(commit("g", "t\x1b", 0, 5), commit("g", "t\x1b", 0, 4))
    assert "\x1b" not in found["events"][0]["text"]


def test_a_long_history_is_bounded():
    found = read_history(*(commit("g", "t", 0, 1000 - number) for number in range(100)))
    assert len(found["events"]) == MOST_EVENTS
    assert found["commits"] == 100


def read_from(monkeypatch: pytest.MonkeyPatch, open_consumer: Callable[..., Any]) -> dict[str, Any] | None:
    monkeypatch.setattr(group, "OffsetsConsumer", open_consumer)
    conf = SimpleNamespace(brokers="b:1", properties={})
    cluster = SimpleNamespace(conf=conf, settings={"offsets_topic": OFFSETS_TOPIC})
    view = SimpleNamespace(stats=SimpleNamespace(source="log"))
    return group._read_history("g", cluster, view, 0, 60.0, 5.0)


def test_a_history_that_cannot_be_read_does_not_take_the_page_with_it(monkeypatch, capsys):
    def open_consumer(*_: Any, **__: Any) -> None:
        raise ConnectError("no broker")

    assert read_from(monkeypatch, open_consumer) is None
    assert capsys.readouterr().err == "the history cannot be read: no broker\n"


def test_the_history_of_a_partition_without_a_leader_ends(monkeypatch):
    given: dict[str, Any] = {}

    @contextmanager
    def open_consumer(*_: Any, **options: Any) -> Iterator[Any]:
        given.update(options)
        yield SimpleNamespace(batches=lambda: iter(()))

    found = read_from(monkeypatch, open_consumer)
    assert found is not None
    assert found["commits"] == 0
    assert given["until_ms"] - given["start"] == pytest.approx(65_000, abs=1)


@pytest.mark.parametrize(
    ("time_lag_s", "code", "seconds", "accepted"),
    [(None, 4, None, None), (0.0, 0, 60, "1 min"), (1800.5, 0, 2760, "46 min")],
)
def test_what_is_accepted_is_an_objective_that_the_group_keeps(capsys, time_lag_s, code, seconds, accepted):
    group = importlib.import_module("koff.cli.group")
    assert group._accept('a.b"c', time_lag_s) == code
    printed = capsys.readouterr().out
    if seconds is None:
        assert printed == ""
    else:
        ((objective,),) = yaml.safe_load(printed).values()
        assert objective == {"groups": '^a\\.b"c$', "seconds": seconds}
        assert re.fullmatch(objective["groups"], 'a.b"c')
        assert accepted in printed


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_pipe_gets_the_page_again_and_again(monkeypatch, form):
    life = Life()
    views = [life.take_view()]
    life.pass_s(240, reads={1: 0})
    monkeypatch.setattr("koff.cli.looks.take_views", lambda *_, **__: iter([*views, life.take_view()]))
    args = ["group", "g", "--brokers", "a:1", "--history", "0", "--watch", "--format", form]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 0
    pages = result.stdout.split("group     g\n")[1:] if form == "text" else result.stdout.splitlines()
    assert ["Stuck" in page for page in pages] == [False, True]
    assert all(line.isprintable() for line in result.stdout.splitlines())


def test_a_watched_group_may_come_later_and_accept_is_refused(monkeypatch):
    views = iter([take_view(fill_tracker()), Life().take_view()])
    monkeypatch.setattr("koff.cli.looks.take_views", lambda *_, **__: views)
    result = CliRunner().invoke(main, ["group", "h", "--brokers", "a:1", "--history", "0", "--watch"])
    assert (result.exit_code, result.stderr.count("koff lag lists all groups")) == (0, 2)
    refused = CliRunner().invoke(main, ["group", "h", "--brokers", "a:1", "--watch", "--accept"])
    assert (refused.exit_code, "--accept" in refused.stderr) == (2, True)
