"""A shard saved, and restored in another process. Commits from share state are left out."""

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN
from koff.tracker.groups import GroupTable
from koff.tracker.registry import Registry
from koff.tracker.row_index import Ints
from koff.tracker.saved_state import State, compact_codes
from koff.tracker.shard import Shard

_SAVED = ("committed", "committed_at", "topic_id", "seen_at")
"""The columns that are saved as they are. All others follow from these, from names, or from windows."""


def save_shard(registry: Registry, shard: Shard) -> State:
    """A copy of the shard's state for `restore_shard`."""
    names, partitions, rows = registry.names, registry.partitions.numbers.columns, shard.rows
    own = rows.list_live()
    own = own[~_is_elsewhere(shard, own)]
    # Codes and partition numbers are of this process: save names in their place.
    numbers = rows.partition[own]
    group_names, group = compact_codes(rows.group[own], names.groups)
    topic_names, topic = compact_codes(partitions.topic[numbers], names.topics)
    return State(
        {"groups": shard.groups.to_state(), "group_names": group_names, "topic_names": topic_names},
        {"group": group, "topic": topic, "partition": partitions.partition[numbers]}
        | {name: getattr(rows, name)[own] for name in _SAVED}
        | rows.windows.save(own),
    )


def restore_shard(registry: Registry, state: State, *, seen_at_ms: int | None = None) -> Shard:
    """A shard restored from `save_shard`. The state must be of this `STATE_SCHEMA`.

    `seen_at_ms` is when all its commits had been read; None: as saved.
    """
    facts, columns = state.facts, state.columns
    shard = Shard(registry, GroupTable.from_state(facts["groups"], registry.impossible_counts))
    codes = (columns["group"], columns["topic"], columns["partition"])
    own = shard.rows.fill(facts["group_names"], facts["topic_names"], *codes)
    for name in _SAVED:
        getattr(shard.rows, name)[own] = columns[name]
    if seen_at_ms is not None:
        shard.rows.seen_at[own] = seen_at_ms
    shard.rows.windows.restore(own, columns)
    return shard


def _is_elsewhere(shard: Shard, own: Ints) -> NDArray[np.bool_]:
    """A mask of the rows of share groups whose commits are in no record of this partition."""
    rows = shard.rows
    # Coordinators have commits of share groups too. They come without a time.
    codes = rows.find_group_codes(shard.shown.find_share_groups())
    is_described = np.isin(rows.group[own], codes) & (rows.committed_at[own] == UNKNOWN)
    elsewhere: NDArray[np.bool_] = rows.is_shared(own) | is_described
    return elsewhere
