"""The command line: help, environment, refusals."""

import json
import socket
import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from koff.cli import main
from koff.cli.text_table import format_table
from koff.client.addresses import check_addresses
from koff.errors import ConfigError
from koff.lag import Reason
from koff.records import encode
from koff.tracker import Tracker
from koff.version import VERSION
from koff.view.cluster_view import ClusterView, MonitorStats, Readiness
from tests.group_records import Share
from tests.unit.builders import ASSIGNED_T_0_1, apply, classic_group, commit


def run(*args: str, **environment: str):
    return CliRunner(env=environment).invoke(main, list(args))


def test_the_version_and_the_commands_are_told():
    assert VERSION in run("--version").output
    for command in ("monitor", "lag", "printer", "demo"):
        assert command in run("--help").output


@pytest.mark.parametrize(
    ("imported", "needs", "others"),
    [
        ("koff.cli", "koff.cli.root", {"koff.cli.lag", "koff.monitor", "numpy"}),
        ("koff.cli.monitor", "koff.daemon.daemon", {"yaml", "starlette", "uvicorn"}),
        ("koff.cli.lag, koff.cli.demo", "koff.cli.demo", {"rich", "textual"}),
        *(
            (f"koff.cli.{command}", "koff.client.cluster", {"confluent_kafka", "kazoo"})
            for command in ("monitor", "lag", "group", "offsets", "unused", "printer", "doctor")
        ),
    ],
)
def test_a_command_imports_only_what_it_uses(imported, needs, others):
    shown = f"import sys, {imported}; print(*sys.modules)"
    names = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True).stdout
    assert needs in names.split()
    assert not others.intersection(names.split())


@pytest.mark.parametrize("command", ["monitor", "lag", "printer"])
def test_help_has_examples_and_names_the_environment_variables(command):
    output = run(command, "--help").output
    assert "Examples:" in output
    assert f"KOFF_{command.upper()}_BROKERS" in output


@pytest.mark.parametrize(
    "args",
    [
        ("lag",),
        ("lag", "--brokers", "a:1", "--group", "("),
        ("lag", "--brokers", "a:1", "--fail-above", "-1"),
        ("lag", "--brokers", ""),
        ("lag", "--brokers", ","),
        ("lag", "--brokers", "a:b"),
        ("lag", "--brokers", "a:0"),
        ("lag", "--brokers", "a:1,b:65536"),
        ("monitor", "--brokers", "a:b"),
        ("monitor", "--brokers", "a:1", "--shard", "3/3"),
        ("monitor", "--brokers", "a:1", "--shard", "x"),
        ("printer", "--brokers", "a:b"),
        ("pipeline", "run", "--brokers", "a:b", "--tables", "t"),
        ("pipeline", "backfill", "--brokers", "http://a:1", "--tables", "t"),
        ("monitor", "--brokers", "a:1", "--property", "sasl.password=x"),
        ("lag", "--brokers", ":9092"),
        ("lag", "--brokers", "http://a:1"),
        ("lag", "--brokers", "a:1", "--timeout", "nan"),
        ("lag", "--brokers", "a:1", "--offsets-topic", ""),
        ("monitor", "--brokers", "a:1", "--end-offset-interval", "inf"),
        ("printer", "--brokers", "a:1", "--from", "1969-12-31"),
        ("printer", "--brokers", "a:1", "--from", "-999999999999d"),
        ("printer", "--brokers", "a:1", "--until", "9223372036854775808"),
        ("printer", "--brokers", "a:1", "--partition", "2147483648"),
        ("demo", "--port", "65536"),
        ("demo", "--rate", "nan"),
        ("decode", "segments", "/dev/zero"),
        ("lag", "--brokers", "a:1", "--property", "nonsense"),
        ("lag", "--brokers", "a:1", "--property", "no.such=1"),
        ("printer", "--brokers", "a:1", "--format", "xml"),
        ("monitor", "--brokers", "a:1", "--listen", "nowhere"),
        ("monitor", "--brokers", "a:1", "--property-file", "no-such-file"),
        ("monitor", "--brokers", "a:1", "--families", "default,koff_group_leg"),
        ("monitor", "--brokers", "a:1", "--groups", "exclude:("),
        ("monitor", "--brokers", "a:1", "--granularity", "cluster"),
        ("monitor", "--brokers", "a:1", "--max-series", "0"),
    ],
)
def test_bad_options_end_with_code_2_and_say_which(args):
    result = run(*args)
    assert result.exit_code == 2
    assert "Error: " in result.output


@pytest.mark.parametrize(
    "address",
    ["a b", "h:9092 h2:9092", "h ssl://h2:9092", "h;h2", "user@h:9092", "h/path", "h:\u0663", "h:9092\tx"],
)
def test_a_character_that_no_address_of_a_broker_has_is_refused(address):
    with pytest.raises(ConfigError, match="is not an address: write HOST:PORT"):
        check_addresses(f"localhost, {address}")


