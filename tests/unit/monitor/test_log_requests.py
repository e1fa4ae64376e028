"""What the core requests of internal topics, and what it says about them."""

from koff.monitor.duties.offsets import FetchOffsets
from koff.monitor.duties.topics import FetchTopics
from tests.unit.monitor.driven import OFFSETS, Driven


def bound_requests(driven: Driven) -> int:
    return sum(isinstance(request, FetchOffsets) and request.kind != "end" for request in driven.sent)


def test_bounds_are_requested_again_soon_if_they_failed():
    driven = Driven()
    driven.list_topics(**{OFFSETS: 1})
    driven.respond_offsets(lambda at, kind: "LEADER_NOT_AVAILABLE")
    driven.give(None, after_s=1)
    assert bound_requests(driven) == 4


def test_an_id_that_never_gets_a_name_does_not_make_koff_list_topics_all_the_time(monkeypatch):
    driven = Driven().read()
    driven.poll(*[(b"", b"")] * 5)
    monkeypatch.setattr(driven.core.tracker, "unnamed_topic_ids", lambda: {"an id"})
    driven.run(600)
    lists = sum(isinstance(request, FetchTopics) for request in driven.sent)
    assert lists < 100  # without share groups every 10 s, and a few more at the beginning
