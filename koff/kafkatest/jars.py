"""The jars of Kafka and ZooKeeper, fetched once into a cache folder.

`jar_lists` has the jars of each version, so nothing is resolved at run time. `.ci/kafka_jars.py` writes them.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from koff.kafkatest.jar_download import Jar, fetch_jars
from koff.kafkatest.java import KafkaTestError, java_command
from koff.kafkatest.progress_line import Progress

KAFKA_VERSION = "4.3.1"
ZOOKEEPER_VERSION = "3.9.4"

_LISTS = Path(__file__).with_name("jar_lists")


def cache_folder() -> Path:
    """`KOFF_CACHE`, or `koff` in the user's cache folder."""
    configured = os.environ.get("KOFF_CACHE")
    if configured:
        return Path(configured).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "koff"


def kafka_jars(version: str = KAFKA_VERSION, progress: Progress | None = None) -> Path:
    """The folder with all jars of Apache Kafka `version`; fetches them if they are missing.

    If several processes call this at the same time, only one fetches. `progress` gets a line twice a second
    during the download. Raises `KafkaTestError`, with what to install or to check.
    """
    return _ensure_jars(f"kafka-{version}", f"Apache Kafka {version}", progress)


def kafka_streams_jars(version: str = KAFKA_VERSION, progress: Progress | None = None) -> Path:
    """The folder with the jar of Kafka Streams, to follow `kafka_jars` on a class path; fetched like them.

    RocksDB is left out, because it is many times the size of the rest: keep state stores in memory.
    """
    return _ensure_jars(f"kafka-streams-{version}", f"Kafka Streams {version}", progress)


def zookeeper_jars(version: str = ZOOKEEPER_VERSION, progress: Progress | None = None) -> Path:
    """The folder with all jars that a ZooKeeper server needs; fetched like `kafka_jars`."""
    return _ensure_jars(f"zookeeper-{version}", f"Apache ZooKeeper {version}", progress)


def _ensure_jars(name: str, product: str, progress: Progress | None) -> Path:
    """The folder `name` of the cache, with the jars of the list of this name; fetches what is missing."""
    jars = cache_folder() / name
    if jars.is_dir():
        return jars
    report = progress or (lambda _line: None)
    listed = _read_list(name, jars)
    java_command()  # checks Java before the download
    try:
        jars.parent.mkdir(parents=True, exist_ok=True)
        with _lock_file(jars.with_name(f"{name}.lock"), report):
            if not jars.is_dir():  # another process may have fetched them while this one waited
                fetch_jars(listed, jars, lambda text: report(f"fetching {product}: {text}"))
    except OSError as error:
        raise KafkaTestError(
            f"cannot keep Kafka's jars in {jars.parent} ({error}):"
            " point KOFF_CACHE at a folder that can be written to"
        ) from error
    return jars


def _read_list(name: str, folder: Path) -> list[Jar]:
    """The jars of `jar_lists/NAME.txt`. `folder` is where a user may put those of another version."""
    path = _LISTS / f"{name}.txt"
    if not path.exists():
        known = ", ".join(sorted(path.stem for path in _LISTS.glob("*.txt")))
        raise KafkaTestError(
            f"koff has no list of the jars of {name}, only of {known}:"
            f" take one of these, or copy the jars of the folder libs of its distribution to {folder}"
        )
    return [Jar.parse(line) for line in path.read_text().splitlines()]


@contextlib.contextmanager
def _lock_file(path: Path, report: Progress) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is fetching Kafka's jars, waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
