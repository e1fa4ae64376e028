"""The Prometheus rules, on recorded lives: each alert fires in its incident in time, and in no other.

`tests/simulation/recorded_lives.py` has recorded the lives from koff's core in virtual time.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from koff.serve.metrics.families import BY_NAME
from tests.unit.deploy.rules_file import CHART, DEPLOY, RULES

ROOT = DEPLOY.parent
LIVES = Path(__file__).parent / "lives"
RUNBOOKS = ROOT / "docs" / "runbooks.md"
SCRAPES_A_MINUTE = 4
TROUBLE = 15
"""The minute in which the trouble of a life begins."""
TAIL = 21
"""So many minutes after the end of its reason, each alert has ended (`keep_firing_for`, and windows)."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool: apt-get install prometheus"
)


@dataclass(frozen=True)
class Scraped:
    """A target of Prometheus: koff lives that life from minute `begin` on, and is killed at minute `end`.

    A target that is `gone` then is not scraped any more; otherwise its `up` is 0. `more` are labels that
    Prometheus adds. `renamed` replaces a part of the series from minute `renamed_at` on. The life is lived so
    many `times`.
    """

    life: str
    instance: str = "a:9850"
    begin: int = 0
    end: int | None = None
    gone: bool = False
    job: str = "koff"
    more: str = ""
    renamed: tuple[str, str] = ("", "")
    renamed_at: int = TROUBLE
    times: int = 1


class Expected(NamedTuple):
    """An alert that fires from that minute on, until its reason ends; None: until the life ends."""

    alert: str
    of: str
    since: int
    until: int | None = None


@dataclass(frozen=True)
class Case:
    """Targets, and the alerts that fire. At every minute, no other alert does."""

    targets: Sequence[Scraped]
    expected: Sequence[Expected] = ()
    minutes: int = 45
    never: str = field(default="", kw_only=True)
    """Why nothing fires, for the reader."""


