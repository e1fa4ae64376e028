"""Webhooks: POST of events to a URL, from a thread for each. A receiver that hangs delays nothing else."""

import random
import threading
import time
from collections.abc import Collection, Sequence

from koff.logs import get_logger
from koff.serve.events.event import ClusterEvent
from koff.serve.events.notice_queue import Lasting, NoticeQueue
from koff.serve.events.webhook_conf import WebhookConf
from koff.serve.events.webhook_post import RESULTS, Result, build_tls, post

log = get_logger("webhook")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
HELD_LOOK_S = 5.0
"""So often a webhook looks whether it may send what it holds back."""
STOP_S = 2.0


class WebhookCounts:
    """What happened to the requests of all webhooks, and how many events were dropped. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: dict[Result, int] = dict.fromkeys(RESULTS, 0)
        self.dropped = 0

    def add_request(self, result: Result) -> None:
        with self._lock:
            self.requests[result] += 1

    def add_dropped(self, events: int) -> None:
        with self._lock:
            self.dropped += events


class Webhooks:
    """Sends events to all webhooks of a configuration, which may change."""

    def __init__(self) -> None:
        self.counts = WebhookCounts()
        self._senders: tuple[_Sender, ...] = ()

    def configure(self, confs: Sequence[WebhookConf]) -> None:
        """Sends to these from now on. A webhook that stays the same does not notice."""
        before, kept = list(self._senders), list[_Sender]()
        for conf in confs:
            same = next((sender for sender in before if sender.conf == conf), None)
            if same is None:
                same = _Sender(conf, self.counts)
                same.start()
            else:
                before.remove(same)
            kept.append(same)
        self._senders = tuple(kept)
        _stop(before)

    def send(self, events: Sequence[ClusterEvent]) -> None:
        """Takes new events. Returns at once."""
        for sender in self._senders:
            sender.add([event for event in events if sender.conf.fits(event)])

    @property
    def reminds(self) -> bool:
        """Whether a webhook tells again of incidents that last."""
        return any(sender.conf.remind_s is not None for sender in self._senders)

    def remind(self, lasting: Lasting, untold: Collection[str] = ()) -> None:
        """Takes the incidents that last at present: those with `untold` keys now. Returns at once."""
        for sender in self._senders:
            sender.remind(lasting, untold)

    def stop(self) -> None:
        """Stops all, within `STOP_S`. What waits is sent once more."""
        senders, self._senders = self._senders, ()
        _stop(senders)


def _stop(senders: "Sequence[_Sender]") -> None:
    for sender in senders:
        sender.stop()
    until_s = time.monotonic() + STOP_S
    for sender in senders:
        sender.join(max(0.0, until_s - time.monotonic()))


class _Sender:
    """Sends events to one webhook, in a thread of its own."""

    def __init__(self, conf: WebhookConf, counts: WebhookCounts) -> None:
        self.conf = conf
        self._counts = counts
        self._changed = threading.Condition()  # guards the two below
        self._queue = NoticeQueue(conf)
        self._is_stopping = False
        self._is_failing = False
        self._tls = build_tls(conf)
        self._thread = threading.Thread(target=self._run, name="koff-webhook", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, events: Sequence[ClusterEvent]) -> None:
        """Takes events. If too many wait, the oldest are dropped."""
        with self._changed:
            dropped = self._queue.add(events, time.monotonic())
            self._changed.notify_all()
        self._counts.add_dropped(dropped)

    def remind(self, lasting: Lasting, untold: Collection[str]) -> None:
        """Takes the incidents that last."""
        with self._changed:
            dropped = self._queue.remind(lasting, time.monotonic(), time.time(), untold)
            self._changed.notify_all()
        self._counts.add_dropped(dropped)

    def stop(self) -> None:
        """Lets the thread end after one more attempt."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        """Waits for the thread. A request that is under way then is left to the end of the process."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while events := self._take():
            try:
                self._deliver(events)
            except Exception as error:  # a fault of koff: later events must be sent
                # The text of the error may have a secret.
                self._drop(events, f"a fault of koff: please report it: {type(error).__name__}")

    def _take(self) -> list[ClusterEvent]:
        """The next events; none at the end."""
        with self._changed:
            while True:
                events = self._queue.take(time.monotonic(), time.time(), is_last=self._is_stopping)
                if events or self._is_stopping:
                    return events
                self._changed.wait(HELD_LOOK_S if len(self._queue) else None)

    def _deliver(self, events: Sequence[ClusterEvent]) -> None:
        """Sends the events until they are accepted, refused, or it has failed too often."""
        request = self.conf.notices.build(events, self.conf.filling)
        for attempt in range(self.conf.retries + 1):
            result, why = post(self.conf, request, self._tls)
            self._note(result, why)
            if result == "ok":
                return
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(attempt, 10))
            if result == "refused" or attempt == self.conf.retries or self._is_stopped_within(pause_s):
                break
        self._drop(events, why)

    def _drop(self, events: Sequence[ClusterEvent], why: str) -> None:
        self._counts.add_dropped(len(events))
        log.warning("events were not delivered", **self._place, count=len(events), why=why)

    def _is_stopped_within(self, pause_s: float) -> bool:
        # Several koffs must not send again at the same moment.
        pause_s *= random.uniform(0.5, 1.0)  # noqa: S311  no secret depends on it
        with self._changed:
            return self._changed.wait_for(lambda: self._is_stopping, pause_s)

    def _note(self, result: Result, why: str) -> None:
        self._counts.add_request(result)
        is_failing = result == "failed"
        if is_failing and not self._is_failing:
            log.warning("a webhook fails; koff tries again", **self._place, why=why)
        self._is_failing = is_failing

    @property
    def _place(self) -> dict[str, str]:
        return {"url": self.conf.place} | ({"webhook": self.conf.name} if self.conf.name else {})
