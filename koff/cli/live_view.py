"""The live view of `koff lag --watch` and `koff demo`: a screen of textual. Imported only when it starts."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from rich.console import Console
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.events import Key, Resize
from textual.widgets import Static

from koff.cli.group_page import format_page
from koff.cli.lag_tables import Sort, select_totals
from koff.cli.live_lines import (
    TREND_POINTS,
    Happening,
    Trends,
    describe_cluster,
    filter_totals,
    fit_encoding,
    format_live_groups,
)
from koff.cli.live_state import HELP, LiveState, Screen, press_key
from koff.cli.log_lines import set_up_logs
from koff.cli.text_table import cut_end
from koff.cli.view_facts import find_causes, list_unknown
from koff.errors import copy_error
from koff.monitor.conf import MonitorConf
from koff.monitor.watch import take_views
from koff.serve.api.problems import Problem
from koff.serve.api.queries import show_group
from koff.serve.events.changes import ClusterChanges, look_at
from koff.tracker import GroupTotal
from koff.view.cluster_view import ClusterView, Views

INTERRUPTED, TERMINATED = 130, 143
_STOP_S = 2.0
_KEPT, _SHOWN, _SHOWN_FROM = 200, 4, 18
"""The view keeps `_KEPT` events. On a terminal of `_SHOWN_FROM` lines or more, it shows `_SHOWN` of them."""
_CONSOLE = Console(width=80)
_STYLES = {"ERR": "bold red", "WARN": "yellow", "OK": "green"}

TakeViews = Callable[[Callable[[], bool]], Iterator[ClusterView]]
"""Views of the cluster until the function that it gets returns True."""


@dataclass(frozen=True, slots=True)
class LiveConf:
    """What the view shows of the cluster at `brokers`.

    `notes` are lines for the head. Groups for which `is_selected` holds are shown, at most `top` of
    them. With `seconds`, the view ends after so many.
    """

    brokers: str
    notes: tuple[str, ...] = ()
    is_selected: Callable[[str], object] = lambda name: True
    sort: Sort = "lag"
    is_lagging: bool = False
    top: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One look at the cluster. `problems` are what koff could not find out; `at_s` is monotonic."""

    view: ClusterView
    totals: list[GroupTotal]
    problems: list[str]
    happenings: list[Happening]
    at_s: float = field(default_factory=time.monotonic)


def run_live_view(cluster: MonitorConf, interval_s: float, timeout_s: float, conf: LiveConf) -> int:
    """Shows the view until the user quits. Returns the exit code. Raises what `take_views` raises."""
    set_up_logs(level="critical")  # the view says what is missing; a line of the log would be over it
    for name in ("COLUMNS", "LINES"):  # textual would take them for the size, also after a resize
        os.environ.pop(name, None)
    views = partial(take_views, cluster, interval_s=interval_s, timeout_s=timeout_s)
    app = LiveView(lambda is_stopped: views(is_stopped=is_stopped), conf)
    code = app.run(mouse=False)  # the terminal's own: the user can select names
    if app.error is not None:
        raise copy_error(app.error)
    return code or 0


