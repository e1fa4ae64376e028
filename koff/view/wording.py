"""Names, numbers and durations as sentences for people have them."""

from koff.tracker import ShardSnapshot, Snapshot


def show(name: str) -> str:
    """A name as a sentence can have it."""
    return name if name.isprintable() else ascii(name)


def show_duration(seconds: float) -> str:
    """A duration in its two largest units: `4 min 10 s`."""
    whole = max(0, round(seconds))
    for size, unit, smaller, small_unit in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {small_unit}" if rest else "")
    return f"{whole} s"


def count(number: int, noun: str) -> str:
    """So many of something: `1 member`, `1,204 members`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def measure_silence_s(snapshot: Snapshot, shard: ShardSnapshot, row: int) -> float | None:
    """How long ago the newest commit of the row was made; None if that is unknown."""
    last_ms = int(shard.features.last_ms[row])
    if snapshot.now_ms is None or last_ms <= 0:
        return None
    return max(0.0, (snapshot.now_ms - shard.skew_ms - last_ms) / 1000)
