"""The live view of `koff lag --watch` and `koff demo`: a screen of textual. Imported only when it starts."""

import asyncio
import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.events import Key, Resize
from textual.widgets import Static

from koff.cli.group_order import QuietOrder, Sort, filter_totals, select_lagging
from koff.cli.group_page import format_page
from koff.cli.lag_tables import TREND_POINTS, Trends, format_groups
from koff.cli.live_lines import Happening, describe_cluster, describe_keys, fit_encoding
from koff.cli.live_state import HELP, MOVES, LiveState, Page, Screen, press_key
from koff.cli.log_lines import set_up_logs
from koff.cli.text_table import cut_end, wrap_text
from koff.cli.view_facts import describe_groups, list_unknown
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
REST_S = 5.0
"""The order is paused for so long after each move of the cursor."""
_STYLES = {"ERR": "bold red", "WARN": "yellow", "UNKNOWN": "magenta", "OK": "green"}

TakeViews = Callable[[Callable[[], bool]], Iterator[ClusterView]]
"""Views of the cluster until the function that it gets returns True."""


@dataclass(frozen=True, slots=True)
class LiveConf:
    """What the view shows of the cluster at `brokers`.

    `notes` are lines for the head, and may change. Groups for which `is_selected` holds are shown, at most
    `top` of them; with `group`, all about this one. With `seconds`, the view ends after so many.
    """

    brokers: str
    notes: Sequence[str] = ()
    is_selected: Callable[[str], object] = lambda name: True
    sort: Sort = "worst"
    is_lagging: bool = False
    top: int | None = None
    group: str | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One look at the cluster. `problems` are what koff could not find out; `at_s` is monotonic."""

    view: ClusterView
    totals: list[GroupTotal]
    problems: list[str]
    happenings: list[Happening]
    at_s: float
    sentences: dict[str, str] = field(default_factory=dict)

    def describe(self, totals: Sequence[GroupTotal]) -> dict[str, str]:
        """The sentences about these groups, and about the groups of earlier calls."""
        new = [total for total in totals if total.group.name not in self.sentences]
        self.sentences.update(describe_groups(self.view, new) if new else {})
        return self.sentences


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
        home: Page = "groups" if conf.group is None else "group"
        self._state = LiveState(
            sort=conf.sort, is_lagging=conf.is_lagging, home=home, page=home, opened=conf.group or ""
        )
        self._order, self._touched_s = QuietOrder(), -math.inf
        self._frame: Frame | None = None
        self._unknown_since = ""
        self._listed: list[GroupTotal] = []
        self._happenings: deque[Happening] = deque(maxlen=_KEPT)
        self._text_lines, self._rows = 0, 1
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
        return Frame(view, totals, list_unknown(view, rows, totals), happenings, time.monotonic())

    # --- The screen ---------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Static(id="head")
        yield Static(id="body")
        yield Static(id="foot")

    def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            loop.add_signal_handler(signal.SIGINT, self.action_end, INTERRUPTED)
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self.action_end, TERMINATED)
        self.set_interval(1.0, self._draw)  # the first line shows the age of the view
        if self._conf.seconds is not None:
            self.set_timer(max(self._conf.seconds, 0.001), lambda: self.action_end(0))
        self.app_resume_signal.subscribe(self, self._draw_all)
        self._thread.start()
        self._draw()

    def action_end(self, code: int) -> None:
        self._stopped.set()
        self.exit(code)

    def on_unmount(self) -> None:
        """Lets the thread close its connections, if it does so soon."""
        self._stopped.set()

    def on_key(self, event: Key) -> None:
        if event.key == "q" and not self._state.is_typing:
            self.action_end(0)
            return
        if event.key in MOVES or self._state.is_typing:
            self._touched_s = time.monotonic()
        self._state = press_key(self._state, event.key, event.character, self._screen())
        self._draw()

    def on_resize(self, _event: Resize) -> None:
        """Draws again: other columns may fit."""
        self.call_after_refresh(self._draw)

    def _show_frame(self, frame: Frame) -> None:
        if not (self._frame and self._frame.problems):
            self._unknown_since = datetime.now(UTC).strftime("%H:%M:%S UTC")
        self._frame = frame
        self._happenings.extend(frame.happenings)
        self._draw()

    def _screen(self) -> Screen:
        height = self._rows if self._state.page == "groups" else self._body_height()
        return Screen([total.group.name for total in self._listed], height, self._text_lines)

    @property
    def _is_paused(self) -> bool:
        return self._state.is_paused or time.monotonic() - self._touched_s < REST_S

    def _body_height(self) -> int:
        return max(self.size.height - len(self._head_lines()) - len(self._foot_lines()), 1)

    def _draw(self) -> None:
        if not self.is_running or self._stopped.is_set():
            return
        self._arrange()
        body = self._list_groups() if self._state.page == "groups" else self._scroll_text(self._read_page())
        for name, lines in (("head", self._head_lines()), ("body", body), ("foot", self._foot_lines())):
            text, part = self._join(lines), self.query_one(f"#{name}", Static)
            if part.content != text:  # else the terminal would flicker
                part.update(text)

    def _draw_all(self, _app: App[int]) -> None:
        """Draws also what has not changed: the shell has written over it meanwhile."""
        for part in self.query(Static):
            part.refresh()

    def _arrange(self) -> None:
        """Puts the groups of the newest frame in order, and the cursor on the chosen one."""
        state, frame = self._state, self._frame
        if frame is None:
            return
        now_s, is_paused = time.monotonic(), self._is_paused
        totals = self._order.arrange(frame.totals, state.sort, now_s, is_paused=is_paused)
        found = filter_totals(totals, state.text)
        self._listed = select_lagging(found, is_lagging=state.is_lagging)[: self._conf.top]
        self._state = state.follow([total.group.name for total in self._listed])

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
        """The text in this style, with the verdicts in their colors."""
        styled = Text(self._fit(text, self.size.width))
        words = style.split()
        styled.stylize(style if self._has_color else " ".join(w for w in words if w in ("bold", "reverse")))
        for verdict, color in _STYLES.items() if self._has_color else ():
            styled.highlight_regex(rf"(?<!\S)[1-9][\d,]* {verdict}(?!\S)", color)
        return styled

    def _head_lines(self) -> list[Text | str]:
        frame, width = self._frame, self.size.width
        age_s = None if frame is None else time.monotonic() - frame.at_s
        cluster = (frame.view.cluster if frame else None) or self._conf.brokers
        totals = frame.totals if frame and frame.view.knows_groups else None
        about = describe_cluster(cluster, totals, age_s, width)
        lines: list[Text | str] = [self._style(line, "bold") for line in about]
        lines += filter(None, self._conf.notes)
        if frame is not None and frame.problems:
            text = f"! not all is known since {self._unknown_since}: {'; '.join(frame.problems)}"
            lines += [self._style(line, "bold yellow") for line in wrap_text(text, width, self._most_lines)]
        return lines

    @property
    def _most_lines(self) -> int:
        """So many lines a sentence may have."""
        return 2 if self.size.height >= _SHOWN_FROM else 1

    def _foot_lines(self) -> list[Text | str]:
        lines: list[Text | str] = []
        if self._state.page == "groups" and self.size.height >= _SHOWN_FROM:
            lines += [f"{each.time}  {each.text}" for each in list(self._happenings)[-_SHOWN:]]
        return [*lines, self._style(describe_keys(self._state, is_paused=self._is_paused), "reverse")]

    def _list_groups(self) -> list[Text | str]:
        if self._frame is None:
            return [""]
        if not self._listed:
            absent = "no consumer groups" if self._frame.view.knows_groups else "no group is known"
            return ["no group matches" if self._frame.totals else absent]
        height, cursor = max(self._body_height() - 1, 1), self._state.window.cursor
        first = max(0, cursor - height)
        near = self._listed[first : cursor + height]
        sentences = self._frame.describe(near)
        table = format_groups(
            near,
            sentences,
            self.size.width - 2,
            trends=self._read_trends(near),
            most_lines=self._most_lines,
        )
        window, self._rows = self._state.window.settle([len(lines) for lines in table.groups], first, height)
        self._state = replace(self._state, window=window)
        result: list[Text | str] = [self._style(f"  {table.header}", "bold")]
        for row in range(window.top, window.top + self._rows):
            style = _STYLES.get(self._listed[row].status.name, "")
            for number, line in enumerate(table.groups[row - first]):
                mark = ">" if row == cursor and not number else " "
                text = Text(self._fit(f"{mark} {line}", self.size.width), "bold" if row == cursor else "")
                if self._has_color and not number:
                    text.stylize(style, 2, 2 + len(self._listed[row].status.name))
                result.append(text)
        return result[: height + 1]

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
        said = self._frame.describe([total for total in self._frame.totals if total.group.name == name])
        found["group"]["sentence"] = said.get(name, found["group"]["sentence"])
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
    return [" " * indent + part for part in wrap_text(line.strip(), max(width - indent, 10))]