class LiveView(App[int]):
    """The view. A thread takes views of the cluster; all else is done in textual's."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    Static { background: ansi_default; color: ansi_default; height: auto; }
    Static { text-wrap: nowrap; text-overflow: clip; }
    #body { height: 1fr; }
    """
    BINDINGS = [  # noqa: RUF012 - as textual declares it
        Binding("ctrl+c", "end(130)", show=False, priority=True),
        Binding("ctrl+q", "end(0)", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", show=False, priority=True),
    ]

    def __init__(self, take_views: TakeViews, conf: LiveConf) -> None:
        super().__init__(ansi_color=True)
        self.error: BaseException | None = None
        self._take_views, self._conf = take_views, conf
        self._state = LiveState(sort=conf.sort, is_lagging=conf.is_lagging)
        self._frame: Frame | None = None
        self._listed: list[GroupTotal] = []
        self._happenings: deque[Happening] = deque(maxlen=_KEPT)
        self._text_lines = 0
        self._has_color = not os.environ.get("NO_COLOR")
        self._encoding = (sys.__stderr__ and sys.__stderr__.encoding) or "utf-8"  # textual writes there
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="koff-live", daemon=True)

    # --- The thread that takes views ----------------------------------------------------------------------

    def _watch(self) -> None:
        try:
            changes = ClusterChanges()
            for view in self._take_views(self._stopped.is_set):
                frame = self._build_frame(view, changes)
                if self._stopped.is_set():
                    return
                self.call_from_thread(self._show_frame, frame)
        except BaseException as error:  # raised again by `run_live_view`
            if not self._stopped.is_set():
                self.error = copy_error(error)
                self.call_from_thread(self.exit, 1)

    def _build_frame(self, view: ClusterView, changes: ClusterChanges) -> Frame:
        is_selected, at = self._conf.is_selected, datetime.now(UTC).strftime("%H:%M:%S")
        view, events = look_at(view, changes, time.time_ns() // 1_000_000)
        totals = [total for total in view.snapshot.totals() if is_selected(total.group.name)]
        # Objects for all rows take seconds with many groups. They are wanted only to say what is withheld.
        all_rows = view.snapshot.rows() if view.snapshot.withheld_rows() else ()
        rows = [row for row in all_rows if is_selected(row.group)]
        happenings = [
            Happening(at, event.group, event.text)
            for event in events
            if event.group is None or is_selected(event.group)
        ]
        return Frame(view, totals, list_unknown(view, rows, totals), happenings)

    # --- The screen ---------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield Static(id="head")
        yield Static(id="body")
        yield Static(id="foot")

    def on_mount(self) -> None:
        """Starts to watch."""
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGINT, self.action_end, INTERRUPTED)
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.action_end, TERMINATED)
        self.set_interval(1.0, self._draw)  # the first line shows the age of the view
        if self._conf.seconds is not None:
            self.set_timer(max(self._conf.seconds, 0.001), lambda: self.action_end(0))
        self._thread.start()
        self._draw()

    def action_end(self, code: int) -> None:
        """Ends the view with that exit code."""
        self._stopped.set()
        self.exit(code)

    def on_unmount(self) -> None:
        """Lets the thread close its connections, if it does so soon."""
        self._stopped.set()

    def on_key(self, event: Key) -> None:
        """Does what the key means."""
        if event.key == "q" and not self._state.is_typing:
            self.action_end(0)
            return
        self._state = press_key(self._state, event.key, event.character, self._screen())
        self._draw()

    def on_resize(self, _event: Resize) -> None:
        """Draws again: other columns may fit."""
        self.call_after_refresh(self._draw)

    def _show_frame(self, frame: Frame) -> None:
        self._frame = frame
        self._happenings.extend(frame.happenings)
        self._draw()

    def _screen(self) -> Screen:
        height = self._body_height() - (1 if self._state.page == "groups" else 0)
        return Screen([total.group.name for total in self._listed], height, self._text_lines)

    def _body_height(self) -> int:
        return max(self.size.height - len(self._head_lines()) - len(self._foot_lines()), 1)

    def _draw(self) -> None:
        if not self.is_running or self._stopped.is_set():
            return
        state = self._state
        chosen = filter_totals(self._frame.totals, state.text) if self._frame else []
        self._listed = select_totals(chosen, sort=state.sort, is_lagging=state.is_lagging, top=self._conf.top)
        self._state = self._state.follow(self._screen())
        self.query_one("#head", Static).update(self._join(self._head_lines()))
        body = self._list_groups() if state.page == "groups" else self._scroll_text(self._read_page())
        self.query_one("#body", Static).update(self._join(body))
        self.query_one("#foot", Static).update(self._join(self._foot_lines()))

    def _join(self, lines: Sequence[Text | str]) -> Text:
        width = self.size.width
        texts = [line if isinstance(line, Text) else Text(self._fit(line, width)) for line in lines]
        text = Text("\n", no_wrap=True, overflow="crop").join(texts)
        text.no_wrap, text.overflow = True, "crop"
        return text

    def _fit(self, text: str, width: int) -> str:
        encoding = self._encoding
        return fit_encoding(cut_end(fit_encoding(text, encoding), width), encoding)

    def _style(self, text: str, style: str) -> Text:
        styled = Text(self._fit(text, self.size.width))
        words = style.split()
        styled.stylize(style if self._has_color else " ".join(w for w in words if w in ("bold", "reverse")))
        return styled

    def _head_lines(self) -> list[Text | str]:
        frame = self._frame
        age_s = None if frame is None else time.monotonic() - frame.at_s
        cluster = (frame.view.cluster if frame else None) or self._conf.brokers
        lines: list[Text | str] = [
            self._style(
                describe_cluster(cluster, frame.totals if frame else [], age_s, self.size.width), "bold"
            )
        ]
        lines += self._conf.notes
        if frame is not None and frame.problems:
            lines.append(self._style(f"! not all is known: {'; '.join(frame.problems)}", "bold yellow"))
        return lines

    def _foot_lines(self) -> list[Text | str]:
        state = self._state
        lines: list[Text | str] = []
        if state.page == "groups" and self.size.height >= _SHOWN_FROM:
            lines += [f"{each.time}  {each.text}" for each in list(self._happenings)[-_SHOWN:]]
        if state.is_typing:
            return [*lines, f"filter: {state.text}_   enter keeps it, escape clears it"]
        if state.page != "groups":
            return [*lines, "esc back  up/down scroll  q quit"]
        shown = f"by {state.sort}{', only lagging' if state.is_lagging else ''}"
        shown += f", filter: {state.text}" if state.text else ""
        keys = "q quit  ? help  / filter  s sort  enter open  l lagging"
        return [*lines, self._style(f"{shown}  |  {keys}", "reverse")]

    def _list_groups(self) -> list[Text | str]:
        if self._frame is None:
            return [""]
        if not self._listed:
            return ["no group matches" if self._frame.totals else "no consumer groups"]
        height, top = max(self._body_height() - 1, 1), self._state.window.top
        shown = self._listed[top : top + height]
        causes = find_causes(self._frame.view, shown)
        header, lines = format_live_groups(shown, causes, self._read_trends(shown), self.size.width - 2)
        result: list[Text | str] = [self._style(f"  {header}", "bold")]
        for number, (total, line) in enumerate(zip(shown, lines, strict=True)):
            is_chosen = top + number == self._state.window.cursor
            text = Text(self._fit(f"{'>' if is_chosen else ' '} {line}", self.size.width))
            if self._has_color and (style := _STYLES.get(total.status.name)):
                text.stylize(style, 2, 2 + len(total.status.name))
            if is_chosen:
                text.stylize("bold")
            result.append(text)
        return result

    def _read_trends(self, totals: Sequence[GroupTotal]) -> Trends:
        assert self._frame is not None
        history = self._frame.view.activity.history
        courses = {total.group.name: history.find(total.group.name) for total in totals}
        return {
            name: course.lag[-TREND_POINTS:].tolist() if course is not None else [math.nan]
            for name, course in courses.items()
        }

    def _read_page(self) -> list[str]:
        if self._state.page == "help":
            return HELP.splitlines()
        name = self._state.opened
        if self._frame is None or self._frame.view.cluster is None:
            return [f"nothing is known of group {name} at present"]
        view = self._frame.view
        try:
            found = show_group(Views.from_one(view), {"cluster": view.cluster or "", "group": name}, {})
        except Problem as problem:
            return [problem.detail]
        lines = format_page({**found, "history": None}, self._conf.brokers, self.size.width).splitlines()
        seen = [f"  {each.time}  {each.text}" for each in self._happenings if each.group == name]
        if seen:
            lines += ["", "What koff saw", *reversed(seen)]
        return lines

    def _scroll_text(self, lines: list[str]) -> list[Text | str]:
        wrapped = [part for line in lines for part in wrap_line(line, self.size.width)]
        self._text_lines = len(wrapped)
        height = self._body_height()
        top = self._state.scrolled.scroll(0, len(wrapped), height).top
        return list(wrapped[top : top + height])


def wrap_line(line: str, width: int) -> list[str]:
    """The line in parts that fit, split at spaces where that is possible. Parts keep the indent."""
    indent = len(line) - len(line.lstrip())
    text = Text(line.strip())
    wrapped = text.wrap(_CONSOLE, max(width - indent, 10)) if line.strip() else [Text("")]
    return [" " * indent + part.plain.rstrip() for part in wrapped]
