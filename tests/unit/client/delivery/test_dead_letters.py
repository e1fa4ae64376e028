"""Dead letters that cannot be written."""

from __future__ import annotations

import confluent_kafka
import pytest

from koff.client import ClusterConf
from koff.client.delivery import dead_letters
from koff.client.delivery.dead_letters import DeadLetters
from koff.errors import ConnectError


def test_a_dead_letter_that_is_not_acknowledged_is_an_error_that_names_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dead_letters, "_WRITE_TIMEOUT_S", 0.2)
    raw = confluent_kafka.Message(topic="t", partition=0, offset=7, value=b"v")
    with DeadLetters(ClusterConf("127.0.0.1:1"), "failed", "g") as letters:
        for _ in range(2):
            with pytest.raises(
                ConnectError, match=r"cannot write to the dead-letter topic failed: .*check that"
            ):
                letters.write_message(raw, 3, ValueError("bad"))
    with pytest.raises(ConnectError, match="the member has left the group"):
        letters.write_message(raw, 3, None)