@pytest.mark.parametrize(
    "address",
    [
        "h",
        "h_1.example-2.com.:9092",
        "10.0.0.1:9092",
        "::1",
        "[::1]:9092",
        "[fe80::1%eth0]:1",
        "SASL_SSL://h:9093",
    ],
)
def test_addresses_of_brokers_may_have_a_protocol_and_spaces_around_them(address):
    check_addresses(f" {address} , localhost:9092,")  # raises nothing


def test_options_come_from_the_environment():
    result = run("lag", KOFF_LAG_BROKERS="a:1", KOFF_LAG_GROUP="(")
    assert "is not a regular expression" in result.output


@pytest.mark.parametrize("command", [["monitor"], ["lag"], ["printer"], ["pipeline", "run", "--tables", "t"]])
def test_the_brokers_come_from_one_variable_for_all_commands(command):
    assert "'a:shared' is not an address" in run(*command, KOFF_BROKERS="a:shared").output
    own = f"KOFF_{'_'.join(command[:2]).upper().removesuffix('_--TABLES')}_BROKERS"
    assert "'a:own' is not an address" in run(*command, **{"KOFF_BROKERS": "a:1", own: "a:own"}).output


@pytest.mark.parametrize(
    ("command", "variables"),
    [
        (["lag"], ["KOFF_LAG_FORMAT", "KOFF_LAG_PROPERTY", "KOFF_LAG_FAIL_ABOVE"]),
        (["printer"], ["KOFF_PRINTER_FROM", "KOFF_PRINTER_TYPE", "KOFF_PRINTER_FOLLOW"]),
        (["monitor"], ["KOFF_MONITOR_END_OFFSET_INTERVAL", "KOFF_MONITOR_LISTEN"]),
        (["decode", "segments"], ["KOFF_DECODE_SEGMENTS_READ_COMMITTED"]),
    ],
)
def test_variables_are_named_after_the_options(command, variables):
    output = run(*command, "--help").output
    for variable in variables:
        assert variable in output.replace("\n", "")


def test_a_port_that_is_taken_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = run("monitor", "--brokers", "127.0.0.1:1", "--listen", address)
    assert result.exit_code == 2
    assert f"cannot listen on {address}" in result.output


def test_a_table_is_aligned_numbers_to_the_right_and_unknown_as_a_dash():
    assert format_table(("NAME", "LAG"), [("a", 5), ("long", None), ("b\x1b", 1234)]) == (
        "NAME    LAG\na         5\nlong      -\nb\\x1b  1234\n"
    )


@pytest.fixture
def withheld(monkeypatch):
    """`koff lag` of a cluster in which one row of group g is withheld; h may be half read."""
    tracker = Tracker()
    for partition, records in enumerate(
        (
            [classic_group("g", {"app": ASSIGNED_T_0_1}), commit("g", "t", 0, 4), commit("g", "t", 1, 4)],
            [classic_group("h", {"app": ASSIGNED_T_0_1}), commit("h", "t", 0, 4)],
        )
    ):
        apply(tracker, *records, partition=partition)
    tracker.add_samples(ends={("t", 0): 10, ("t", 1): 10})
    bits = {
        0: np.array([0, Reason.END_NOT_CURRENT], np.uint8),
        1: np.array([Reason.COMMITS_NOT_CURRENT], np.uint8),
    }
    snapshot = tracker.take_snapshot().withhold(bits, {1: False})
    view = ClusterView("c", snapshot, Readiness(True, "ready"), MonitorStats(rows=3, withheld=2))
    monkeypatch.setattr("koff.cli.looks.take_views", lambda *_, **__: iter([view]))


def test_the_table_shows_a_dash_and_the_reason_for_a_lag_that_is_withheld(withheld):
    output = run("lag", "--brokers", "a:1", "--partitions").output
    lines = [" ".join(line.split()) for line in output.splitlines()]
    assert "UNKNOWN g t 0 6 - 4 10 - app@/10.0.0.1 -" in lines
    assert "UNKNOWN g t 1 - - 4 - - app@/10.0.0.1 end_not_current" in lines
    assert "UNKNOWN h t 0 - - - 10 - - commits_not_current" in lines
    assert "UNKNOWN g - - - Stable 1 1 classic 2 Unknown: some of its lags are not current" in lines
    assert "UNKNOWN h - - - - - 1 - 1 Unknown: its commits are not read up to now" in lines


def test_json_shows_null_and_the_reason_for_a_lag_that_is_withheld(withheld):
    document = json.loads(run("lag", "--brokers", "a:1", "--format", "json").stdout)
    groups = {group["group"]: group for group in document["groups"]}
    for name, members, state in (("g", 1, "Stable"), ("h", None, None)):
        group = groups[name]
        assert (group["lag"], group["withheld"], group["members"], group["state"]) == (
            None,
            1,
            members,
            state,
        )
    rows = {(row["group"], row["partition"]): row for row in document["partitions"]}
    assert [rows["g", 0][name] for name in ("lag", "end", "reasons")] == [6, 10, ""]
    assert [rows["g", 1][name] for name in ("lag", "end", "reasons")] == [None, None, "end_not_current"]
    assert [rows["h", 0][name] for name in ("committed", "reasons")] == [None, "commits_not_current"]


