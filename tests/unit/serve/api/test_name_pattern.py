"""Regular expressions of clients: the usual ones work, and none can stop the process."""

import random
import re
import time
from contextlib import suppress

import pytest

from koff.serve.api import name_pattern
from koff.serve.api.name_pattern import parse_pattern, search_names
from koff.serve.api.problems import Problem


@pytest.mark.parametrize(
    "text",
    [
        "",
        "payments",
        "^team-.*-prod$",
        "^(a|b|c)\\.",
        "[a-z]+",
        "x{2,3}",
        r"a\(b\)*",
        "[)*+(|]x",
        r"\.\*\+\?",
        "[]*]",
        "a--b[a-c]||x[^|-]",
        "[^]*+?]",
    ],
)
def test_usual_expressions_are_accepted(text: str):
    assert parse_pattern(text).pattern == text


@pytest.mark.parametrize(
    "text",
    [
        "(a*)*b",
        "(a|a)*b",
        "(a+)+",
        "(a){20}",
        ".*.*.*x",
        "(?:a|b)",
        "(?=a)",
        r"(a)\1",
        "[",
        "(",
        "*",
        "a**",
        "x" * 201,
        "[" * 250_000,
        "a{99999999999999999999}",
        "|".join("aaaaaaaaaa"),
        "(a)(b)(c)",
        "[[a]",
        "[]&&",
        "b[]+~~^",
        "[a--b]",
        "[a||b]",
    ],
)
def test_expressions_that_may_be_slow_or_are_wrong_are_refused(text: str):
    with pytest.raises(ValueError, match=re.escape(text[:3])):
        parse_pattern(text)


@pytest.mark.parametrize("text", [".*.*x", "[a-z]+[a-z]+$x", "(a|a|a|a|a)(a|a|a|a|a).*.*x"])
def test_the_slowest_accepted_expressions_take_no_seconds(text: str):
    began = time.process_time()
    assert search_names(parse_pattern(text), ["a" * 255, "a" * 30_000]) == [False, False]
    assert time.process_time() - began < 2


def test_a_name_that_is_too_long_is_not_cut():
    assert search_names(parse_pattern("a$"), ["a" * 255, "a" * 256, "a" * 255 + "b"]) == [True, False, False]


def test_a_search_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(name_pattern, "_DEADLINE_S", -1.0)
    with pytest.raises(Problem, match="takes too long"):
        search_names(parse_pattern("a"), ["a", "b"])


def test_no_expression_causes_anything_but_a_refusal():
    # Python prints a warning for some expressions; here it is an error.
    rng, accepted = random.Random(1), 0
    for _ in range(20_000):
        text = "".join(rng.choice("aab[]^-|()*+?{}1,\\.$&~wd") for _ in range(rng.randrange(1, 14)))
        with suppress(ValueError):
            search_names(parse_pattern(text), ["a" * 255])
            accepted += 1
    assert accepted > 5_000
