"""How koff's own connections log in, and what properties they take."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext

import pytest
from confluent_kafka import KafkaException, Producer

from koff.client import ClusterConf
from koff.client.addresses import parse_addresses
from koff.client.wire.credentials import build_tls_context, read_credentials
from koff.client.wire.sasl import Exchange, Refused, oauthbearer_exchange, plain_exchange, scram_exchange
from koff.errors import ConfigError

# The exchange of RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_scram_says_what_the_rfc_says():
    exchange = scram_exchange("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)
    assert next(exchange) == b"n,,n=user,r=" + NONCE.encode()
    assert exchange.send(SERVER_FIRST) == CLIENT_FINAL
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


def log_in(exchange: Exchange, *answers: bytes) -> None:
    next(exchange)
    for answer in answers:
        exchange.send(answer)


@pytest.mark.parametrize(
    ("first", "final", "why"),
    [
        (SERVER_FIRST, b"v=AAAA", "does not know the password"),
        (SERVER_FIRST, b"e=invalid-proof", "invalid-proof"),
        (SERVER_FIRST, b"", "does not know the password"),
        (SERVER_FIRST.replace(b"r=r", b"r=x"), b"", "nonce"),
        (SERVER_FIRST.replace(b"i=4096", b"i=0"), b"", "requires 0 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1"), b"", "requires 1 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=4095"), b"", "requires 4095 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=1000001"), b"", "requires 1000001 SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 40), b"", "SCRAM iterations"),
        (SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000), b"", "is missing or invalid"),
        (b"e=other-error", b"", "other-error"),
        (b"\xff\xff", b"", "is missing or invalid"),
    ],
)
def test_scram_refuses_a_server_that_proves_nothing(first, final, why):
    with pytest.raises(Refused, match=why):
        log_in(scram_exchange("SCRAM-SHA-256", "user", "pencil", nonce=NONCE), first, final)


def test_scram_escapes_names_and_makes_a_new_nonce_each_time():
    first, second = (next(scram_exchange("SCRAM-SHA-512", "a=b,c", "p")) for _ in range(2))
    assert first.startswith(b"n,,n=a=3Db=2Cc,r=")
    assert first != second


def test_plain_and_bearer_tokens_are_one_message():
    assert list(plain_exchange("ä", "p")) == [b"\0\xc3\xa4\0p"]
    exchange = oauthbearer_exchange("abc")
    assert next(exchange) == b"n,,\x01auth=Bearer abc\x01\x01"
    assert exchange.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(Refused):
        exchange.send(b"")


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, ""),
        ({"security.protocol": "SSL"}, ""),
        ({"security.protocol": "sasl_ssl", "sasl.mechanisms": "scram-sha-512"}, ""),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "DIGEST-MD5"}, "DIGEST-MD5"),
        ({"security.protocol": "ssl", "ssl.engine.id": "x"}, r"ssl\.engine\.id"),
        ({"security.protocol": "odd"}, "odd"),
    ],
)
def test_it_is_said_what_koff_does_not_support(properties, reason):
    conf = ClusterConf("a:1", {"sasl.username": "u", "sasl.password": "p", **properties})
    with pytest.raises(ConfigError, match=reason) if reason else nullcontext():
        read_credentials(conf)


def test_what_it_takes_to_log_in_is_asked_for_and_never_shown():
    properties = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
    with pytest.raises(ConfigError, match=r"SASL/PLAIN needs sasl\.password"):
        read_credentials(ClusterConf("a:1", properties))
    conf = ClusterConf("a:1", {**properties, "sasl.password": "hush"})
    assert "hush" not in repr(read_credentials(conf)) + repr(conf)
    assert read_credentials(conf).tls


SPELLINGS = [
    "true",
    "True",
    "tRUE",
    "t",
    "T",
    "1",
    "false",
    "F",
    "f",
    "0",
    "",
    " true",
    "yes",
    "on",
    "2",
    "no",
]
ENDPOINT_CHECKS = ["https", "HTTPS", "none", "None", "", "htps", "https ", "true", "0"]


@pytest.mark.parametrize(
    ("name", "value", "attribute"),
    [("enable.ssl.certificate.verification", each, "verify_mode") for each in SPELLINGS]
    + [("ssl.endpoint.identification.algorithm", each, "check_hostname") for each in ENDPOINT_CHECKS],
)
def test_a_check_is_off_only_where_librdkafka_reads_the_same_value_as_off(name, value, attribute):
    """`1` and `t` are true to librdkafka: koff once read them as false, and verified nothing."""
    try:
        Producer({"bootstrap.servers": "", name: value, "log_level": 0})
    except KafkaException:
        with pytest.raises(ConfigError, match=name):
            build_tls_context({name: value})
        return
    on = value.lower() in {"true", "t", "1", "https"}
    assert bool(getattr(build_tls_context({name: value}), attribute)) is on


def test_tls_is_checked_unless_the_properties_say_otherwise(tmp_path):
    assert build_tls_context({}).check_hostname
    assert not build_tls_context({"ssl.endpoint.identification.algorithm": "none"}).check_hostname
    assert not build_tls_context({"enable.ssl.certificate.verification": "false"}).verify_mode
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("secret nonsense")
    for name in ("ssl.ca.location", "ssl.certificate.location"):
        with pytest.raises(ConfigError, match=name) as refused:
            build_tls_context({name: str(nonsense), "ssl.key.password": "hush"})
        assert "hush" not in str(refused.value)


def test_addresses_are_read_as_librdkafka_reads_them():
    given = "a:1, SSL://b:2,[::1]:3,c,::1,[::1],fe80::1%eth0,"
    assert list(parse_addresses(given)) == [
        ("a", 1),
        ("b", 2),
        ("::1", 3),
        ("c", 9092),
        *[("::1", 9092)] * 2,
        ("fe80::1%eth0", 9092),
    ]
    for impossible in ("a:b", "a:0", "a:65536", "a:9092:1", "[a:1]:2", "[::1"):
        with pytest.raises(ConfigError, match="is not an address"):
            list(parse_addresses(f"b:1,{impossible}"))


def test_kio_is_not_imported_before_it_is_needed():
    code = "import sys, koff.client.groups.coordinators; assert 'kio' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
