"""Kafka's own jars, fetched once by Maven into a cache folder."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from koff.kafkatest.guard import reap, spawn
from koff.kafkatest.java import KafkaTestError, java_command

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = (
    "2.25.4"  # the release of log4j-core that this Kafka brings; its poms leave out the slf4j binding
)
ZOOKEEPER_VERSION = "3.9.4"

Progress = Callable[[str], None]

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>koff</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"""
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def cache_folder() -> Path:
    """`KOFF_CACHE`, or `koff` in the user's cache folder."""
    named = os.environ.get("KOFF_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "koff"


def kafka_jars(version: str = KAFKA_VERSION, progress: Progress | None = None) -> Path:
    """The folder with all jars of Apache Kafka `version`; fetched by Maven if it is not there yet.

    Two processes that ask at once fetch once. `progress` gets a line a second while it lasts.
    Raises `KafkaTestError` that says what is missing and what to do.
    """
    wanted = (
        ("org.apache.kafka", "kafka_2.13", version),
        ("org.apache.kafka", "kafka-tools", version),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION),
    )
    dependencies = "".join(_DEPENDENCY.format(*coordinates, "") for coordinates in wanted)
    return _cached(f"kafka-{version}", f"Apache Kafka {version}", dependencies, progress)


def kafka_streams_jars(version: str = KAFKA_VERSION, progress: Progress | None = None) -> Path:
    """The folder with the jar of Kafka Streams, to follow `kafka_jars` on a class path; fetched as they are.

    RocksDB is left out, being many times the size of the rest: keep state stores in memory.
    """
    dependency = _DEPENDENCY.format("org.apache.kafka", "kafka-streams", version, _ALONE)
    return _cached(f"kafka-streams-{version}", f"Kafka Streams {version}", dependency, progress)


def zookeeper_jars(version: str = ZOOKEEPER_VERSION, progress: Progress | None = None) -> Path:
    """The folder with all jars that a ZooKeeper server needs; fetched as Kafka's are."""
    wanted = (
        ("org.apache.zookeeper", "zookeeper", version),
        ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),  # the server does not start without either,
        ("org.xerial.snappy", "snappy-java", "1.1.10.7"),  # and its pom leaves them to the distribution
        ("org.slf4j", "slf4j-simple", "2.0.13"),  # the release of slf4j-api that this ZooKeeper brings
    )
    dependencies = "".join(_DEPENDENCY.format(*coordinates, "") for coordinates in wanted)
    return _cached(f"zookeeper-{version}", f"Apache ZooKeeper {version}", dependencies, progress)


def _cached(name: str, what: str, dependencies: str, progress: Progress | None) -> Path:
    """The folder `name` of the cache, with the jars of `dependencies`."""
    jars = cache_folder() / name
    if jars.is_dir():
        return jars
    say = progress or (lambda _line: None)
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with _locked(jars.with_name(f"{jars.name}.lock"), say):
            if not jars.is_dir():
                _fetch(what, _POM.format(dependencies=dependencies), jars, say)
    except OSError as error:
        raise KafkaTestError(
            f"cannot keep Kafka's jars in {jars.parent} ({error}):"
            " point KOFF_CACHE at a folder that can be written to"
        ) from error
    return jars


@contextlib.contextmanager
def _locked(path: Path, say: Progress) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is fetching Kafka's jars, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(what: str, pom: str, jars: Path, say: Progress) -> None:
    """Fills `jars` in one step: whoever sees the folder sees all of it."""
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaTestError(
            "no 'mvn' found on PATH, and Kafka's jars come through Maven: install it"
            " (Debian and Ubuntu: apt-get install maven)"
        )
    java_command()
    # A repository of our own, kept when the download breaks off, so that the next try goes on from there.
    repository = jars.with_name(f"{jars.name}.m2")
    with tempfile.TemporaryDirectory(prefix=f"{jars.name}.", dir=jars.parent) as folder:
        work = Path(folder)
        (work / "pom.xml").write_text(pom)
        command = [maven, "-B", "-ntp", f"-Dmaven.repo.local={repository}", "-f", str(work / "pom.xml")]
        command += [
            "dependency:copy-dependencies",
            f"-DoutputDirectory={work / 'libs'}",
            "-DincludeScope=runtime",
        ]
        log = jars.with_name(f"{jars.name}.log")
        code = _run(command, log, repository, f"fetching {what}", say)
        if code != 0:
            raise KafkaTestError(_why_maven_failed(what, log))
        (work / "libs").rename(jars)
    log.unlink()
    shutil.rmtree(repository, ignore_errors=True)


def _run(command: list[str], log: Path, repository: Path, what: str, say: Progress) -> int:
    """Maven's exit code; `say` hears once a second how much is there."""
    began = time.monotonic()
    with log.open("wb") as output:
        maven = spawn(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            while True:
                jars = [_size(path) for path in repository.rglob("*.jar")]
                poms = sum(1 for _ in repository.rglob("*.pom"))
                seconds = time.monotonic() - began
                say(f"{what}: {poms} poms, {len(jars)} jars, {sum(jars) / 2**20:.0f} MiB, {seconds:.0f} s")
                try:
                    return maven.wait(timeout=1.0)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            reap(maven)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # Maven renames what it has finished
        return 0


def _why_maven_failed(what: str, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if line.startswith("[ERROR]")]
    cause = errors[0] if errors else (lines[-1] if lines else "it said nothing")
    return (
        f"Maven could not fetch {what}: {cause}. Check the network, and the proxy or mirror"
        f" in Maven's settings.xml, then run this again (it goes on where it stopped); Maven's log is {log}"
    )