def test_what_is_not_known_after_the_timeout_is_counted_on_standard_error_with_exit_code_4(withheld):
    result = run("lag", "--brokers", "a:1", "--timeout", "7")
    assert result.exit_code == 4
    reasons = "commits_not_current, end_not_current"
    assert f"not all is known: 2 of 3 lags are not known ({reasons})" in result.stderr
    assert "not all is known" not in result.stdout


def test_a_group_that_no_group_matches_is_named(withheld):
    result = run("lag", "--brokers", "a:1", "--group", "^none$")
    assert result.stdout == ""
    assert result.stderr == "no group matches --group ^none$: there are 2 groups in cluster c\n"


def test_a_cluster_of_which_nothing_is_known_is_not_said_to_have_no_groups(monkeypatch):
    view = ClusterView(
        "c", Tracker().take_snapshot(), Readiness(False, "not ready: no broker responds"), MonitorStats()
    )
    monkeypatch.setattr("koff.cli.looks.take_views", lambda *_, **__: iter([view]))
    result = run("lag", "--brokers", "a:1")
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.splitlines() == [
        "no group is known in cluster c",
        "not all is known: not ready: no broker responds",
    ]


def test_the_top_groups_are_shown_with_their_rows_and_how_many_there_are(withheld):
    result = run("lag", "--brokers", "a:1", "--top", "1", "--sort", "name", "--format", "json")
    document = json.loads(result.stdout)
    assert [group["group"] for group in document["groups"]] == ["g"]
    assert {row["group"] for row in document["partitions"]} == {"g"}
    assert "1 of 2 groups\n" in result.stderr


def test_partitions_are_shown_on_demand(withheld):
    assert "PARTITION " not in run("lag", "--brokers", "a:1").stdout
    assert "PARTITION " in run("lag", "--brokers", "a:1", "--partitions").stdout
    assert "PARTITION " in run("lag", "--brokers", "a:1", "--group", "g").stdout


def test_watch_and_fail_above_are_refused_together():
    result = run("lag", "--brokers", "a:1", "--watch", "--fail-above", "1")
    assert (result.exit_code, "--watch" in result.stderr) == (2, True)


def test_the_demo_refuses_a_rate_below_zero():
    result = run("demo", "--rate", "-1")
    assert (result.exit_code, "--rate" in result.stderr) == (2, True)


def test_only_the_chosen_groups_decide_about_the_exit_code(withheld):
    assert run("lag", "--brokers", "a:1", "--group", "^g$").exit_code == 4
    assert run("lag", "--brokers", "a:1", "--group", "^none$").exit_code == 0


def show_missing_shares(monkeypatch, **stats):
    """`koff lag` is of a cluster with a classic group g, and the share group s, whose lags are missing."""
    tracker = Tracker()
    apply(tracker, commit("g", "t", 0, 4), encode(Share.own("s", 1)))
    tracker.add_samples(ends={("t", 0): 10})
    snapshot = tracker.take_snapshot()
    whole = np.array([group.type != "share" for group in snapshot.shards[0].groups])
    snapshot = snapshot.withhold({}, {}, groups_whole={0: whole})
    view = ClusterView("c", snapshot, Readiness(True, "ready"), MonitorStats(rows=1, **stats))
    monkeypatch.setattr("koff.cli.looks.take_views", lambda *_, **__: iter([view]))


@pytest.fixture
def missing_shares(monkeypatch):
    show_missing_shares(monkeypatch, missing_shares_why="grant READ")


def test_share_groups_whose_lags_are_missing_are_always_named_with_exit_code_4(monkeypatch):
    show_missing_shares(monkeypatch)
    result = run("lag", "--brokers", "a:1")
    assert (result.exit_code, "lags of 1 share groups are missing (s)\n" in result.stderr) == (4, True)


def test_lags_of_share_groups_that_nobody_returns_are_named_with_the_reason_and_exit_code_4(missing_shares):
    result = run("lag", "--brokers", "a:1")
    assert result.exit_code == 4
    assert "not all is known: lags of 1 share groups are missing (s): grant READ" in result.stderr
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "UNKNOWN s - - - Empty 0 0 share 0 Unknown: some of its partitions are missing" in lines
    document = json.loads(run("lag", "--brokers", "a:1", "--format", "json").stdout)
    groups = {group["group"]: (group["lag"], group["reason"]) for group in document["groups"]}
    assert groups == {"g": (6, ""), "s": (None, "rows_missing")}
    result = run("lag", "--brokers", "a:1", "--format", "csv", "--fail-above", "9")
    assert (result.exit_code, "lag unknown: s (rows_missing)\n" in result.stderr) == (4, True)


def test_lags_of_share_groups_that_are_missing_do_not_matter_to_other_groups(missing_shares):
    result = run("lag", "--brokers", "a:1", "--group", "^g$")
    assert (result.exit_code, result.stderr) == (0, "")


def test_a_lag_that_is_withheld_is_an_unknown_lag_to_fail_above(withheld):
    result = run("lag", "--brokers", "a:1", "--fail-above", "1000")
    assert (
        result.exit_code,
        "lag unknown: g (lags_withheld), h (commits_not_current)\n" in result.stderr,
    ) == (4, True)
