"""Lives of groups and of koff in virtual time, as a Prometheus would have scraped them: for tests of alerts.

`python -m tests.simulation.recorded_lives [NAME ...]` writes them anew into tests/unit/deploy/lives (about a
minute). A file has the series that koff served every `SCRAPE_S`, in promtool's notation. `stale` is where a
series ended.
"""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families as parse_metrics

from koff.monitor.chosen_partitions import ChosenPartitions
from koff.monitor.requests import Display
from koff.serve.metrics.exposition import Exposition
from koff.serve.metrics.own import ProcessNumbers
from koff.tracker import Objective, Rule, ShownNames
from koff.view.cluster_view import ClusterView, LastReload, PipelineStats
from tests.simulation.facts import Classic, ClassicMember
from tests.simulation.steady_groups import TOPIC, SteadyGroups

FOLDER = Path(__file__).parents[1] / "unit" / "deploy" / "lives"
SCRAPE_S = 15
TROUBLE_S = 900.0
"""When what a life is about begins."""
RECORDED = {
    *("koff_up", "koff_shards", "koff_rows_withheld", "koff_expected_group_present"),
    *("koff_group_status", "koff_group_lost_records", "koff_group_objective_seconds", "koff_build_info"),
    *("koff_config_last_reload_successful", "koff_pipeline_last_batch_timestamp_seconds"),
}
HIDDEN = ("^group-", "^catches-up$")
"""The groups that the model has before the life begins, and one that needs an hour and a half to catch up."""
OBJECTIVES = (Objective(re.compile("^falls-behind$"), 60.0),)
Sample = dict[str, float]


def show(*expected: str, hidden: Sequence[str] = HIDDEN, **labels: str) -> Display:
    """What koff shows: all groups but those that are hidden."""
    names = ShownNames(tuple(Rule(re.compile(each), includes=False) for each in hidden))
    return Display(names, labels, expected_groups=("keeps-up", *expected), objectives=OBJECTIVES)


class Recorded(SteadyGroups):
    """Groups that fall ill at `trouble_s`, and what koff serves of them."""

    def __init__(self, *, trouble_s: float = 1e9, display: Display | None = None, **conf: Any) -> None:
        self.samples: list[Sample] = []
        self.reload = LastReload(successful=True, success_s=0.0)
        self._exposition = Exposition()
        super().__init__(
            1,
            end_interval_s=5.0,
            commit_s=5.0,
            trouble_s=trouble_s,
            display=display or show(),
            cluster_name="east",
            **conf,
        )

    def _show(self, view: ClusterView) -> None:
        if self._cluster.now < len(self.samples) * SCRAPE_S:
            return
        view = replace(view, stats=replace(view.stats, pipeline=self.find_pipeline(self._cluster.now)))
        body = b"".join(self._exposition.render_chunks(view))
        body += self._exposition.render_own(view, process=ProcessNumbers(reload=self.reload))
        self.samples.append(
            {
                _format_series(sample.name, sample.labels): sample.value
                for family in parse_metrics(body.decode())
                for sample in family.samples
                if sample.name in RECORDED
            }
        )

    def find_pipeline(self, now_s: float) -> PipelineStats | None:
        """What the pipeline has done, in lives of `koff pipeline run`."""
        return None

    def delete_records(self) -> None:
        """Retention deletes what was written more than ten minutes ago."""
        for number, log in enumerate(self._logs()):
            log.trim(log.offset_at_time(self._cluster.wall_ms() - 600_000))
            self._cluster.truth.set_start(TOPIC, number, self._cluster.now, log.start)

    def set_members(self, group: str, count: int) -> None:
        """The group has so many members from now on. They read all partitions of `TOPIC`."""
        assigned = tuple((TOPIC, tuple(range(len(self._logs())))) for _ in range(count))[:1]
        members = tuple(ClassicMember(f"m-{at}", None, (TOPIC,), assigned) for at in range(count))
        self._generation = getattr(self, "_generation", 0) + 1
        self._cluster.write(group, [Classic(group, self._generation, members)])


# --- The lives ------------------------------------------------------------------------------------------


def calm() -> Recorded:
    """Nothing happens."""
    life = Recorded()
    life.run(3600)
    return life


def groups_in_trouble(**conf: Any) -> Recorded:
    """A group stops, a group reads a tenth of what comes, a partition of a group stands still."""
    life = Recorded(trouble_s=TROUBLE_S, display=show(hidden=HIDDEN[:1]), **conf)
    life.run(3600)
    return life


def from_coordinators() -> Recorded:
    """The same, and koff knows no commit times: the coordinators are its source."""
    return groups_in_trouble(source="coordinators", start="snapshot")


