"""`koff monitor`: watches a cluster and serves the lag of its groups."""

import ctypes
import gc
import os
import signal
from pathlib import Path
from typing import Any

import click

from koff.cli.log_lines import set_up_logs  # before structlog

# isort: split
import structlog

from koff.cli.options import OF_CLUSTERS, clusters_options, read_clusters, setting_options
from koff.config.koff_yaml import ConfigFileError, KoffYaml
from koff.config.monitors import (
    build_metrics_conf,
    build_serve_conf,
    find_refused_properties,
    list_monitors,
    list_webhooks,
)
from koff.config.settings import PROCESS_SETTINGS, SETTINGS
from koff.daemon.daemon import Daemon
from koff.monitor.conf import MonitorConf
from koff.serve.events.webhook_conf import WebhookConf

log = structlog.get_logger(component="config")


@click.command()
@clusters_options
@setting_options(*(name for name, each in SETTINGS.items() if each.option_name and name not in OF_CLUSTERS))
def monitor(config: Path | None, **_: Any) -> None:
    """Watch one or more clusters and serve the lag of all their groups to Prometheus.

    Serves /metrics, /healthz (503 if koff makes no progress and should be restarted) and /readyz (200 once
    the numbers may be trusted, else 503 and the reason). A lag that koff cannot know at present is absent
    from /metrics, and koff_rows_withheld counts it. Stops at SIGTERM or Ctrl-C. With --config, SIGHUP makes
    koff read the file again.

    \b
    Examples:
      koff monitor --brokers localhost:9092
      koff monitor --brokers kafka:9093 --listen :9850 --property-file tls.properties
      KOFF_PROPERTY_SASL_PASSWORD=... koff monitor --brokers kafka:9094 \\
          --property security.protocol=sasl_ssl --property sasl.mechanism=SCRAM-SHA-512 \\
          --property sasl.username=koff
      koff monitor --config koff.yaml
    """
    ctx = click.get_current_context()
    read = _Configuration(ctx)
    return_freed_memory()
    running = Daemon(
        read.read_monitors,
        build_serve_conf(read.began),
        build_metrics_conf(read.began),
        read.read_webhooks,
        read.note_reload,
        read.began.settings["standby_of"],
    )
    # Messages are created by the thousand and hold no cycles: collect rarely, and never scan the modules.
    gc.freeze()
    gc.set_threshold(200_000, 50, 100)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.stop())
    if config is not None:
        signal.signal(signal.SIGHUP, lambda *_: running.reload())
    running.run()


class _Configuration:
    """koff.yaml and the options, read again at each reload. `began` is what they said at the start."""

    def __init__(self, ctx: click.Context) -> None:
        self._ctx = ctx
        self.began, _ = read_clusters(ctx)
        self._set_up_logs(self.began)
        _log_warnings(self.began)

    def read_monitors(self) -> list[MonitorConf]:
        """The configuration of each cluster. Raises `ConfigError`: a reload with an error changes nothing."""
        file, properties = read_clusters(self._ctx)
        monitors = list_monitors(file, properties, shares_state_dir=self._ctx.params["config"] is not None)
        if errors := find_refused_properties(file, monitors):
            raise ConfigFileError(errors)
        return monitors

    def read_webhooks(self) -> list[WebhookConf]:
        """The configuration of each webhook. Raises `ConfigError`."""
        return list_webhooks(read_clusters(self._ctx)[0])

    def note_reload(self) -> None:
        """Takes over how to log, and logs which other changes wait for a restart of koff."""
        file, _ = read_clusters(self._ctx)
        self._set_up_logs(file)
        _log_warnings(file)
        before, now = self.began.settings, file.settings
        waiting = [each.name for each in PROCESS_SETTINGS if each.reload == "never"]
        if changed := [name for name in waiting if before[name] != now[name]]:
            log.warning("some changes take effect when koff is restarted", settings=changed)

    def _set_up_logs(self, file: KoffYaml) -> None:
        set_up_logs(file.settings["log_format"], file.settings["log_level"])


def _log_warnings(file: KoffYaml) -> None:
    for each in file.warnings:
        log.warning(each)


# From malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1536 << 10
"""Larger blocks go back to the system. While a log is read, smaller ones are used again and again, and a
page that comes from the system costs as much as what is done with it."""
_KEPT_BYTES = 8 << 20
"""So much free memory stays with the process at the most, besides what lies between blocks in use."""


def return_freed_memory() -> None:
    """Lets all threads share one arena, and large blocks go back to the system when they are freed.

    By default each thread keeps an arena, and what was freed in it. Call this before threads start. It does
    nothing without glibc, or if the user has set up malloc by `MALLOC_...` or `GLIBC_TUNABLES`.
    """
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
