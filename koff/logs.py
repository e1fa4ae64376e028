"""The log of koff as a library: nothing is printed unless the program that uses koff asks for it.

A program that has configured structlog gets koff's lines there, as koff's own commands do. Any other program
gets them from Python's `logging`, below the logger `koff`.
"""

import logging
import sys
import traceback
from contextlib import suppress
from typing import Any

import structlog

from koff.errors import copy_error

logging.getLogger("koff").addHandler(logging.NullHandler())


def get_logger(component: str, **values: Any) -> "Logger":
    """The logger of a package or module. Its lines have `component` and `values`."""
    return Logger(component, values)


class Logger:
    """Writes events with fields: `log.info("caught up", records=12)`.

    Raises nothing if they cannot be written: the disk may be full.
    """

    def __init__(self, component: str, values: dict[str, Any]) -> None:
        self._component, self._values = component, values

    def debug(self, event: str, **fields: Any) -> None:
        """Writes an event that helps who looks for a fault in koff."""
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Writes an event of normal operation."""
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Writes an event that somebody should look at. The field `exc_info` may be an exception."""
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Writes an event that koff could not handle. The field `exc_info` may be an exception."""
        self._write("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Writes an event with the exception that is handled now: an error that is not koff's."""
        self._write("error", event, {"exc_info": True, **fields})

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if structlog.is_configured():
            logger = structlog.get_logger(component=self._component, **self._values)
            with suppress(OSError):
                getattr(logger, level)(event, **fields)
            return
        logger = logging.getLogger(f"koff.{self._component}")
        number = logging.getLevelNamesMapping()[level.upper()]
        if logger.isEnabledFor(number):
            error = _detach(fields.pop("exc_info", None))
            shown = " ".join(f"{name}={value}" for name, value in {**self._values, **fields}.items())
            logger.log(number, "%s", f"{event} {shown}".rstrip(), exc_info=error, stacklevel=3)


def _detach(error: BaseException | bool | None) -> BaseException | None:
    """A copy of the error, with its traceback and causes as text.

    A handler may keep the error, and with a traceback all variables of the functions: clients, sockets.
    """
    if error is True:
        error = sys.exception()
    if not isinstance(error, BaseException):
        return None
    detached = copy_error(error)
    detached.__cause__ = None  # the text has it
    detached.__notes__ = ["".join(traceback.format_exception(error)).rstrip()]
    return detached
