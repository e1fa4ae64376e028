"""Writes the dashboards of this folder: python grafana/build.py

All queries use default families of `koff monitor`. None returns a series for each partition of a cluster: they
are about one group or topic, or are summed. Several replicas of koff give one line, because of `max by`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
SOURCE = {"type": "prometheus", "uid": "${source}"}
WIDTH = 24
IN_CLUSTER = 'cluster=~"$cluster"'
IN_GROUP = 'cluster=~"$cluster",group="$group"'
IN_TOPIC = 'cluster=~"$cluster",topic="$topic"'
LONGEST = f"topk(50, max by (cluster, group) (koff_group_max_lag_seconds{{{IN_CLUSTER}}}))"


@dataclass(frozen=True)
class Panel:
    """A panel. `queries` maps legends to PromQL. In a table, each legend is the header of a column."""

    title: str
    kind: str
    queries: Mapping[str, str]
    text: str = ""
    unit: str = "short"
    width: int = 12
    height: int = 8
    thresholds: Sequence[tuple[float | None, str]] = ()
    mappings: Sequence[Mapping[str, Any]] = ()
    overrides: Sequence[Mapping[str, Any]] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    sort_by: str = ""
    hidden: Sequence[str] = ()

    def build(self, number: int, x: int, y: int) -> dict[str, Any]:
        is_table = self.kind == "table"
        targets = [
            {
                "datasource": SOURCE,
                "refId": chr(ord("A") + index),
                "expr": expr,
                "legendFormat": legend,
                **({"format": "table", "instant": True} if is_table else {}),
                **({"instant": True} if self.kind == "stat" else {}),
            }
            for index, (legend, expr) in enumerate(self.queries.items())
        ]
        defaults: dict[str, Any] = {"unit": self.unit, "mappings": list(self.mappings)}
        if self.thresholds:
            steps = [{"value": value, "color": color} for value, color in self.thresholds]
            defaults["thresholds"] = {"mode": "absolute", "steps": steps}
            defaults["color"] = {"mode": "thresholds"}
        if self.kind == "timeseries":
            defaults["custom"] = {"fillOpacity": 5, "showPoints": "never", "spanNulls": False}
        panel = {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.text,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": targets,
            "fieldConfig": {"defaults": defaults, "overrides": list(self.overrides)},
            "options": _OPTIONS[self.kind] | dict(self.options),
        }
        if is_table:
            panel["transformations"] = self._join(targets)
            panel["options"]["sortBy"] = [{"displayName": self.sort_by, "desc": True}]
        return panel

    def _join(self, targets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """One row for each set of labels, with a column for each query."""
        names = {f"Value #{target['refId']}": target["legendFormat"] for target in targets}
        if len(targets) == 1:
            names["Value"] = targets[0]["legendFormat"]
        hidden = {"Time": True, **dict.fromkeys(self.hidden, True)}
        return [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": hidden, "renameByName": names}},
        ]


_OPTIONS: dict[str, dict[str, Any]] = {
    "timeseries": {
        "legend": {
            "displayMode": "table",
            "placement": "right",
            "calcs": ["lastNotNull"],
            "sortBy": "Last *",
            "sortDesc": True,
        },
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "stat": {"colorMode": "value", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}},
    "table": {"footer": {"show": False}},
}
GOOD_IS_ZERO = ((None, "green"), (1, "red"))


def link_to(label: str, title: str, uid: str) -> dict[str, Any]:
    """A link from the column of a label to the dashboard about its value."""
    cluster, value = "var-cluster=${__data.fields.cluster}", f"var-{label}=${{__data.fields.{label}}}"
    link = {"title": title, "url": f"/d/{uid}?var-source=${{source}}&{cluster}&{value}"}
    return {
        "matcher": {"id": "byName", "options": label},
        "properties": [{"id": "links", "value": [link]}],
    }


GROUP_LINK = link_to("group", "This group", "koff-group")
TOPIC_LINK = link_to("topic", "This topic", "koff-topics")


def unit_of(column: str, unit: str) -> dict[str, Any]:
    return {"matcher": {"id": "byName", "options": column}, "properties": [{"id": "unit", "value": unit}]}


def stat(title: str, expr: str, text: str = "", *, width: int = 4, **settings: Any) -> Panel:
    return Panel(title, "stat", {"": expr}, text, width=width, height=4, **settings)


def lines(
    title: str, queries: Mapping[str, str], text: str = "", unit: str = "short", **settings: Any
) -> Panel:
    return Panel(title, "timeseries", queries, text, unit, **settings)


def variable(name: str, query: str, *, many: bool = False) -> dict[str, Any]:
    return {
        "type": "query",
        "name": name,
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
        **({"current": {"text": "All", "value": "$__all"}} if many else {}),
    }


def dashboard(
    uid: str, title: str, panels: Sequence[Panel], variables: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """A dashboard. Panels follow each other from left to right, and then in the next row."""
    built, x, y, row_height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y, row_height = 0, y + row_height, 0
        built.append(panel.build(number, x, y))
        x, row_height = x + panel.width, max(row_height, panel.height)
    return {
        "uid": uid,
        "title": title,
        "tags": ["koff"],
        "schemaVersion": 41,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [
            {
                "type": "dashboards",
                "tags": ["koff"],
                "title": "koff",
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            }
        ],
        "templating": {
            "list": [
                {"type": "datasource", "name": "source", "label": "data source", "query": "prometheus"},
                variable("cluster", "label_values(koff_up, cluster)", many=True),
                *variables,
            ]
        },
        "panels": built,
    }


GROUPS = dashboard(
    "koff-groups",
    "koff: all groups",
    [
        stat(
            "Clusters that koff does not see",
            f"count(max by (cluster) (koff_up{{{IN_CLUSTER}}}) == 0) or vector(0)",
            thresholds=GOOD_IS_ZERO,
        ),
        stat("Groups", f"count(max by (cluster, group) (koff_group_state{{{IN_CLUSTER}}}))"),
        stat(
            "Groups that do not keep up",
            f'count(max by (cluster, group) (koff_group_status{{{IN_CLUSTER},status=~"WARN|ERR"}})) or vector(0)',
            thresholds=GOOD_IS_ZERO,
        ),
        stat("Lag of all groups", f"sum(max by (cluster, group) (koff_group_total_lag{{{IN_CLUSTER}}}))"),
        stat(
            "Longest lag",
            f"max(koff_group_max_lag_seconds{{{IN_CLUSTER}}})",
            "The age of the oldest record that a group has not committed.",
            unit="s",
        ),
        stat(
            "Lags withheld",
            f"sum(max by (cluster, reason) (koff_rows_withheld{{{IN_CLUSTER}}}))",
            "Lags that koff cannot vouch for at present. They are in no sum.",
            thresholds=GOOD_IS_ZERO,
        ),
        Panel(
            "The groups with the longest lag",
            "table",
            {
                "seconds": LONGEST,
                "records": f"max by (cluster, group) (koff_group_total_lag{{{IN_CLUSTER}}}) and {LONGEST}",
                "members": f"max by (cluster, group) (koff_group_members{{{IN_CLUSTER}}}) and {LONGEST}",
                "margin": f"min by (cluster, group) (koff_group_retention_margin_ratio{{{IN_CLUSTER}}}) and {LONGEST}",
            },
            "margin: how much of the log is between the group and the log start. At 0, records are lost.",
            width=24,
            height=12,
            sort_by="seconds",
            overrides=(GROUP_LINK, unit_of("seconds", "s"), unit_of("margin", "percentunit")),
        ),
        lines(
            "Lag in seconds, ten longest",
            {
                "{{cluster}} {{group}}": f"topk(10, max by (cluster, group) (koff_group_max_lag_seconds{{{IN_CLUSTER}}}))"
            },
            unit="s",
        ),
        lines(
            "Lag in records, ten largest",
            {
                "{{cluster}} {{group}}": f"topk(10, max by (cluster, group) (koff_group_total_lag{{{IN_CLUSTER}}}))"
            },
        ),
        lines(
            "Groups by status",
            {
                "{{status}}": f"count by (status) (max by (cluster, group, status) (koff_group_status{{{IN_CLUSTER}}}))"
            },
            "OK, WARN and ERR are Burrow's. UNKNOWN: koff does not know enough yet.",
        ),
        lines(
            "Why groups lag: records by cause",
            {
                "{{cause}}": f"sum by (cause) (max by (cluster, group, cause) (koff_group_cause{{{IN_CLUSTER}}})) or vector(0)"
            },
            "The likely causes, and how much of the lag each explains. A group may have several.",
        ),
        lines(
            "Rebalances in five minutes, ten most",
            {
                "{{cluster}} {{group}}": f"topk(10, max by (cluster, group) (increase(koff_group_rebalances_total{{{IN_CLUSTER}}}[5m])) > 0) or vector(0)"
            },
        ),
    ],
    [],
)
GROUP = dashboard(
    "koff-group",
    "koff: one group",
    [
        Panel(
            "Status",
            "stat",
            {"{{status}}": f"max by (status) (koff_group_status{{{IN_GROUP}}})"},
            width=3,
            height=4,
            options={"textMode": "name"},
        ),
        Panel(
            "State",
            "stat",
            {"{{state}}": f"max by (state) (koff_group_state{{{IN_GROUP}}})"},
            width=3,
            height=4,
            options={"textMode": "name"},
        ),
        stat("Lag", f"max(koff_group_total_lag{{{IN_GROUP}}})", width=3),
        stat("Lag in seconds", f"max(koff_group_max_lag_seconds{{{IN_GROUP}}})", unit="s", width=3),
        stat("Members", f"max(koff_group_members{{{IN_GROUP}}})", width=3),
        stat(
            "Margin to the log start",
            f"min(koff_group_retention_margin_ratio{{{IN_GROUP}}})",
            "1: the group has no lag. 0: records are lost.",
            unit="percentunit",
            width=3,
            thresholds=((None, "red"), (0.2, "green")),
        ),
        stat(
            "Records lost",
            f"max(koff_group_lost_records{{{IN_GROUP}}})",
            "They left the log before the group had committed them.",
            width=3,
            thresholds=GOOD_IS_ZERO,
        ),
        stat(
            "Partitions that do not keep up",
            f"sum(max by (status) (koff_group_partitions_not_ok{{{IN_GROUP}}})) or vector(0)",
            width=3,
            thresholds=GOOD_IS_ZERO,
        ),
        lines(
            "Why it lags: records by cause",
            {"{{cause}}": f"max by (cause) (koff_group_cause{{{IN_GROUP}}}) or vector(0)"},
            "The likely causes, and how much of the lag each explains.",
        ),
        lines("Lag by topic", {"{{topic}}": f"max by (topic) (koff_group_topic_lag{{{IN_GROUP}}})"}),
        lines(
            "Lag in seconds, the twenty longest partitions",
            {
                "{{topic}} {{partition}}": f"topk(20, max by (topic, partition) (koff_group_lag_seconds{{{IN_GROUP}}}))"
            },
            unit="s",
        ),
        lines(
            "Consumed and produced each second",
            {
                "{{topic}} consumed": f"max by (topic) (rate(koff_group_topic_consumed_total{{{IN_GROUP}}}[5m]))",
                "{{topic}} produced": f"max by (topic) (rate(koff_topic_messages_total{{{IN_CLUSTER}}}[5m])) and on (topic) max by (topic) (koff_group_topic_consumed_total{{{IN_GROUP}}})",
            },
            unit="short",
        ),
        lines(
            "Lag in records, the twenty largest partitions",
            {
                "{{topic}} {{partition}}": f"topk(20, max by (topic, partition) (koff_group_lag{{{IN_GROUP}}}))"
            },
        ),
        lines(
            "Members and rebalances",
            {
                "members": f"max(koff_group_members{{{IN_GROUP}}})",
                "rebalances in five minutes": f"max(increase(koff_group_rebalances_total{{{IN_GROUP}}}[5m]))",
            },
        ),
        lines("Commits each second", {"commits": f"max(rate(koff_group_commits_total{{{IN_GROUP}}}[5m]))"}),
        Panel(
            "Partitions",
            "table",
            {
                "records": f"topk(100, max by (topic, partition) (koff_group_lag{{{IN_GROUP}}}))",
                "seconds": f"max by (topic, partition) (koff_group_lag_seconds{{{IN_GROUP}}}) and topk(100, max by (topic, partition) (koff_group_lag{{{IN_GROUP}}}))",
            },
            width=24,
            height=10,
            sort_by="records",
            overrides=(TOPIC_LINK, unit_of("seconds", "s")),
        ),
    ],
    [variable("group", 'label_values(koff_group_state{cluster=~"$cluster"}, group)')],
)
TOPICS = dashboard(
    "koff-topics",
    "koff: topics and partitions",
    [
        stat("Partitions", f"max(koff_topic_partitions{{{IN_TOPIC}}})"),
        stat("Messages each second", f"max(rate(koff_topic_messages_total{{{IN_TOPIC}}}[5m]))", unit="short"),
        stat("Groups that read it", f"count(max by (group) (koff_group_topic_lag{{{IN_TOPIC}}}))"),
        stat("Longest lag", f"max(koff_group_lag_seconds{{{IN_TOPIC}}})", unit="s"),
        lines(
            "Messages each second, ten busiest topics",
            {
                "{{cluster}} {{topic}}": f"topk(10, max by (cluster, topic) (rate(koff_topic_messages_total{{{IN_CLUSTER}}}[5m])))"
            },
            "Of topics that a group reads.",
            width=24,
        ),
        lines(
            "Lag of the groups on this topic",
            {"{{group}}": f"topk(20, max by (group) (koff_group_topic_lag{{{IN_TOPIC}}}))"},
        ),
        lines(
            "Consumed each second, by group, and produced",
            {
                "{{group}}": f"topk(20, max by (group) (rate(koff_group_topic_consumed_total{{{IN_TOPIC}}}[5m])))",
                "produced": f"max(rate(koff_topic_messages_total{{{IN_TOPIC}}}[5m]))",
            },
        ),
        lines(
            "Lag in records, the twenty largest partitions",
            {
                "{{group}} {{partition}}": f"topk(20, max by (group, partition) (koff_group_lag{{{IN_TOPIC}}}))"
            },
        ),
        lines(
            "Lag in seconds, the twenty longest partitions",
            {
                "{{group}} {{partition}}": f"topk(20, max by (group, partition) (koff_group_lag_seconds{{{IN_TOPIC}}}))"
            },
            unit="s",
        ),
        Panel(
            "Topics that groups read",
            "table",
            {
                "lag of all groups": f"topk(100, sum by (cluster, topic) (max by (cluster, group, topic) (koff_group_topic_lag{{{IN_CLUSTER}}})))"
            },
            width=24,
            height=10,
            sort_by="lag of all groups",
            overrides=(TOPIC_LINK,),
        ),
    ],
    [variable("topic", 'label_values(koff_group_topic_lag{cluster=~"$cluster"}, topic)')],
)
KOFF = dashboard(
    "koff-koff",
    "koff: koff itself",
    [
        stat("Clusters ready", f"sum(max by (cluster) (koff_up{{{IN_CLUSTER}}}))"),
        stat(
            "Lags withheld",
            f"sum(max by (cluster, reason) (koff_rows_withheld{{{IN_CLUSTER}}}))",
            thresholds=GOOD_IS_ZERO,
        ),
        stat("Records not read yet", f"sum(max by (cluster) (koff_reader_behind_records{{{IN_CLUSTER}}}))"),
        stat(
            "Held back by a transaction",
            f"max(koff_reader_held_back_seconds{{{IN_CLUSTER}}})",
            unit="s",
            thresholds=((None, "green"), (60, "red")),
        ),
        stat(
            "Records that cannot be decoded",
            f"sum(max by (cluster) (koff_reader_undecodable_total{{{IN_CLUSTER}}}))",
            thresholds=GOOD_IS_ZERO,
        ),
        stat(
            "Series left out",
            f"sum(max by (cluster) (koff_series_left_out{{{IN_CLUSTER}}}))",
            "--max-series leaves them out.",
            thresholds=GOOD_IS_ZERO,
        ),
        lines(
            "Age of what koff knows",
            {"{{cluster}} {{input}}": f"max by (cluster, input) (koff_input_age_seconds{{{IN_CLUSTER}}})"},
            "Above 25 s, what depends on it is withheld. topics: a list each 20 s.",
            unit="s",
        ),
        lines(
            "Lags withheld, by reason",
            {"{{cluster}} {{reason}}": f"max by (cluster, reason) (koff_rows_withheld{{{IN_CLUSTER}}})"},
        ),
        lines(
            "Records read each second",
            {
                "{{cluster}} {{type}}": f"max by (cluster, type) (rate(koff_reader_records_total{{{IN_CLUSTER}}}[5m]))"
            },
        ),
        lines(
            "Requests to brokers each second",
            {
                "{{cluster}} {{kind}}": f"max by (cluster, kind) (rate(koff_requests_total{{{IN_CLUSTER}}}[5m]))"
            },
        ),
        lines("Series", {"{{cluster}}": f"sum by (instance) (koff_series{{{IN_CLUSTER}}})"}),
        lines(
            "Time for a response of /metrics",
            {"{{instance}}": "max by (instance) (koff_render_seconds)"},
            unit="s",
        ),
        lines(
            "Memory",
            {
                "{{instance}}": "max by (instance) (process_resident_memory_bytes and on (instance, job) koff_build_info)"
            },
            unit="bytes",
        ),
        lines(
            "Processor",
            {
                "{{instance}}": "max by (instance) (rate(process_cpu_seconds_total[5m]) and on (instance, job) koff_build_info)"
            },
            "1: a whole processor.",
            unit="percentunit",
        ),
    ],
    [],
)
DASHBOARDS = (GROUPS, GROUP, TOPICS, KOFF)


def render(board: Mapping[str, Any]) -> str:
    """The text of the file of a dashboard."""
    return json.dumps(board, indent=1) + "\n"


if __name__ == "__main__":
    for board in DASHBOARDS:
        (FOLDER / f"{board['uid']}.json").write_text(render(board))
