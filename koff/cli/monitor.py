"""`koff monitor`: watches a cluster and serves the lag of its groups."""

from __future__ import annotations

import gc
import re
import signal
from pathlib import Path

import click

from koff.cli.malloc import return_freed_memory
from koff.cli.options import (
    FiniteRange,
    build_cluster_conf,
    cluster_options,
    exact_option,
    logging_options,
    option,
    set_up_logs,
    source_option,
    zookeeper_option,
)
from koff.errors import ConfigError
from koff.monitor.conf import MonitorConf
from koff.monitor.plan import Source, Way
from koff.monitor.run import Monitor
from koff.monitor.zookeeper import ZooKeeperConf
from koff.serve import Granularity, MetricsConf, Rule, ServeConf


@click.command()
@cluster_options
@option(
    "--listen",
    default="127.0.0.1:9850",
    metavar="HOST:PORT",
    help="The address to serve on; :9850 is all IPv4 and IPv6 addresses.",
)
@option(
    "--cluster-name",
    default="",
    help="The value of the label `cluster`.  [default: the id of the cluster]",
    show_default=False,
)
@option(
    "--end-offset-interval",
    default=5.0,
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    help="How often to sample the end offsets of all partitions.",
)
@option(
    "--start",
    "way",
    type=click.Choice(["snapshot", "replay", "resume"]),
    default=None,
    show_default=False,
    help="How to start. snapshot: ask the coordinators, then read the history from the log in the background "
    "(needs DESCRIBE on the groups). replay: read the whole log first. resume: continue from --state-dir.  "
    "[default: resume with --state-dir, else snapshot]",
)
@option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Save the state in this folder every 30 s, so that the next start can resume from it.",
)
@option(
    "--wait", is_flag=True, help="Keep trying if the brokers cannot be reached at the start (for sidecars)."
)
@source_option
@exact_option
@zookeeper_option
@option(
    "--exact-time-lag-rate",
    default=50,
    type=click.IntRange(min=1),
    metavar="N",
    help="The highest number of records per second to read for --exact-time-lag.",
)
@option(
    "--families",
    multiple=True,
    metavar="NAMES",
    default=("default",),
    help="The metric families to serve, separated by commas: names of docs/metrics.md, `default`, or `all`.",
)
@option(
    "--granularity",
    type=click.Choice(["partition", "topic", "group"]),
    default="partition",
    help="The finest series to serve: of each partition, of the topics of a group, or of groups.",
)
@option(
    "--groups",
    multiple=True,
    metavar="RULE",
    help="Serve only series of these groups: REGEX, or exclude:REGEX. Repeat it: the first that matches "
    "decides.",
)
@option("--topics", multiple=True, metavar="RULE", help="The same for topics. Totals are over all topics.")
@option(
    "--max-series",
    type=click.IntRange(min=1),
    metavar="N",
    help="Serve so many series of groups and topics at most: those with the largest lags.",
)
@logging_options
def monitor(
    brokers: str,
    properties: tuple[str, ...],
    property_file: str | None,
    offsets_topic: str,
    listen: str,
    cluster_name: str,
    end_offset_interval: float,
    way: Way | None,
    state_dir: Path | None,
    wait: bool,
    source: Source,
    exact_time_lag: re.Pattern[str] | None,
    zookeeper: str,
    exact_time_lag_rate: int,
    families: tuple[str, ...],
    granularity: Granularity,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    max_series: int | None,
    log_format: str,
    log_level: str,
) -> None:
    """Watch a cluster and serve the lag of all its groups to Prometheus.

    Serves /metrics, /healthz (503 if koff makes no progress and should be restarted) and /readyz (200 once
    the numbers may be trusted, else 503 and the reason). A lag that koff cannot know at present is absent
    from /metrics, and koff_rows_withheld counts it. Stops at SIGTERM or Ctrl-C.

    \b
    Examples:
      koff monitor --brokers localhost:9092
      koff monitor --brokers kafka:9093 --listen :9850 --wait --property-file tls.properties
      KOFF_PROPERTY_SASL_PASSWORD=... koff monitor --brokers kafka:9094 \\
          --property security.protocol=sasl_ssl --property sasl.mechanism=SCRAM-SHA-512 \\
          --property sasl.username=koff
    """
    set_up_logs(log_format, log_level)
    if way == "resume" and state_dir is None:
        raise ConfigError("--start resume needs --state-dir: name the folder with the saved state")
    return_freed_memory()
    running = Monitor(
        MonitorConf(
            cluster=build_cluster_conf(brokers, properties, property_file),
            cluster_name=cluster_name,
            wait=wait,
            start=way or ("resume" if state_dir else "snapshot"),
            source=source,
            state_dir=state_dir,
            offsets_topic=offsets_topic,
            end_interval_s=end_offset_interval,
            exact_groups=exact_time_lag,
            exact_per_s=exact_time_lag_rate,
            serve=ServeConf(listen),
            metrics=MetricsConf(
                families=tuple(",".join(families).replace(",", " ").split()),
                granularity=granularity,
                groups=tuple(map(Rule.parse, groups)),
                topics=tuple(map(Rule.parse, topics)),
                max_series=max_series,
            ),
            zookeeper=ZooKeeperConf(zookeeper),
        )
    )
    # Messages are created by the thousand and hold no cycles: collect rarely, and never scan the modules.
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.stop())
    running.run()
