"""`python -m koff.kafkatest` fetches and prepares Kafka's jars before the tests, so that no test waits."""

import sys

from koff.kafkatest.archive import make_archive
from koff.kafkatest.jars import kafka_streams_jars, zookeeper_jars
from koff.kafkatest.java import KafkaTestError
from koff.kafkatest.progress_line import ProgressLine


def main() -> None:
    """Fetches all jars that the test kit uses; exits with an error text when one cannot be fetched."""
    try:
        with ProgressLine() as line:
            make_archive(progress=line)
            kafka_streams_jars(progress=line)
            zookeeper_jars(progress=line)
    except KafkaTestError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
