"""Lives of groups whose truth is known, and what the verdicts make of them. `make bench` has all kinds."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.verdicts.__main__ import main
from bench.verdicts.run import run_lives, score_life
from bench.verdicts.score import Score

KINDS = (
    "steady",
    "batches_by_the_hour",
    "deployments",
    "withheld_samples",
    "topic_left",
    "crash_for_good",
    "poison_record",
    "too_slow_20pc",
    "slow_downstream_for_10_min",
    "reset_to_earliest",
    "open_transaction",
    "burst_of_30_min",
    "withheld_while_ill",
    "monitor_started_late",
)
DAYS = 0.35


@pytest.mark.parametrize("with_objectives", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_incidents_are_found_named_and_do_not_flap(with_objectives):
    score = Score()
    for life in run_lives(KINDS, [4], DAYS, with_objectives=with_objectives):
        score_life(score, life)
    assert score.incidents == score.found == 9
    assert score.became_err == score.broken == 6
    assert score.ok_while_broken_s <= 0.002 * score.broken_s
    assert score.right_causes == score.causes == 9
    assert max(score.changes) <= 4


LIFE = {"life": "short", "objective_s": None, "retention_s": None, "rows": 1, "sample_s": 5}


def sample(at_s: float, **row: object) -> dict[str, object]:
    first = {"committed": 10, "start": 0, "end": 10, "stable": 10, "held_s": 0, "member": 0}
    rest = {"subscribed": True, "assigned": True, "withheld": False, "lag_s": 0, "moved_at": at_s}
    return {"t": at_s, "members": 1, "rebalances": 0, "rows": [{**first, **rest, **row}]}


def judge(tmp_path: Path, *lines: object, labels: object = None) -> tuple[int, list[str]]:
    file, truth = tmp_path / "lives.jsonl.gz", tmp_path / "labels.json"
    with gzip.open(file, "wt") as lives:
        lives.writelines(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    truth.write_text(json.dumps(labels or []))
    result = CliRunner().invoke(main, [str(file), *(["--labels", str(truth)] if labels else [])])
    return result.exit_code, result.output.splitlines()


def test_lives_from_a_file_are_judged_and_scored(tmp_path):
    late = {"end": 500, "lag_s": 200, "moved_at": 5}
    history = {"history": [None]}
    lines = LIFE, history, sample(5), sample(10, withheld=True), sample(200, **late), sample(205, lag_s=None)
    labels = [
        {"life": "short", "causes": ["not_committing"], "spans": [[5, 10, "healthy"], [200, 205, "broken"]]}
    ]
    code, output = judge(tmp_path, *lines, labels=labels)
    assert code == 0
    *judged, score = map(json.loads, output)
    assert [(line["t"], line["verdict"], line["cause"]) for line in judged] == [
        (5, "OK", None),
        (10, "OK", None),
        (200, "ERR", "not_committing"),
        (205, "ERR", "not_committing"),
    ]
    assert (score["found_percent"], score["first_cause_right_percent"]) == (100, 100)


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    file = tmp_path / "lives.jsonl.gz"
    file.write_bytes(gzip.compress(json.dumps(LIFE).encode())[:-12])
    result = CliRunner().invoke(main, [str(file)])
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)


def test_the_history_of_a_life_seeds_what_is_usual(tmp_path):
    pauses = [{"from_t": 0, "until_t": 3600, "records": 100, "late_before_s": 3600, "late_after_s": 0}] * 4
    lines = LIFE, {"history": [{"span_s": 36_000, "records": 500, "pauses": pauses}]}
    code, output = judge(tmp_path, *lines, sample(5, end=500, lag_s=1000))
    assert code == 0
    assert json.loads(output[0])["verdict"] == "OK"
    assert json.loads(output[0])["usual_s"] == pytest.approx(2715, rel=0.01)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["{"], "line 1"),
        ([sample(5)], "line 1: there is no life yet"),
        ([{"life": "a"}], "line 1: 'rows'"),
        ([LIFE, {"t": 5}], "line 2: 'rows'"),
        ([LIFE, {**sample(5), "rows": []}], "line 2: 0 rows, but the life has 1"),
        ([LIFE, {**sample(5), "t": "now"}], "line 2: could not convert"),
        ([LIFE, [1]], "line 2"),
        ([LIFE, sample(5, committed="ten")], "line 2: invalid literal"),
        ([LIFE, sample(5, committed=10**30)], "line 2: Python int too large"),
        ([LIFE, {**sample(5), "rows": [7]}], "line 2"),
        ([LIFE, sample(5), sample(5)], "line 3: t is not later"),
        ([LIFE, {"history": [{"records": 5, "pauses": [{}]}]}], "line 2: 'records'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_line(tmp_path, lines, why):
    code, output = judge(tmp_path, *lines)
    assert code == 1
    assert why in output[-1]
