"""The history of end offsets, saved and restored in another process."""

import numpy as np

from koff.lag import UNKNOWN, Curves
from koff.lag.end_history import TICK_MS
from koff.tracker.saved_state import State, compact_codes, expand_codes
from koff.tracker.topic_partitions import PartitionTable

_POINTS = {"count": "count", "offset": "offsets", "tick": "ticks", "gap": "gaps", "live": "live"}
"""The saved columns of the points of all curves, and their names in `Curves`."""


def save_ends(table: PartitionTable, now_ms: int | None = None) -> State:
    """A copy of the end offset history of all partitions, for `restore_ends`.

    `now_ms` is the present time by the clock of the samples. With it, another clock can be used later.
    """
    rows = table.list_in_history()
    rows = rows[table.history.newest_ends(rows) != UNKNOWN]  # those with a sample
    curves = table.history.save(rows)
    if curves is None:
        return State({"topic_names": []}, {})
    columns = table.numbers.columns
    names, topic = compact_codes(columns.topic[rows], table.numbers.topics)
    return State(
        {"topic_names": names, "epoch_ms": curves.epoch_ms, "tick": curves.tick, "saved_at_ms": now_ms},
        {
            "topic_id": np.array([table.topic_ids.find(name) for name in names], np.int64),
            "topic": topic,
            "partition": columns.partition[rows],
        }
        | {name: getattr(curves, field) for name, field in _POINTS.items()},
    )


def restore_ends(
    table: PartitionTable, state: State, *, now_ms: int | None = None, pause_ms: int | None = None
) -> str | None:
    """Restores the history from `save_ends`. Returns why not, or None.

    `now_ms` is the present time by the clock of the samples to come. `pause_ms` is how long ago the state
    was saved; with it, the saved times are converted to that clock, whatever clock they are by. Without
    `pause_ms`, they must be by the same clock. A history whose newest sample is in the future is not
    restored: the pause since then is unknown, so each of its ages is, and `add_past_ends` can fill a new
    history within seconds. Without `now_ms`, no time is checked.

    The history of a topic is left out if the topic has another id by now: it was created again. If its
    present id is not known yet, `identify_topics` drops that history later.

    Raises ValueError if an end offset was sampled before.
    """
    facts, columns = state.facts, state.columns
    if not columns:
        return None
    epoch_ms = facts["epoch_ms"]
    if now_ms is not None and pause_ms is not None and facts["saved_at_ms"] is not None:
        epoch_ms += now_ms - pause_ms - facts["saved_at_ms"]
    if now_ms is not None and epoch_ms + facts["tick"] * TICK_MS > now_ms:
        return "its newest end offset is of a time that is in the future"
    names = facts["topic_names"]
    saved_ids = zip(names, columns["topic_id"].tolist(), strict=True)
    same = {name: id_ for name, id_ in saved_ids if table.topic_ids.find(name) in (0, id_)}
    curves = Curves(epoch_ms, facts["tick"], **{field: columns[name] for name, field in _POINTS.items()})
    # Numbers are valid in one process only: the saved names get new numbers.
    kept = np.flatnonzero(np.array([name in same for name in names], np.bool_)[columns["topic"]])
    codes = expand_codes(names, columns["topic"][kept], table.numbers.topics)
    rows = table.numbers.assign(codes, columns["partition"][kept])
    table.history.restore(rows, curves if len(kept) == len(columns["topic"]) else curves.select(kept))
    table.topic_ids.restore(same)
    return None
