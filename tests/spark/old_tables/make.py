"""Makes `version-N.tar.gz`: tables as an old koff wrote them in two runs, and its report, `report.json`.

    git worktree add /tmp/old COMMIT
    PYTHONPATH=. python tests/spark/old_tables/make.py N /tmp/old [COPY]

Version 1 is of the parent of d41ebf3, version 2 of b94bc4e. With COPY, the tables are copied to that folder
and Kafka stays until Enter is pressed: for a trial of today's koff.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.clusters import lend_kafka
from tests.spark.old_tables.life import create_topics, live, name_topics

HERE = Path(__file__).parent


def run_old_koff(source: Path, *args: str) -> None:
    """Runs `koff pipeline ARGS` of an old source."""
    command = [sys.executable, "-m", "koff", "pipeline", *args]
    subprocess.run(command, cwd=source, env={**os.environ, "PYTHONPATH": str(source)}, check=True)


def pack(folder: Path, target: Path) -> None:
    """Packs a folder without checksums of Hadoop, the same way each time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".crc":
                tar.add(path, path.relative_to(folder).as_posix(), filter=_forget_owner)
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def _forget_owner(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    return info


def main(version: int, source: Path) -> None:
    """Two runs of the old koff, and its report."""
    with lend_kafka() as kafka, tempfile.TemporaryDirectory() as folder:
        tables = Path(folder) / "tables"
        create_topics(kafka, version)
        where = ("--tables", str(tables))
        for step in (0, 1):
            live(kafka, version, step)
            cluster = ("--brokers", kafka.bootstrap, "--cluster-name", "c")
            topic = ("--offsets-topic", name_topics(version)[0])
            run_old_koff(source, "run", *cluster, *topic, *where, "--once")
        out = ("--format", "json", "--out", str(Path(folder) / "report.json"))
        run_old_koff(source, "report", *where, "--from", "-1h", *out)
        pack(Path(folder), HERE / f"version-{version}.tar.gz")
        if len(sys.argv) > 3:
            shutil.copytree(tables, sys.argv[3])
            input(f"{kafka.bootstrap} {name_topics(version)}: press Enter to end")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
