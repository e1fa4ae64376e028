"""An archive of Kafka's classes in Java's loaded form (class data sharing): halves a broker's start time.

Worth making before many brokers start. Java ignores an archive that does not fit its jars.
"""

import os

from koff.kafkatest.jars import KAFKA_VERSION, kafka_jars
from koff.kafkatest.java import archive_path
from koff.kafkatest.local_kafka import LocalKafka
from koff.kafkatest.progress_line import Progress

_DUMP_S = 120.0
"""How long a stopping JVM may take to write the archive."""


def make_archive(version: str = KAFKA_VERSION, progress: Progress | None = None) -> None:
    """Makes the archive for Kafka `version`; does nothing if there is one.

    It holds the classes that a broker loads while it serves one message to a group of each protocol.
    """
    archive = archive_path(kafka_jars(version, progress))
    if archive.exists():
        return
    if progress:
        progress("preparing Kafka's classes for quick starts (once)")
    # Java writes the archive when it exits. It is renamed when it is complete, so that no other process
    # reads half of it.
    dump = archive.with_suffix(f".{os.getpid()}")
    with LocalKafka(version=version, jvm_options=[f"-XX:ArchiveClassesAtExit={dump}"]) as kafka:
        _serve_one_message(kafka)
        kafka.nodes[0].stop(_DUMP_S)
    if dump.exists():
        dump.replace(archive)


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
