"""How koff's commands write their log. Import this module before any other that imports structlog."""

import logging
import os
import sys
from typing import Any

# structlog imports rich, which came with textual, for tracebacks that koff does not use: a tenth of a second.
if "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]  # None: importing it fails
    import structlog

    del sys.modules["rich"]
import structlog


def set_up_logs(form: str = "auto", level: str = "warning") -> None:
    """Sends logs to standard error: as text on a terminal, else as JSON lines (with `form` "auto").

    Every logger of koff binds `component`, the module or package that writes the line.
    """
    as_json = form == "json" or (form == "auto" and not sys.stderr.isatty())
    renderers: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if as_json
        else [
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty() and "NO_COLOR" not in os.environ,
                # With rich installed, the default shows local variables, which may be passwords.
                exception_formatter=structlog.dev.plain_traceback,
            )
        ]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,  # the cluster, where a process watches several
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
