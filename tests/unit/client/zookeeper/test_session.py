"""What a session with ZooKeeper makes of kazoo's results."""

from __future__ import annotations

import pytest
from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler

from koff.client.zookeeper.session import Session
from koff.errors import ConnectError


def test_an_error_that_kazoo_keeps_has_no_traceback_that_would_keep_what_the_callers_have():
    pending = SequentialThreadingHandler().async_result()
    pending.set_exception(NoNodeError())
    with Session("127.0.0.1:1", connect_timeout_s=0.1) as session, pytest.raises(NoNodeError):
        session.wait_for_result(pending)
    assert pending.exception.__traceback__ is None


def test_a_value_is_returned_and_no_response_in_time_is_an_error_of_the_connection():
    handler = SequentialThreadingHandler()
    done = handler.async_result()
    done.set("a value")
    with Session("127.0.0.1:1", connect_timeout_s=0.1, timeout_s=0.1) as session:
        assert session.wait_for_result(done) == "a value"
        with pytest.raises(ConnectError, match="does not respond"):
            session.wait_for_result(handler.async_result())
