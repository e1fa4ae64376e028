"""An archive of Kafka's classes in Java's loaded form (class data sharing): halves a broker's start time.

Worth making before many brokers start. Java ignores an archive that does not fit its jars.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from koff.kafkatest.guard import reap, spawn
from koff.kafkatest.jars import KAFKA_VERSION, kafka_jars
from koff.kafkatest.java import archive_path, java_command, quick_options
from koff.kafkatest.local_kafka import LocalKafka
from koff.kafkatest.progress_line import Progress

_DUMP_S = 120.0
_LOWEST_PRIORITY = 19


def make_archive(version: str = KAFKA_VERSION, progress: Progress | None = None) -> None:
    """Makes the archive for Kafka `version`; does nothing if there is one.

    It holds the classes that a broker loads while it serves one message to a group of each protocol.
    """
    if archive_path(kafka_jars(version, progress)).exists():
        return
    if progress:
        progress("preparing Kafka's classes for quick starts (once)")
    with LocalKafka(version=version) as kafka:
        _serve_one_message(kafka)
        with making_archive(kafka) as dump, suppress(subprocess.TimeoutExpired):
            if dump:
                dump.wait(_DUMP_S)


@contextmanager
def making_archive(kafka: LocalKafka) -> Iterator["subprocess.Popen[bytes] | None"]:
    """Makes the archive in the background, of the classes that the first broker has loaded until now.

    Yields the process, or None if there is an archive. If the process has not ended when `with` ends, there
    is no archive.
    """
    node, archive = kafka.nodes[0], archive_path(kafka.jars)
    if archive.exists():
        yield None
        return
    written = node.folder / archive.name
    options = [
        "-Xshare:dump",
        f"-XX:SharedClassListFile={node.class_list}",
        f"-XX:SharedArchiveFile={written}",
    ]
    command = [java_command(), *quick_options(), *options, "-cp", f"{kafka.jars}/*"]
    dump = spawn(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, dump.pid, _LOWEST_PRIORITY)
    try:
        yield dump
    finally:
        if reap(dump) == 0:
            _keep(written, archive)


def _keep(written: Path, archive: Path) -> None:
    """Copies the archive into the cache. It is renamed when it is complete: no process reads half of it."""
    copied = archive.with_suffix(f".{os.getpid()}")
    with suppress(OSError):  # a cache that may not be written to
        shutil.copyfile(written, copied)
        copied.replace(archive)


def _serve_one_message(kafka: LocalKafka) -> None:
    topic = kafka.create_topic()
    producer = kafka.producer()
    producer.produce(topic, b"value")
    producer.flush(10)
    for protocol in ("classic", "consumer"):
        consumer = kafka.consumer(f"{protocol}-group", {"group.protocol": protocol})
        consumer.subscribe([topic])
        if consumer.consume(1, 10):
            consumer.commit(asynchronous=False)
        consumer.close()
