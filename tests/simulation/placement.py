"""Which partition of an internal topic has a key: Java's hash, written anew, not taken from koff."""

from functools import lru_cache


@lru_cache(maxsize=1 << 12)
def kafka_hash(text: str) -> int:
    """Kafka's `Utils.abs` of Java's `String.hashCode`: the partition is `kafka_hash(key) % partitions`."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for place in range(0, len(units), 2):
        code = (31 * code + (units[place] << 8) + units[place + 1]) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else abs(signed)


def share_key(group: str, topic_id: str, partition: int) -> str:
    """The key by which a share partition finds its partition of `__share_group_state`."""
    return f"{group}:{topic_id}:{partition}"