EAST = "cluster=east"
FAILING = "KoffGroupFailing critical"
ILL = (
    # Late after two minutes, with the objective after one; ERR then, or when a trend of four spans is known.
    Expected(FAILING, f"{EAST} group=stopped", 18),
    Expected(FAILING, f"{EAST} group=stuck", 18),
    Expected(FAILING, f"{EAST} group=falls-behind", 22),
    Expected("KoffObjectiveMissed critical", f"{EAST} group=falls-behind", 23),
    Expected("KoffObjectiveMissed warning", f"{EAST} group=falls-behind", 32),
)
POD = ',pod="koff-{0}",namespace="n",pod_template_hash="{0}"'
CASES = {
    "nothing happens": Case([Scraped("calm")], minutes=59),
    "two replicas with the labels of their pods": Case(
        [Scraped("groups_in_trouble", name, more=POD.format(name)) for name in "ab"],
        [*ILL, Expected("KoffGroupLate warning", f"{EAST} group=catches-up", 13)],
        minutes=55,
    ),
    "commits from the coordinators": Case(
        [Scraped("from_coordinators")],
        [
            *(
                each._replace(since=26) if each.of.split("=")[-1] in ("stopped", "stuck") else each
                for each in ILL
            ),
            Expected("KoffGroupLate warning", f"{EAST} group=catches-up", 13),
        ],
        minutes=55,
    ),
    "a lag and no members": Case([Scraped("no_members")], ILL[:4], minutes=31),
    "retention overtakes": Case(
        [Scraped("retention_overtakes")],
        [
            *ILL,
            *(
                Expected("KoffRecordsLost critical", f"{EAST} group={group}", since)
                for group, since in (("stopped", 31), ("stuck", 31), ("falls-behind", 31))
            ),
        ],
        minutes=55,
    ),
    "the cluster is gone for 20 minutes": Case(
        [Scraped("cluster_gone")],
        [Expected("KoffBlind critical", EAST, 18, 35), Expected("KoffBlind warning", EAST, 26, 35)],
        minutes=49,
    ),
    "a broker is gone for 20 minutes": Case(
        [Scraped("broker_gone")], [Expected("KoffBlind warning", EAST, 26, 35)], minutes=49
    ),
    "an expected group is absent": Case(
        [Scraped("expected_group_absent")],
        [Expected("KoffExpectedGroupAbsent critical", f"{EAST} group=typo", 18, 35)],
        minutes=49,
    ),
    "a reload fails": Case(
        [Scraped("reload_failed")], [Expected("KoffReloadFailed warning", "instance=a:9850", 17, 29)]
    ),
    "the pipeline writes nothing any more": Case(
        [Scraped("pipeline_stops")], [Expected("KoffPipelineLate warning", EAST, 31)]
    ),
    "koff is killed": Case(
        [Scraped("calm", end=20)],
        [
            Expected("KoffAbsent critical", EAST, 23),
            Expected("KoffAbsent critical", "", 23),
            Expected("KoffInstanceDown warning", "instance=a:9850", 26),
        ],
    ),
    "koff is killed, and its pod comes back after five minutes": Case(
        [Scraped("calm", end=20, gone=True), Scraped("calm", "b:9850", begin=25)],
        [Expected("KoffAbsent critical", "", 23, 24)],
    ),
    "koff dies young, and its pod comes back at another address": Case(
        [Scraped("calm", end=3, gone=True), Scraped("calm", "b:9850", begin=4)], never="it is there again"
    ),
    "a trial with the name of another cluster ends": Case(
        [
            Scraped("calm", end=9, gone=True, job="trial", renamed=("east", "trial"), renamed_at=0),
            Scraped("calm", "b:9850"),
        ],
        never="it was a trial of less than an hour",
    ),
    "one of two replicas is killed": Case(
        [Scraped("calm"), Scraped("calm", "b:9850", end=20)],
        [Expected("KoffInstanceDown warning", "instance=b:9850", 26)],
    ),
    "labels change": Case(
        [Scraped("calm", renamed=('cluster="east"', 'cluster="east",region="eu"'))],
        never="it is the same cluster",
    ),
    "a cluster gets another name after more than an hour": Case(
        [Scraped("calm", times=2, renamed=('"east"', '"europe"'), renamed_at=65)],
        minutes=110,
        never="its koff is alive",
    ),
    "a new pod watches another cluster": Case(
        [
            Scraped("calm", times=2, end=65, gone=True),
            Scraped("calm", "b:9850", begin=66, renamed=('"east"', '"europe"'), renamed_at=0),
        ],
        minutes=110,
        never="a koff of that job is alive",
    ),
    "koff and its whole job are gone after more than an hour": Case(
        [Scraped("calm", times=2, end=70, gone=True)],
        [Expected("KoffAbsent critical", EAST, 73), Expected("KoffAbsent critical", "", 73)],
        minutes=110,
    ),
    "both shards live": Case([Scraped("shard_0"), Scraped("shard_1", "b:9850")], minutes=29),
    "one of two shards is killed": Case(
        [Scraped("shard_0"), Scraped("shard_1", "b:9850", end=10)],
        [
            Expected("KoffShardAbsent critical", EAST, 13),
            Expected("KoffInstanceDown warning", "instance=b:9850", 16),
        ],
        minutes=29,
    ),
}


def read_rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


ALERTS = [rule for rule in read_rules() if "alert" in rule]


def expand(values: str) -> list[str]:
    """A sample for each scrape: promtool's notation, written out."""
    samples: list[str] = []
    for word in values.split():
        value, times, count = word.partition("x")
        samples += [value] * (1 if not times else int(count) + (value != "_"))
    return samples


def build_series(target: Scraped) -> Iterator[dict[str, str]]:
    """What Prometheus stores of a target. `stale` ends a series, also when a scrape fails."""
    before = ["_"] * target.begin * SCRAPES_A_MINUTE
    recorded = yaml.safe_load((LIVES / f"{target.life}.yaml").read_text())
    length = target.times * max(len(expand(str(values))) for values in recorded.values())
    kept = length if target.end is None else (target.end - target.begin) * SCRAPES_A_MINUTE
    added = f'job="{target.job}",instance="{target.instance}"{target.more}'
    for name, notation in recorded.items():
        samples = (target.times * expand(str(notation)))[:kept]
        for labelled, given in rename(name, samples, target):
            ends = target.end is not None and given[-1] not in ("_", "stale")
            values = " ".join([*before, *given, *(["stale"] if ends else [])])
            yield {"series": add_labels(labelled, added), "values": values}
    down = [] if target.end is None else ["stale"] if target.gone else ["0"] * 400
    yield {"series": f"up{{{added}}}", "values": " ".join(before + ["1"] * kept + down)}


