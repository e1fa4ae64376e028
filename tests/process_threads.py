"""The threads of this process, those of librdkafka too."""

import os

from koff.kafkatest import wait_until


def count_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def wait_for_threads(most: int) -> None:
    """Returns when there are at most `most`. Threads end a little after they have given their result."""
    wait_until(lambda: count_threads() <= most, what=f"at most {most} threads")
