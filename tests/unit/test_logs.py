"""Where the log of koff as a library goes: nowhere, to structlog or to logging, as the program says."""

import errno
import logging
import weakref
from typing import Any

import structlog

from koff.logs import get_logger

log = get_logger("client.test", member="m1")


def write_all() -> None:
    log.debug("looked")
    log.info("rebalance", members=2)
    log.warning("feed failed", why="away")
    try:
        raise ValueError("a bug")
    except ValueError:
        log.exception("the callback raised", messages=3)


def test_without_any_configuration_nothing_is_printed(capfd):
    write_all()
    assert capfd.readouterr() == ("", "")


def test_logging_gets_the_events_with_their_fields(caplog):
    with caplog.at_level(logging.INFO, "koff"):
        write_all()
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("koff.client.test", "INFO", "rebalance member=m1 members=2"),
        ("koff.client.test", "WARNING", "feed failed member=m1 why=away"),
        ("koff.client.test", "ERROR", "the callback raised member=m1 messages=3"),
    ]
    assert caplog.records[0].funcName == "write_all"
    assert "ValueError: a bug" in caplog.text


def test_an_error_that_a_handler_keeps_has_its_traceback_as_text_and_keeps_no_variables(caplog):
    class Client:
        pass

    def fail() -> weakref.ref[Client]:
        client = Client()
        try:
            try:
                raise OSError("the cause")
            except OSError as error:
                raise ValueError("a bug") from error
        except ValueError:
            log.exception("the callback raised")
        return weakref.ref(client)

    assert fail()() is None
    for text in ("OSError: the cause", "ValueError: a bug", "in fail"):
        assert text in caplog.text


def test_structlog_gets_them_where_it_is_configured(capfd):
    with structlog.testing.capture_logs() as lines:
        write_all()
    assert lines[1] == {
        "event": "rebalance",
        "log_level": "info",
        "component": "client.test",
        "member": "m1",
        "members": 2,
    }
    assert [line["log_level"] for line in lines] == ["debug", "info", "warning", "error"]
    assert capfd.readouterr() == ("", "")


def test_a_disk_that_is_full_is_no_error_of_who_logs():
    def fail(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "no space left on device")

    with structlog.testing.capture_logs():  # restores the configuration
        structlog.configure(processors=[fail])
        write_all()
