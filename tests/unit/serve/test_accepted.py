"""Which format a client gets, and whether it is compressed."""

import pytest

from koff.serve.accepted import OPENMETRICS, PROMETHEUS_TEXT, accepts_gzip, choose_format

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    "accept",
    [
        PROMETHEUS_3,
        "application/openmetrics-text",
        "Application/OpenMetrics-Text ; Version=1.0.0",
        "text/plain;q=0.5, application/openmetrics-text;q=0.5",
        "text/plain;q=0, application/openmetrics-text;q=0.1, */*",
    ],
)
def test_openmetrics_are_for_clients_that_name_them(accept):
    assert choose_format([accept]) is OPENMETRICS


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/html",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;version=0.0.1",
        "application/openmetrics-text;q=0.4,text/plain;q=0.5",
        "application/openmetrics-text;q=0.4,*/*;q=0.5",
        "application/openmetrics-text;q=high",
        "application/openmetrics-text;q=nan",
        ";;,=;q",
    ],
)
def test_all_others_get_text(accept):
    assert choose_format([accept]) is PROMETHEUS_TEXT


def test_a_header_may_come_in_parts():
    assert choose_format(["text/plain;q=0.1", "application/openmetrics-text"]) is OPENMETRICS
    assert accepts_gzip(["br", "gzip"])


@pytest.mark.parametrize(
    "accepted", ["gzip", "deflate, GZIP;q=0.5", "x-gzip", "*", "gzip;q=1.0, identity;q=0.5"]
)
def test_gzip_is_for_clients_that_accept_it(accepted):
    assert accepts_gzip([accepted])


@pytest.mark.parametrize(
    "accepted",
    [
        "",
        "identity",
        "gzip;q=0",
        "gzip; q=0.000, *",
        "*;q=0",
        "br",
        "gzip;q=0.5, identity",
        "gzip;q=-1",
        "gzipped",
    ],
)
def test_others_get_a_plain_body(accepted):
    assert not accepts_gzip([accepted])


def test_the_formats_say_what_they_are():
    assert PROMETHEUS_TEXT.content_type.startswith("text/plain; version=0.0.4")
    assert OPENMETRICS.content_type.startswith("application/openmetrics-text; version=1.0.0")
