"""Regular expressions that clients send, limited to those that are quick.

Python's `re` holds the interpreter's lock while it searches, and some expressions take exponential time. So
a client could stop the whole process with one request. What is refused here is seldom needed for names.
"""

import re
import time
from collections.abc import Iterable

from koff.serve.api.problems import Problem

MAX_CHARACTERS = 200
"""Of the expression."""
NAME_CHARACTERS = 255
"""A longer name is not searched. Topics have at most 249 characters."""
_MAX_COUNTS = {"*+?{": 2, "(": 2, "|": 8}
"""So often may these characters be in an expression. One name then takes 0.3 s at the worst."""
_DEADLINE_S = 1.0
"""Of this thread's own time: it holds the lock only while it runs. (To read the clock is cheaper.)"""
ALLOWED = (
    f"a regular expression of at most {MAX_CHARACTERS} characters, with at most two of * + ? and {{}}, none "
    "of them after a group, at most two groups, at most eight |, and no (?...) or back-reference"
)
# An escaped character, or a set such as [a-z]: in these, the characters that are counted mean themselves.
_ATOM = re.compile(r"\\[^0-9]|\[\^?+\]?+(?:\\.|[^\]\\])*\]", re.DOTALL)
_NESTED_SET = re.compile(r"^\[.*(?:\[|--|&&|~~|\|\|)", re.DOTALL)
"""A set of which Python warns: it may mean something else one day."""
_REFUSED = re.compile(r"\(\?|\)[*+?{]|\\[0-9]|\[")


def parse_pattern(text: str) -> re.Pattern[str]:
    """The expression. Raises `ValueError` if it is wrong or refused."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(text)
    # Checked before it is compiled: that may take long too, and prints warnings.
    plain = _ATOM.sub("x", text)
    counts = {signs: sum(map(plain.count, signs)) for signs in _MAX_COUNTS}
    is_refused = _REFUSED.search(plain) or any(map(_NESTED_SET.search, _ATOM.findall(text)))
    if is_refused or any(counts[s] > _MAX_COUNTS[s] for s in counts):
        raise ValueError(text)
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(text) from error


def search_names(pattern: re.Pattern[str], names: Iterable[str]) -> list[bool]:
    """In which of the names the pattern is found. Raises `Problem` if that takes too long."""
    found = []
    until_s, until_cpu_s = time.monotonic() + _DEADLINE_S, time.thread_time() + _DEADLINE_S
    for name in names:
        found.append(len(name) <= NAME_CHARACTERS and pattern.search(name) is not None)
        if time.monotonic() > until_s and time.thread_time() > until_cpu_s:
            raise Problem(400, "the search takes too long: use a simpler expression", parameter="match")
    return found
