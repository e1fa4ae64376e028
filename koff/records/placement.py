"""Which partition a group's records are in (docs/records-format.md 4.1 and 2)."""


def group_partition(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that all records of the group are in, of so many."""
    return _place(group, partitions)


def share_partition(group: str, topic_id: str, partition: int, partitions: int) -> int:
    """The partition of `__share_group_state` that says what the group read of the topic's `partition`.

    `topic_id` is spelt as Kafka does, in 22 characters.
    """
    return _place(f"{group}:{topic_id}:{partition}", partitions)


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, wrapped to a signed 32-bit number."""
    found = 0
    if text.isascii():  # a third of the time
        for unit in text.encode():
            found = 31 * found + unit & 0xFFFFFFFF
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass"))
        for low, high in zip(units[::2], units[1::2], strict=True):
            found = (31 * found + (high << 8 | low)) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found


def _place(text: str, partitions: int) -> int:
    """Kafka's Utils.abs makes 0 of the one number whose absolute value Java has not."""
    hashed = java_hash(text)
    return 0 if hashed == -(1 << 31) else abs(hashed) % partitions
