"""`python -m koff.kafkatest` fetches and prepares Kafka's jars, so that no test has to wait for them."""

import sys

from koff.kafkatest.archive import make_archive
from koff.kafkatest.jars import kafka_streams_jars, zookeeper_jars
from koff.kafkatest.java import KafkaTestError
from koff.kafkatest.progress_line import ProgressLine


def main() -> None:
    try:
        with ProgressLine() as line:
            make_archive(progress=line)
            kafka_streams_jars(progress=line)
            zookeeper_jars(progress=line)
    except KafkaTestError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
