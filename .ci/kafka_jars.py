"""Writes koff/kafkatest/jar_lists: the jars of each version of Kafka and ZooKeeper, as Maven resolves them.

    python3 .ci/kafka_jars.py FOLDER            # `make lock-jars`; Maven copies the jars below FOLDER

A list has a line for each jar: its SHA-256, its size in bytes, and its path in a repository. To support
another version, add it below.
"""

import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

LISTS = Path(__file__).parents[1] / "koff/kafkatest/jar_lists"
KAFKAS = ("2.8.2", "3.3.2", "3.6.2", "3.9.1", "4.1.1", "4.3.1")
STREAMS, ZOOKEEPER = "4.3.1", "3.9.4"

POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>koff</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
)
EXCLUDE = "<exclusions><exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion></exclusions>"
# Kafka's tools depend on Kafka Connect, and with it on a web server: half of all jars, for nothing here.
WITHOUT_CONNECT = EXCLUDE.format("org.apache.kafka", "connect-runtime")
# RocksDB is many times the size of the rest of Kafka Streams.
WITHOUT_DEPENDENCIES = EXCLUDE.format("*", "*")


def kafka(version: str) -> tuple[tuple[str, ...], ...]:
    return (
        ("org.apache.kafka", "kafka_2.13", version, ""),
        ("org.apache.kafka", "kafka-tools", version, WITHOUT_CONNECT),
        # The release of log4j-core that Kafka depends on. Kafka's poms leave out the binding to slf4j.
        ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", ""),
    )


PRODUCTS = {
    **{f"kafka-{version}": kafka(version) for version in KAFKAS},
    f"kafka-streams-{STREAMS}": (("org.apache.kafka", "kafka-streams", STREAMS, WITHOUT_DEPENDENCIES),),
    f"zookeeper-{ZOOKEEPER}": (
        ("org.apache.zookeeper", "zookeeper", ZOOKEEPER, ""),
        # The server does not start without the next two; its pom leaves them to the distribution.
        ("io.dropwizard.metrics", "metrics-core", "4.1.12.1", ""),
        ("org.xerial.snappy", "snappy-java", "1.1.10.7", ""),
        (
            "org.slf4j",
            "slf4j-simple",
            "2.0.13",
            "",
        ),  # the release of slf4j-api that this ZooKeeper depends on
    ),
}


def fetch(dependencies: tuple[tuple[str, ...], ...], folder: Path, local: Path) -> None:
    """Has Maven copy the jars of `dependencies` into `folder`; `local` is its local repository."""
    with tempfile.TemporaryDirectory() as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(POM.format("".join(DEPENDENCY.format(*each) for each in dependencies)))
        command = ["mvn", "-B", "-q", "-ntp", f"-Dmaven.repo.local={local}", "-f", str(pom)]
        command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        command += ["-Dmdep.useRepositoryLayout=true", f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, timeout=1200)


def list_jars(folder: Path) -> str:
    lines = []
    for jar in sorted(folder.rglob("*.jar")):
        content = jar.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        lines.append(f"{digest} {len(content)} {jar.relative_to(folder).as_posix()}\n")
    return "".join(lines)


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory() as local:
        for name, dependencies in PRODUCTS.items():
            fetch(dependencies, folder / name, Path(local))
            (LISTS / f"{name}.txt").write_text(list_jars(folder / name))


if __name__ == "__main__":
    main()
