"""`koff push`: sends the metrics of a running `koff monitor` to a receiver of OTLP, where nothing scrapes."""

import sys
import time
from pathlib import Path

import click
from click import option

from koff.cli.log_lines import set_up_logs
from koff.cli.monitor_client import MonitorClient, ca_option, read_token, url_option
from koff.config.kinds import EXISTING_FILE, number
from koff.errors import KoffError
from koff.logs import get_logger

log = get_logger("push")
_MISSING = "koff push needs OpenTelemetry: pip install 'koff[otlp]'"
_REMIND_S = 60.0


@click.command()
@url_option
@option(
    "--endpoint",
    metavar="URL",
    help="The receiver, such as http://collector:4318/v1/metrics. Otherwise the variables of OpenTelemetry"
    " decide (OTEL_EXPORTER_OTLP_ENDPOINT), also about headers, certificates and compression.",
)
@option(
    "--interval", "interval_s", default=60.0, show_default=True, type=number("SECONDS", 1.0), help="Pause."
)
@option("--once", is_flag=True, help="Send once. The exit code is 1 if that fails.")
@option("--token-file", type=EXISTING_FILE, help="The token for koff monitor.")
@ca_option
def push(
    url: str, endpoint: str | None, interval_s: float, once: bool, token_file: Path | None, ca: Path | None
) -> None:
    """Send the metrics of koff monitor to a receiver of OTLP, every --interval.

    It is a process of its own, so that a slow receiver delays no scrape. What fails is sent again by
    OpenTelemetry's exporter until the next interval, then dropped: the next numbers are newer.

    \b
    Examples:
      koff push --url http://koff:9850 --endpoint http://collector:4318/v1/metrics
      koff push --once --endpoint http://prometheus:9090/api/v1/otlp/v1/metrics
    """
    try:
        from koff.cli.otlp import Pusher
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{_MISSING} ({error})") from error
    set_up_logs(level="info")
    pusher = Pusher(MonitorClient(url, ca), endpoint, interval_s)
    told_s, failures = float("-inf"), 0
    while True:
        began_s = time.monotonic()
        try:
            points = pusher.push(read_token(token_file))
        except KoffError as error:
            if once:
                raise
            failures += 1
            if began_s - told_s >= _REMIND_S:
                log.warning("metrics not sent", error=str(error), failures=failures)
                told_s = began_s
        else:
            if failures or told_s == float("-inf"):
                log.info("metrics sent", points=points, failures=failures)
            told_s, failures = began_s - _REMIND_S, 0
        if once:
            sys.exit(0)
        time.sleep(max(0.0, interval_s - (time.monotonic() - began_s)))