def no_members() -> Recorded:
    """A group with a lag loses its only member."""
    life = Recorded(trouble_s=TROUBLE_S)
    life.set_members("stopped", 1)
    life.run(TROUBLE_S)
    life.set_members("stopped", 0)
    life.run(1800)
    return life


def retention_overtakes() -> Recorded:
    """A group stops, and retention deletes the records that it has not read."""
    life = Recorded(trouble_s=TROUBLE_S)
    life.run(TROUBLE_S + 900)
    for _ in range(30):
        life.delete_records()
        life.run(60)
    return life


def cluster_gone() -> Recorded:
    """No broker responds for 20 minutes."""
    life = Recorded()
    life.run(TROUBLE_S)
    life.hide_brokers(life.list_brokers())
    life.run(1200)
    life.show_brokers()
    life.run(900)
    return life


def broker_gone() -> Recorded:
    """One broker of several does not respond for 20 minutes."""
    life = Recorded()
    life.run(TROUBLE_S)
    life.hide_brokers(life.list_brokers()[:1])
    life.run(1200)
    life.show_brokers()
    life.run(900)
    return life


def expected_group_absent() -> Recorded:
    """A group that koff.yaml expects has never been there; koff.yaml expects it after 15 minutes."""
    life = Recorded()
    life.run(TROUBLE_S)
    life._handle(show("typo"))
    life.run(1200)
    life._handle(show())
    life.run(900)
    return life


def reload_failed() -> Recorded:
    """A changed koff.yaml is wrong, and is mended after 15 minutes."""
    life = Recorded()
    for successful, seconds in ((True, TROUBLE_S), (False, 900.0), (True, 900.0)):
        life.reload = LastReload(successful, 0.0)
        life.run(seconds)
    return life


class WithPipeline(Recorded):
    """A batch each minute, until `TROUBLE_S`."""

    def find_pipeline(self, now_s: float) -> PipelineStats | None:
        return PipelineStats(now_s < TROUBLE_S, last_batch_s=min(now_s, TROUBLE_S) // 60 * 60)


def pipeline_stops() -> Recorded:
    """`koff pipeline run` writes nothing any more."""
    life = WithPipeline()
    life.run(2700)
    return life


def shard(number: int) -> Recorded:
    """A shard of two, without any trouble."""
    life = Recorded(only=ChosenPartitions(number, 2, None), display=show(shard=f"{number}/2"))
    life.run(1800)
    return life


LIVES: dict[str, Callable[[], Recorded]] = {
    "calm": calm,
    "groups_in_trouble": groups_in_trouble,
    "from_coordinators": from_coordinators,
    "no_members": no_members,
    "retention_overtakes": retention_overtakes,
    "cluster_gone": cluster_gone,
    "broker_gone": broker_gone,
    "expected_group_absent": expected_group_absent,
    "reload_failed": reload_failed,
    "pipeline_stops": pipeline_stops,
    "shard_0": lambda: shard(0),
    "shard_1": lambda: shard(1),
}

# --- promtool's notation --------------------------------------------------------------------------------


def _format_series(name: str, labels: dict[str, str]) -> str:
    kept = {label: value for label, value in labels.items() if label not in ("version", "python")}
    return f"{name}{{{','.join(f'{label}={chr(34)}{value}{chr(34)}' for label, value in kept.items())}}}"


def format_values(values: Sequence[float | None]) -> str:
    """The values in promtool's notation; None is no sample."""
    return " ".join(_format_runs(values))


def _format_runs(values: Sequence[float | None]) -> Iterator[str]:
    before: float | None = None
    for value, run in groupby(values):
        count = len(list(run))
        if value is None and before is not None:
            yield "stale"
            count -= 1
        if value is not None:
            yield f"{value:.15g}x{count - 1}" if count > 1 else f"{value:.15g}"
        elif count:
            yield f"_x{count}"
        before = value


def write_life(name: str, samples: Sequence[Sample]) -> None:
    """Writes the file of a life."""
    series = sorted({each for sample in samples for each in sample})
    text = {each: format_values([sample.get(each) for sample in samples]) for each in series}
    (FOLDER / f"{name}.yaml").write_text(yaml.safe_dump(text, width=1000))


def main() -> None:
    """Writes these lives, or all."""
    FOLDER.mkdir(exist_ok=True)
    for name in sys.argv[1:] or LIVES:
        life = LIVES[name]()
        write_life(name, life.samples)
        life.close()
        print(name, len(life.samples), "samples")


if __name__ == "__main__":
    main()
