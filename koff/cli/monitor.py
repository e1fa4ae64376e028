"""`koff monitor`: watches a cluster and serves the lag of its groups."""

from __future__ import annotations

import gc
import signal
from pathlib import Path
from typing import Any

import click

from koff.cli.malloc import return_freed_memory
from koff.cli.options import (
    FiniteRange,
    Parsed,
    clusters_options,
    logging_options,
    option,
    read_clusters,
    set_up_logs,
    source_option,
    zookeeper_option,
)
from koff.config.keys import GROUP_LABELS, LONGEST_S, MOST, RULE, SHARD
from koff.config.koff_yaml import ConfigFileError
from koff.config.monitors import (
    build_metrics_conf,
    build_serve_conf,
    find_refused_properties,
    find_setting,
    list_monitors,
)
from koff.config.webhooks import list_webhooks
from koff.daemon.daemon import Daemon
from koff.monitor.conf import MonitorConf


@click.command()
@clusters_options
@option(
    "--listen",
    default="127.0.0.1:9850",
    metavar="HOST:PORT",
    help="The address to serve on; :9850 is all IPv4 and IPv6 addresses.",
)
@option(
    "--web.config.file",
    "web_config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default=False,
    metavar="FILE",
    help="A web configuration file of Prometheus: TLS, users with passwords, headers of responses.",
)
@option(
    "--tokens-file",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default=False,
    metavar="FILE",
    help="A file with bearer tokens, NAME TOKEN in each line.",
)
@option(
    "--tokens-for",
    type=click.Choice(["api", "all"]),
    default="api",
    help="The paths that need a token: those of the API, or all.",
)
@option(
    "--end-offset-interval",
    default=5.0,
    type=FiniteRange(0.1, LONGEST_S),
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
    help="Save the state in this folder every 30 s, so that the next start can resume from it. With "
    "--config, each cluster has a folder of its own in it.",
)
@option(
    "--wait", is_flag=True, help="Keep trying if the brokers cannot be reached at the start (for sidecars)."
)
@option(
    "--shard",
    type=Parsed(SHARD, "I/N"),
    show_default=False,
    help="Read only every N-th partition of the offsets topic, from I on (0 to N - 1): N processes with the "
    "same N share the groups among them.",
)
@option(
    "--group",
    show_default=False,
    metavar="NAME",
    help="Show only this group (exactly this name), and read only its partition of the offsets topic: for "
    "sidecars.",
)
@source_option
@zookeeper_option
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
    type=Parsed(RULE, "RULE"),
    multiple=True,
    show_default=False,
    help="Show only these groups: REGEX, or exclude:REGEX. Repeat it: the first that matches decides.",
)
@option(
    "--topics",
    type=Parsed(RULE, "RULE"),
    multiple=True,
    show_default=False,
    help="Show only commits to these topics. Totals are over what is shown.",
)
@option(
    "--watch-topics",
    type=click.Choice(["read", "all"]),
    default="read",
    help="Sample the end and log start offsets of topics that groups read, or of all topics.",
)
@option(
    "--log-sizes",
    is_flag=True,
    help="Read the sizes of logs from the brokers, every minute (needs DESCRIBE on the cluster).",
)
@option(
    "--group-labels",
    type=Parsed(GROUP_LABELS, "REGEX"),
    multiple=True,
    show_default=False,
    help="Labels for series of a group, from its name: '^(?P<team>[^.]+)' gives the label team. Repeat it: "
    "the first that is found decides.",
)
@option(
    "--max-series",
    type=click.IntRange(1, MOST),
    show_default=False,
    metavar="N",
    help="Serve so many series of groups and topics of each cluster at most: those with the largest lags.",
)
@option(
    "--compat",
    type=click.Choice(["kminion", "kafka_exporter"]),
    multiple=True,
    show_default=False,
    help="Serve also the metric families of this exporter, under their names and labels. Repeatable.",
)
@logging_options
def monitor(config: Path | None, **_: Any) -> None:
    """Watch one or more clusters and serve the lag of all their groups to Prometheus.

    Serves /metrics, /healthz (503 if koff makes no progress and should be restarted) and /readyz (200 once
    the numbers may be trusted, else 503 and the reason). A lag that koff cannot know at present is absent
    from /metrics, and koff_rows_withheld counts it. Stops at SIGTERM or Ctrl-C. With --config, SIGHUP makes
    koff read the file again.

    \b
    Examples:
      koff monitor --brokers localhost:9092
      koff monitor --brokers kafka:9093 --listen :9850 --wait --property-file tls.properties
      KOFF_PROPERTY_SASL_PASSWORD=... koff monitor --brokers kafka:9094 \\
          --property security.protocol=sasl_ssl --property sasl.mechanism=SCRAM-SHA-512 \\
          --property sasl.username=koff
      koff monitor --config koff.yaml
    """
    ctx = click.get_current_context()
    file, _ = read_clusters(ctx)
    set_up_logs(find_setting(file, "log_format"), find_setting(file, "log_level"))
    return_freed_memory()

    def read() -> list[MonitorConf]:
        file, properties = read_clusters(ctx)
        monitors = list_monitors(file, properties, shares_state_dir=config is not None)
        if errors := find_refused_properties(file, monitors):  # here: a reload with an error changes nothing
            raise ConfigFileError(errors)
        return monitors

    running = Daemon(
        read,
        build_serve_conf(file),
        build_metrics_conf(file),
        lambda: list_webhooks(read_clusters(ctx)[0]),
    )
    # Messages are created by the thousand and hold no cycles: collect rarely, and never scan the modules.
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.stop())
    if config is not None:
        signal.signal(signal.SIGHUP, lambda *_: running.reload())
    running.run()
