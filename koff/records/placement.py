"""Which partition has the records of a group (docs/records-format.md, sections 4.1 and 2)."""


def group_partition(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that has all records of the group.

    `partitions` is the partition count of that topic.
    """
    return _hash_partition(group, partitions)


def share_state_partition(group: str, topic_id: str, partition: int, partitions: int) -> int:
    """The partition of `__share_group_state` that has the group's state for one partition of a topic.

    `topic_id` is in Kafka's notation, of 22 characters. `partitions` is the partition count of
    `__share_group_state`.
    """
    return _hash_partition(f"{group}:{topic_id}:{partition}", partitions)


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 code units, wrapped to a signed 32-bit number."""
    hash_code = 0
    if text.isascii():  # takes a third of the time
        for unit in text.encode():
            hash_code = 31 * hash_code + unit & 0xFFFFFFFF
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass"))
        for low, high in zip(units[::2], units[1::2], strict=True):
            hash_code = (31 * hash_code + (high << 8 | low)) & 0xFFFFFFFF
    return hash_code - (1 << 32) if hash_code >> 31 else hash_code


def _hash_partition(text: str, partitions: int) -> int:
    hash_code = java_hash(text)
    # Java's int has no absolute value of -2**31. Kafka's Utils.abs returns 0 for it.
    return 0 if hash_code == -(1 << 31) else abs(hash_code) % partitions
