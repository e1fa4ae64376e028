"""A real S3 server on loopback: versitygw over a folder, and Spark's settings for it."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from koff.kafkatest import free_ports, reap, spawn, wait_until
from koff.kafkatest.jars import cache_folder

VERSITYGW = shutil.which("versitygw") or shutil.which("versitygw", path=str(cache_folder() / "bin"))
"""The server; None if it is not installed."""
MISSING = "needs versitygw on PATH: go install github.com/versity/versitygw/cmd/versitygw@latest"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.4.1"
"""Hadoop's S3 client, of the Hadoop that Spark 4.0 has. With it comes half a gigabyte of Amazon's jars."""
_KEYS = {"access": "koff", "secret": "koff-secret"}
BUCKET = "koff-tests"


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A running server with one bucket. `folder` has the objects as files."""

    endpoint: str
    folder: Path

    @property
    def settings(self) -> Mapping[str, str]:
        """Spark's settings that docs/pipeline.md gives for S3, with this server's address and keys."""
        return {
            "spark.hadoop.fs.s3a.endpoint": f"http://{self.endpoint}",
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": _KEYS["access"],
            "spark.hadoop.fs.s3a.secret.key": _KEYS["secret"],
            "spark.delta.logStore.s3a.impl": "io.delta.storage.S3SingleDriverLogStore",
        }

    def url(self, path: str) -> str:
        """The URL of a path in the bucket, for Spark."""
        return f"s3a://{BUCKET}/{path}"


@contextmanager
def run_object_store(folder: Path) -> Iterator[ObjectStore]:
    """Runs the server over a new folder in `folder`, and makes the bucket."""
    assert VERSITYGW is not None, MISSING
    for name in ("objects", "attributes"):
        (folder / name).mkdir()
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    command = [VERSITYGW, "--port", endpoint, "--quiet", "posix"]
    # With --sidecar, the file system needs no extended attributes.
    command += ["--sidecar", str(folder / "attributes"), str(folder / "objects")]
    keys = {"ROOT_ACCESS_KEY": _KEYS["access"], "ROOT_SECRET_KEY": _KEYS["secret"]}
    with (folder / "server.log").open("wb") as log:
        server = spawn(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **keys})
    try:
        client = fs.S3FileSystem(
            access_key=_KEYS["access"],
            secret_key=_KEYS["secret"],
            endpoint_override=endpoint,
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        wait_until(lambda: _make_bucket(client, server, folder), timeout_s=60, what="the S3 server")
        yield ObjectStore(endpoint, folder / "objects" / BUCKET)
    finally:
        reap(server)


def _make_bucket(client: fs.S3FileSystem, server: subprocess.Popen[bytes], folder: Path) -> bool:
    assert server.poll() is None, (folder / "server.log").read_text()
    try:
        client.create_dir(BUCKET)
    except (OSError, pa.ArrowException):
        return False
    return True
