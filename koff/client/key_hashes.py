"""Which partition a key belongs to, as Go's, C's and Java's producers compute it.

Programs that write to the same topic must compute alike, or the messages of a key are in several partitions.
"""

import zlib

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_MURMUR_SEED, _MURMUR_PRIME = 0x9747B28C, 0x5BD1E995


def fnv1a_partition(key: bytes | None, partitions: int) -> int:
    """As sarama and kafka-go: the absolute value of FNV-1a, as a signed 32-bit integer, modulo `partitions`.

    For the hash -2^31 Go's producers compute no valid partition, because its absolute value is no int32.
    """
    value = fnv1a_32(key or b"")
    return (value if value < 1 << 31 else (1 << 32) - value) % partitions


def crc32_partition(key: bytes | None, partitions: int) -> int:
    """As librdkafka's partitioner `consistent` and all clients on it: CRC-32 modulo `partitions`."""
    return zlib.crc32(key or b"") % partitions


def murmur2_partition(key: bytes | None, partitions: int) -> int:
    """As Java's producer: the lower 31 bits of murmur2 modulo `partitions`."""
    return (murmur2_32(key or b"") & 0x7FFFFFFF) % partitions


def fnv1a_32(data: bytes) -> int:
    """The 32-bit FNV-1a hash, unsigned (Go's hash/fnv New32a)."""
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value


def murmur2_32(data: bytes) -> int:
    """The 32-bit murmur2 hash with Kafka's seed, unsigned (Kafka's `Utils.murmur2`)."""
    value = _MURMUR_SEED ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MURMUR_PRIME & 0xFFFFFFFF
        word = (word ^ word >> 24) * _MURMUR_PRIME & 0xFFFFFFFF
        value = value * _MURMUR_PRIME & 0xFFFFFFFF ^ word
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * _MURMUR_PRIME & 0xFFFFFFFF
    value = (value ^ value >> 13) * _MURMUR_PRIME & 0xFFFFFFFF
    return value ^ value >> 15
