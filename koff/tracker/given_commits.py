"""Commits that are set as they were returned: by coordinators, by ZooKeeper, or from share state."""

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from koff.lag import UNKNOWN
from koff.tracker.commit_columns import Commits, find_possible_commits
from koff.tracker.commit_keys import commit_key, convert_to_share_keys, key_hashes
from koff.tracker.commit_rows import DESCRIBED, CommitRows
from koff.tracker.impossible import is_possible_name
from koff.tracker.row_index import NO_ROW, Ints
from koff.tracker.saved_state import expand_codes


def set_commits(
    rows: CommitRows,
    commits: Commits,
    *,
    at_ms: Ints | int,
    topic_id: Ints | int = 0,
    seen_at_ms: int = UNKNOWN,
    is_live: bool = True,
    share_partition: Ints | None = None,
) -> None:
    """Applies commits that are in no offsets topic. No (group, topic, partition) may occur twice.

    `at_ms` are the commit times, `topic_id` the folded topic ids. If the commits are from
    `__share_group_state`, `share_partition` are its partitions. `seen_at_ms` and `is_live` are as in
    `Tracker.apply`.
    """
    rows.registry.forget_unused()  # before any name is looked up
    size = len(commits.group)
    commits, kept = find_possible_commits(commits, rows.registry.impossible_counts)
    times, topic_ids = (np.broadcast_to(column, size)[kept] for column in (at_ms, topic_id))
    if not kept.size:
        return
    rows.note_change()
    own = _make_rows(rows, commits, *_find_rows(rows, commits, shared=share_partition is not None))
    rows.committed[own], rows.committed_at[own] = commits.offset, times
    rows.topic_id[own], rows.seen_at[own] = topic_ids, seen_at_ms
    if share_partition is not None:
        rows.share_partition.put(own, share_partition[kept])
    known = commits.offset >= 0
    if known.any():
        live_ms = seen_at_ms if is_live else UNKNOWN
        rows.add_to_windows(own[known], commits.offset[known], times[known], live_ms)


def set_share_lags(rows: CommitRows, lags: Commits, *, topic_id: Ints, requested_ms: Ints) -> None:
    """Makes rows without a commit, each with the lag of a share group in place of `lags.offset`.

    `requested_ms` is when it was requested, by the clock of `Tracker.apply`.
    """
    if not len(lags.group):
        return
    rows.registry.forget_unused()  # before any name is looked up
    rows.changed += 1  # what is saved stays the same: commits from share state are left out
    lags, kept = find_possible_commits(lags, rows.registry.impossible_counts)
    own = _make_rows(rows, lags, *_find_rows(rows, lags, shared=True))
    rows.committed[own] = rows.committed_at[own] = UNKNOWN
    rows.topic_id[own], rows.seen_at[own] = topic_id[kept], requested_ms[kept]
    rows.share_partition.put(own, DESCRIBED)
    rows.share_lag.put(own, lags.offset)
    # A window of commits that end before this lag says nothing about the present.
    rows.windows.clear(own)
    rows.features.changed[own] = True


def remove_commits(rows: CommitRows, keys: Iterable[tuple[str, str, int]], *, shared: bool = False) -> None:
    """Removes the commits of these (group, topic, partition), where there are any.

    `shared`: those from share state, and described lags, in place of those from the offsets topic.
    """
    found = [
        hash(commit_key(group, topic, partition))
        for group, topic, partition in keys
        if partition >= 0 and is_possible_name(group) and is_possible_name(topic)
    ]
    hashes = np.array(found, np.int64)
    own = rows.index.find(convert_to_share_keys(hashes) if shared else hashes)
    rows.remove(own[own != NO_ROW])


def remove_share_commits(rows: CommitRows, groups: Collection[str]) -> None:
    """Removes the commits of these groups that come from `__share_group_state`, and described lags."""
    if rows.share_partition:
        live = rows.list_live()
        own = live[np.isin(rows.group[live], rows.find_group_codes(groups))]
        rows.remove(own[rows.is_shared(own)])


def overwrite_commits(
    rows: CommitRows,
    commits: Commits,
    failed: Collection[str],
    *,
    seen_at_ms: int = UNKNOWN,
    kept_topics: Collection[str] = (),
) -> None:
    """Sets the commits to these, but not those of `failed` groups, nor those from share state.

    Commits to `kept_topics` are not removed. `seen_at_ms` is when they were received. A commit that was there
    before was seen then.
    """
    commits = find_possible_commits(commits, rows.registry.impossible_counts)[0]
    hashes, own = _find_rows(rows, commits)
    gone, differs = _find_missing(rows, own, failed), _find_different(rows, own, commits.offset)
    if kept_topics:
        topics = rows.registry.partitions.numbers.columns.topic[rows.partition[gone]]
        kept = [rows.registry.names.topics.assign_code(topic) for topic in kept_topics]
        gone = gone[~np.isin(topics, kept)]
    if differs.any():
        rows.note_change()
    rows.remove(gone)
    # Without a time, and without a place in the window.
    own = _make_rows(rows, commits, hashes, own)[differs]
    rows.committed[own], rows.topic_id[own] = commits.offset[differs], 0
    rows.committed_at[own], rows.seen_at[own] = UNKNOWN, seen_at_ms


def find_left_topics(rows: CommitRows, commits: Commits, failed: Collection[str]) -> dict[str, set[str]]:
    """The topics of rows that `overwrite_commits` would remove, each with the groups of these rows."""
    own = _find_missing(rows, _find_rows(rows, commits)[1], failed)
    codes = rows.registry.partitions.numbers.columns.topic[rows.partition[own]]
    names = rows.registry.names
    left: dict[str, set[str]] = {}
    for topic, group in np.unique(np.stack([codes, rows.group[own]]), axis=1).T.tolist():
        left.setdefault(names.topics.names[topic], set()).add(names.groups.names[group])
    return left


def _find_rows(rows: CommitRows, commits: Commits, *, shared: bool = False) -> tuple[Ints, Ints]:
    """The key hash and the row of each commit, NO_ROW where there is none.

    `shared`: the commits are from share state.
    """
    hashes = key_hashes(commits.groups, commits.topics, commits.group, commits.topic, commits.partition)
    hashes = convert_to_share_keys(hashes) if shared else hashes
    return hashes, rows.index.find(hashes)


def _find_missing(rows: CommitRows, described: Ints, failed: Collection[str]) -> Ints:
    """The rows that a response of coordinators does not have, apart from those of `failed` groups."""
    live = rows.list_live()
    kept = np.isin(live, described) | rows.is_shared(live)
    return live[~kept & ~np.isin(rows.group[live], rows.find_group_codes(failed))]


def _make_rows(rows: CommitRows, commits: Commits, hashes: Ints, own: Ints) -> Ints:
    """The rows of all commits: makes live rows for those without one in `own`."""
    new = np.flatnonzero(own == NO_ROW)
    if new.size:
        names = rows.registry.names
        groups = expand_codes(commits.groups, commits.group[new], names.groups)
        topics = expand_codes(commits.topics, commits.topic[new], names.topics)
        rows.make(hashes[new], groups, topics, commits.partition[new])
        own[new] = rows.index.find(hashes[new])
        rows.live[own[new]] = True
    return own


def _find_different(rows: CommitRows, own: Ints, offset: Ints) -> NDArray[np.bool_]:
    """A mask of the rows `own` that do not have that offset yet."""
    different = np.ones(len(own), np.bool_)
    old = np.flatnonzero(own != NO_ROW)
    different[old] = rows.committed[own[old]] != offset[old]
    return different
