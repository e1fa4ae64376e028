"""The jars of Kafka and ZooKeeper, fetched once by Maven into a cache folder."""

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
from koff.kafkatest.progress_line import ProgressLine

KAFKA_VERSION = "4.3.1"
# The release of log4j-core that this Kafka depends on. Kafka's poms leave out the binding to slf4j.
LOG4J_VERSION = "2.25.4"
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
_WITHOUT_DEPENDENCIES = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
# Kafka's tools depend on Kafka Connect, and with it on a web server: half of all jars, for nothing here.
_WITHOUT_CONNECT = (
    "<exclusions><exclusion><groupId>org.apache.kafka</groupId>"
    "<artifactId>connect-runtime</artifactId></exclusion></exclusions>"
)
# Maven runs for seconds only: compiling less, it needs half of the CPU time.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def cache_folder() -> Path:
    """`KOFF_CACHE`, or `koff` in the user's cache folder."""
    configured = os.environ.get("KOFF_CACHE")
    if configured:
        return Path(configured).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "koff"


def kafka_jars(version: str = KAFKA_VERSION, progress: Progress | None = None) -> Path:
    """The folder with all jars of Apache Kafka `version`; fetches them by Maven if they are missing.

    If several processes call this at the same time, only one fetches. `progress` gets a line each second
    during the download. Raises `KafkaTestError`, with what to install or to check.
    """
    artifacts = (
        ("org.apache.kafka", "kafka_2.13", version, ""),
        ("org.apache.kafka", "kafka-tools", version, _WITHOUT_CONNECT),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_VERSION, ""),
    )
    dependencies = "".join(_DEPENDENCY.format(*coordinates) for coordinates in artifacts)
    return _ensure_jars(f"kafka-{version}", f"Apache Kafka {version}", dependencies, progress)


def kafka_streams_jars(version: str = KAFKA_VERSION, progress: Progress | None = None) -> Path:
    """The folder with the jar of Kafka Streams, to follow `kafka_jars` on a class path; fetched like them.

    RocksDB is left out, because it is many times the size of the rest: keep state stores in memory.
    """
    dependency = _DEPENDENCY.format("org.apache.kafka", "kafka-streams", version, _WITHOUT_DEPENDENCIES)
    return _ensure_jars(f"kafka-streams-{version}", f"Kafka Streams {version}", dependency, progress)


def zookeeper_jars(version: str = ZOOKEEPER_VERSION, progress: Progress | None = None) -> Path:
    """The folder with all jars that a ZooKeeper server needs; fetched like `kafka_jars`."""
    artifacts = (
        ("org.apache.zookeeper", "zookeeper", version),
        # The server does not start without the next two; its pom leaves them to the distribution.
        ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
        ("org.xerial.snappy", "snappy-java", "1.1.10.7"),
        ("org.slf4j", "slf4j-simple", "2.0.13"),  # the release of slf4j-api that this ZooKeeper depends on
    )
    dependencies = "".join(_DEPENDENCY.format(*coordinates, "") for coordinates in artifacts)
    return _ensure_jars(f"zookeeper-{version}", f"Apache ZooKeeper {version}", dependencies, progress)


def _ensure_jars(name: str, product: str, dependencies: str, progress: Progress | None) -> Path:
    """The folder `name` of the cache, with the jars of `dependencies`; fetches them if they are missing."""
    jars = cache_folder() / name
    if jars.is_dir():
        return jars
    report = progress or (lambda _line: None)
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with _lock_file(jars.with_name(f"{jars.name}.lock"), report):
            if not jars.is_dir():  # another process may have fetched them while this one waited
                _fetch_jars(product, _POM.format(dependencies=dependencies), jars, report)
    except OSError as error:
        raise KafkaTestError(
            f"cannot keep Kafka's jars in {jars.parent} ({error}):"
            " point KOFF_CACHE at a folder that can be written to"
        ) from error
    return jars


@contextlib.contextmanager
def _lock_file(path: Path, report: Progress) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is fetching Kafka's jars, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch_jars(product: str, pom: str, jars: Path, report: Progress) -> None:
    """Fills the folder `jars`, which appears when all jars are in it."""
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaTestError(
            "no 'mvn' found on PATH, and Kafka's jars come through Maven: install it"
            " (Debian and Ubuntu: apt-get install maven)"
        )
    java_command()  # checks Java before the download
    # Maven gets a repository of its own. A download that breaks off leaves it, and the next one resumes.
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
        code = _run_maven(command, log, repository, f"fetching {product}", report)
        if code != 0:
            raise KafkaTestError(_describe_maven_error(product, log))
        # A rename within one file system is atomic: no process sees a folder with half of the jars.
        (work / "libs").rename(jars)
    log.unlink()
    shutil.rmtree(repository, ignore_errors=True)


def _run_maven(command: list[str], log: Path, repository: Path, task: str, report: Progress) -> int:
    """Maven's exit code; reports once a second how much is downloaded."""
    started_at = time.monotonic()
    options = f"{_QUICK_JAVA} {os.environ.get('MAVEN_OPTS', '')}"  # the user's own come last, and win
    with log.open("wb") as output:
        maven = spawn(
            command,
            env={**os.environ, "MAVEN_OPTS": options},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while True:
                jars = [_file_size(path) for path in repository.rglob("*.jar")]
                poms = sum(1 for _ in repository.rglob("*.pom"))
                seconds = time.monotonic() - started_at
                report(f"{task}: {poms} poms, {len(jars)} jars, {sum(jars) / 2**20:.0f} MiB, {seconds:.0f} s")
                try:
                    return maven.wait(timeout=1.0)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            reap(maven)


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # Maven renames a file when its download is complete
        return 0


def _describe_maven_error(product: str, log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()
    errors = [line.removeprefix("[ERROR]").strip() for line in lines if line.startswith("[ERROR]")]
    cause = errors[0] if errors else (lines[-1] if lines else "it printed nothing")
    return (
        f"Maven could not fetch {product}: {cause}. Check the network, and the proxy or mirror"
        f" in Maven's settings.xml, then run this again (the download resumes); Maven's log is {log}"
    )


if __name__ == "__main__":  # `make demo` fetches the jars while pip installs koff's dependencies
    with ProgressLine() as line, contextlib.suppress(KafkaTestError):  # the demo says again what is wrong
        kafka_jars(progress=line)