def rename(name: str, samples: list[str], target: Scraped) -> Iterator[tuple[str, list[str]]]:
    """The series under its name, and under the new one from `TROUBLE` on."""
    old, new = target.renamed
    if not old or old not in name:
        yield name, samples
        return
    at = target.renamed_at * SCRAPES_A_MINUTE
    if at:
        yield name, [*samples[:at], "stale"]
    yield name.replace(old, new), ["_"] * at + samples[at:]


def add_labels(series: str, labels: str) -> str:
    return series.replace("{}", f"{{{labels}}}") if "{}" in series else series.replace("{", f"{{{labels},", 1)


def build_test(name: str, case: Case) -> dict[str, Any]:
    """promtool's test: at each minute, the firing alerts are those that are expected, each once."""
    firing = 'count by (alertname, severity, cluster, shard, group, instance) (ALERTS{alertstate="firing"})'
    checks = []
    for minute in range(1, case.minutes):
        must = {each for each in case.expected if is_between(minute, each.since, each.until)}
        last = (None if each.until is None else each.until + TAIL for each in case.expected)
        # An alert may fire sooner than promised, and no sooner than the trouble begins.
        may = {
            each
            for each, until in zip(case.expected, last, strict=True)
            if is_between(minute, min(each.since, TROUBLE_OF.get(each.alert, each.since - 5)), until)
        }
        if must == may:
            samples = [{"labels": format_alert(each), "value": 1} for each in must]
            checks.append({"expr": firing, "eval_time": f"{minute}m", "exp_samples": samples})
    return {
        "name": name,
        "interval": f"{60 // SCRAPES_A_MINUTE}s",
        "input_series": [series for target in case.targets for series in build_series(target)],
        "promql_expr_test": checks,
    }


TROUBLE_OF = {"KoffGroupLate warning": 1}
"""Since when alerts may fire whose reason is there from the beginning."""


def is_between(minute: int, since: int, until: int | None) -> bool:
    return since <= minute and (until is None or minute <= until)


def format_alert(expected: Expected) -> str:
    alert, severity = expected.alert.split()
    pairs = [f"alertname={alert}", f"severity={severity}", *expected.of.split()]
    return "{" + ",".join(re.sub("=(.*)", r'="\1"', pair) for pair in pairs) + "}"


def run_promtool(*args: str | Path) -> None:
    ended = subprocess.run(["promtool", *args], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@needs_promtool
def test_promtool_accepts_the_rules():
    run_promtool("check", "rules", RULES)


@needs_promtool
@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_in_its_incident_in_time_and_in_no_other(name: str, tmp_path: Path):
    test = build_test(name, CASES[name])
    assert len(test["promql_expr_test"]) > CASES[name].minutes // 3
    path = tmp_path / "tests.yml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]})
    )
    run_promtool("test", "rules", path)


def test_each_alert_has_an_incident():
    fired = {each.alert for case in CASES.values() for each in case.expected}
    assert fired == {f"{rule['alert']} {rule['labels']['severity']}" for rule in ALERTS}


def test_rules_use_default_metrics_and_alerts_have_a_runbook():
    text, base = (
        RUNBOOKS.read_text(),
        yaml.safe_load((CHART / "values.yaml").read_text())["prometheusRule"]["runbookUrl"],
    )
    for rule in read_rules():
        named = {BY_NAME[name] for name in re.findall(r"(?<!:)\bkoff_[a-z_]+\b(?!:)", rule["expr"])}
        assert [family.name for family in named if not family.default] == []
    for rule in ALERTS:
        assert rule["annotations"]["summary"]
        page, _, section = rule["annotations"].get("runbook_url", "").partition("#")
        # Nobody knows where users have the page, unless the chart's default says so.
        assert (page, section) == (base, rule["alert"].lower() if base else "")
        assert f"\n## {rule['alert']}\n" in text
    assert re.findall("^## (Koff.*)$", text, re.M) == list(dict.fromkeys(rule["alert"] for rule in ALERTS))
