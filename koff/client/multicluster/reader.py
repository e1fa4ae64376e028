"""Reads many clusters at once, as one stream of messages."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from koff.client.closing import Closing
from koff.client.cluster_conf import ClusterConf, OffsetSpec
from koff.client.delivery.delivery import Delivery
from koff.client.delivery.errors import ErrorQueue, PartitionError
from koff.client.delivery.partition import PartitionState
from koff.client.message import Message
from koff.client.multicluster.balancers import payload_bytes
from koff.client.multicluster.conf import FIRST_OFFSET, LAST_OFFSET, ReaderConf
from koff.client.multicluster.errors import CommitError, ReadErrors, Unavailable
from koff.client.multicluster.group_intake import GroupIntake
from koff.client.multicluster.partition_intake import PartitionIntake
from koff.client.multicluster.stats import INTERVAL, ReaderStats
from koff.client.multicluster.subscription import ReaderSubscription, SubscribedPartition
from koff.client.patience import PATIENCE_S
from koff.errors import Closed, ConfigError, KoffError, copy_error
from koff.logs import get_logger

log = get_logger("client.multicluster")


class Reader(Closing):
    """Reads the partitions and groups of `confs` from `clusters`, which are named by their keys.

    Each conf in each of its clusters is a reader with an index `i`, in the order of the confs, and then of
    the clusters. A context manager, and an iterator of lists of messages. Threads may share it. When a
    cluster does not respond, reading continues with the other clusters. When the cluster responds again,
    reading resumes at the same offset; a group may resume at its last committed offset, and so repeat
    messages. Raises `ConfigError` for configurations that contradict each other and for refused librdkafka
    properties.
    """

    def __init__(self, clusters: Mapping[str, ClusterConf], confs: ReaderConf | Sequence[ReaderConf]) -> None:
        self._subscriptions = [
            ReaderSubscription(conf, _adapt_conf(name, clusters[name], conf))
            for name, conf in list_subscriptions(clusters, confs)
        ]
        _refuse_duplicates(self._subscriptions)
        self._intakes: dict[ReaderSubscription, PartitionIntake] = {}
        self._errors = ErrorQueue()
        self._delivery = self._make_delivery(
            is_ready=lambda each: not each.subscription.is_paused(each.partition),
            on_processed=_note_processed,
            on_error=self._report_passed_over,
            on_handed_out=_count_messages,
        )
        try:
            for subscriptions in _group_by_client(self._subscriptions):
                intake = self._make_intake(subscriptions)
                intake.start()
                self._intakes.update(dict.fromkeys(subscriptions, intake))
            for intake in self._intakes.values():
                intake.wait_for_start()
        except BaseException:  # librdkafka may refuse a property; intakes before it already run
            self.close()
            raise

    def read_message(self, timeout_s: float | None = None) -> list[Message]:
        """The next messages of one cluster, as soon as there are any; an empty list after `timeout_s`.

        With a group, the offsets of the returned messages are committed soon, perhaps before the caller has
        processed the messages (see `fetch_message`). Raises `ReadErrors` when all readers have failed, once
        for each failure, and `Closed` after `close`.
        """
        return self._take(timeout_s, commit=True)

    def fetch_message(self, timeout_s: float | None = None) -> list[Message]:
        """As `read_message`, but a group's offsets are committed only by `commit_messages`.

        With `ReaderConf.redelivery` both methods are the same: offsets are committed by `Message.ack` (and by
        `commit_messages`), and messages of which the application calls `nack` are returned again later.
        """
        return self._take(timeout_s, commit=False)

    def wait_for_messages(self, timeout_s: float | None = None) -> bool:
        """Waits until `read_message` returns or raises at once. Returns whether it does after `timeout_s`."""
        self.check_process()
        return self._delivery.wait_for_messages(timeout_s, self._has_failed)

    def _take(self, timeout_s: float | None, *, commit: bool) -> list[Message]:
        """Raises the errors of all readers if all have failed, once, and no message waits."""
        self.check_process()
        messages = self._delivery.take(timeout_s=timeout_s, commit=commit, has_failed=self._has_failed)
        with self._delivery.lock:
            if not messages and self._has_failed():
                for each in self._subscriptions:
                    each.is_reported = True
                raise ReadErrors([each.failure for each in self._subscriptions if each.failure])
        return messages

    def _has_failed(self) -> bool:
        return all(each.failure is not None and not each.is_reported for each in self._subscriptions)

    def commit_messages(self, *messages: Message, timeout_s: float = PATIENCE_S) -> None:
        """Commits the offsets after these messages, for the groups that read them.

        Returns when the coordinators have committed. A commit covers all earlier messages of a partition.
        Raises `CommitError` after all clusters were tried, also when a coordinator has not responded within
        `timeout_s` (then the offsets may be committed later), and `Unavailable` for messages that no group of
        this reader reads.
        """
        self.check_process()
        groups = {
            (each.cluster, each.conf.topic): self._intakes[each]
            for each in self._subscriptions
            if each.conf.group_id
        }
        by_group: dict[Any, list[Message]] = {}
        for message in messages:
            group = groups.get((message.cluster, message.topic))
            if group is None:
                raise Unavailable(
                    f"no group reads {message.topic} at {message.cluster}: only messages that a reader with "
                    "a group_id returned can be committed"
                )
            by_group.setdefault(group, []).append(message)
        self._delivery.check_open()
        # Start the commits of all groups, then wait for them.
        commits = [group.commit_offsets(messages) for group, messages in by_group.items()]
        errors, deadline = [], time.monotonic() + timeout_s
        for commit, group in zip(commits, by_group, strict=True):
            try:
                error = commit.exception(max(deadline - time.monotonic(), 0.0))
            except TimeoutError:
                error = CommitError(
                    f"the coordinator of {group.name} has not responded within {timeout_s:g} s: the offsets "
                    "may be committed or not; check that the cluster runs"
                )
            if error is not None:
                errors.append(error)
        if errors:
            raise copy_error(errors[0])

    def errors(self) -> Iterator[KoffError]:
        """The messages that were passed over, each as a `PartitionError`, as they occur; ends after `close`.

        Only with `ReaderConf.redelivery`. The application need not read them: all are logged.
        """
        self.check_process()
        return self._errors.take_errors(lambda: self._delivery.closed)

    def lag(self, i: int) -> int:
        """How many offsets follow the last returned message, as far as koff knows without a request.

        -1 before the first message, after `set_offset`, with a group, and while the end is unknown.
        """
        position = self._subscriptions[i].position
        return -1 if position is None else position.lag

    def offset(self, i: int) -> int:
        """The next offset to read; -1 with a group.

        FIRST_OFFSET or LAST_OFFSET until the cluster has returned the real offset.
        """
        position = self._subscriptions[i].position
        return -1 if position is None else position.position

    def read_lag(self, i: int) -> int:
        """How many offsets there are now from `offset(i)` to the end of the partition.

        Fetches the end offset. 0 while `offset(i)` is negative. Raises `ConnectError`, `UnknownTopic`,
        `Denied`, and `Unavailable` with a group.
        """
        end, offset = self._fetch_offset(i, OffsetSpec.LATEST), self.offset(i)
        return max(end - offset, 0) if offset >= 0 else 0

    def set_offset(self, i: int, offset: int) -> None:
        """Continues at that offset (FIRST_OFFSET and LAST_OFFSET too) and drops fetched, unread messages.

        LAST_OFFSET is the end of the partition now. Raises `ValueError` for other negative offsets,
        `Unavailable` with a group, and for LAST_OFFSET what `read_lag` raises.
        """
        self._check_positioned(i)
        if offset < 0 and offset not in (FIRST_OFFSET, LAST_OFFSET):
            raise ValueError(f"{offset} is no offset: use 0 or more, FIRST_OFFSET or LAST_OFFSET")
        if offset == LAST_OFFSET:
            offset = self._fetch_offset(i, OffsetSpec.LATEST)
        subscription = self._subscriptions[i]
        with self._delivery.lock:
            subscription.clear_error()
            self._intakes[subscription].seek(subscription, offset)

    def set_offset_at(self, i: int, at: datetime | float) -> None:
        """Continues at the first message at or after that time (a number is seconds since the epoch).

        Continues at the end of the partition if there is no such message. Raises as `read_lag` does.
        """
        seconds = at.timestamp() if isinstance(at, datetime) else at
        offset = self._fetch_offset(i, int(seconds * 1000))
        self.set_offset(i, offset if offset >= 0 else LAST_OFFSET)

    def pause(self, i: int | None = None, partitions: Collection[int] | None = None) -> None:
        """Returns no messages of reader `i`, or of these partitions of it, until `resume`. None: all readers.

        Nothing is lost, and a group's member stays in its group. A paused partition stays paused when it is
        revoked and assigned again. Safe to call twice.
        """
        self._set_paused(i, partitions, paused=True)

    def resume(self, i: int | None = None, partitions: Collection[int] | None = None) -> None:
        """Ends a `pause`. With `partitions`, only one of these partitions, not one of the whole reader.

        Without them, partitions of the reader that were paused by number are resumed, too.
        """
        self._set_paused(i, partitions, paused=False)

    def _set_paused(self, i: int | None, partitions: Collection[int] | None, *, paused: bool) -> None:
        self.check_process()
        with self._delivery.lock:
            self._delivery.check_open()
            for each in self._subscriptions if i is None else [self._subscriptions[i]]:
                if paused:
                    each.paused |= {None} if partitions is None else {*partitions}
                else:
                    each.paused -= each.paused if partitions is None else {*partitions}
            self._delivery.lock.notify_all()

    def stats(self, i: int) -> ReaderStats:
        """The statistics of reader `i`. Counts grow: the difference of two calls is what came between."""
        self.check_process()
        subscription = self._subscriptions[i]
        client = self._intakes[subscription].statistics.read()
        with self._delivery.lock:
            return subscription.build_stats(client)

    def close(self, timeout_s: float = PATIENCE_S) -> None:
        """Stops reading. Safe to call twice.

        Each member commits the offsets of the messages that `read_message` returned, and leaves its group.
        One whose coordinator does not respond within `timeout_s` may do so later, or not at all.
        """
        if not self._delivery.close():
            return
        self._errors.wake_all()
        intakes, until = dict.fromkeys(self._intakes.values()), time.monotonic() + timeout_s
        for intake in intakes:
            intake.begin_close()
        for intake in intakes:
            intake.close(max(until - time.monotonic(), 0.0))
        for subscription in self._subscriptions:
            with self._delivery.lock:  # acknowledgements have no effect any more
                for each in subscription.partitions.values():
                    self._delivery.change_state(each, PartitionState.LOST)
            if subscription.dead_letters is not None:
                subscription.dead_letters.close()

    def _report_passed_over(self, error: PartitionError) -> None:
        log.warning("a message failed", reason=str(error))
        self._errors.put_error(error)

    def __iter__(self) -> Iterator[list[Message]]:
        """The lists that `read_message` returns, until the reader is closed."""
        try:
            while True:
                yield self.read_message()
        except Closed:
            return

    # A double of the reader has another delivery and other intakes.

    def _make_delivery(self, **callbacks: Any) -> Delivery[SubscribedPartition]:
        return Delivery(**callbacks)

    def _make_intake(self, subscriptions: Sequence[ReaderSubscription]) -> Any:
        is_group = bool(subscriptions[0].conf.group_id)
        return (GroupIntake if is_group else PartitionIntake)(subscriptions, self._delivery)

    def _fetch_offset(self, i: int, spec: OffsetSpec | int) -> int:
        self._check_positioned(i)
        subscription = self._subscriptions[i]
        return self._intakes[subscription].fetch_offset(subscription.partitions[subscription.partition], spec)

    def _check_positioned(self, i: int) -> None:
        """Raises `Unavailable` for a reader with a group, and `Closed`."""
        self.check_process()
        self._delivery.check_open()
        if group := self._subscriptions[i].conf.group_id:
            raise Unavailable(
                f"group {group} keeps the offsets of reader {i}: use this method only for readers without a "
                "group_id"
            )


def _note_processed(partition: SubscribedPartition, processed_up_to: int) -> None:
    partition.to_commit = processed_up_to + 1


def _count_messages(partition: SubscribedPartition, messages: Sequence[Message]) -> None:
    counts = partition.subscription.counts
    counts["messages"] += len(messages)
    counts["bytes"] += sum(map(payload_bytes, messages))


def list_subscriptions(
    clusters: Mapping[str, ClusterConf], confs: ReaderConf | Sequence[ReaderConf]
) -> list[tuple[str, ReaderConf]]:
    """Each conf with the name of each of its clusters, in the order of `Reader`. Raises `ConfigError`."""
    confs = [confs] if isinstance(confs, ReaderConf) else confs
    if not clusters or not confs:
        raise ConfigError(
            "a reader needs at least one cluster and one configuration: pass names with their ClusterConf, "
            "and a ReaderConf or more"
        )
    for conf in confs:
        if conf.cluster and conf.cluster not in clusters:
            raise ConfigError(f"no cluster is named {conf.cluster!r}: use one of {', '.join(clusters)}")
    return [(name, conf) for conf in confs for name in clusters if conf.cluster in ("", name)]


def _adapt_conf(name: str, cluster: ClusterConf, conf: ReaderConf) -> ClusterConf:
    """The cluster's configuration for a reader.

    The timeouts are short, so that librdkafka leaves a broker that hangs and uses another one, and so that a
    check of the cluster does not delay reading for long.
    """
    socket_timeout_ms = int(conf.max_wait_s * 1000) + 10_000
    return replace(
        cluster,
        name=name,
        properties={**INTERVAL, "socket.timeout.ms": str(socket_timeout_ms), **cluster.properties},
        request_timeout_s=min(cluster.request_timeout_s, 2.0),
    )


def _group_by_client(subscriptions: Sequence[ReaderSubscription]) -> list[list[ReaderSubscription]]:
    """The subscriptions that can share a client: partitions of one topic with the same settings.

    A group's subscription always has a client of its own.
    """
    # Start offset and queue capacity belong to a subscription, so they may differ within a client.
    by_key: dict[object, list[ReaderSubscription]] = {}
    for subscription in subscriptions:
        conf = subscription.conf
        settings = (
            *(subscription.cluster, conf.topic),
            *(conf.min_bytes, conf.max_bytes, conf.max_wait_s, conf.fail_after_s, conf.isolation),
        )
        by_key.setdefault(subscription if conf.group_id else settings, []).append(subscription)
    return list(by_key.values())


def _refuse_duplicates(subscriptions: Sequence[ReaderSubscription]) -> None:
    seen = set()
    for subscription in subscriptions:
        # `commit_messages` finds a group only by cluster and topic, so these must be unique.
        source = (subscription.cluster, subscription.conf.topic, subscription.partition)
        if source in seen:
            raise ConfigError(
                f"two configurations read {subscription.conf.topic} at {subscription.cluster}: read each "
                "partition once, and for a second group give the cluster a second name"
            )
        seen.add(source)
