"""Prometheus' web configuration file: what it may say, and what koff refuses."""

import builtins
import ssl
from pathlib import Path
from typing import Any

import pytest

from koff.errors import ConfigError
from koff.serve.access import AccessConf, Rules, read_rules
from tests.unit.serve.certificates import PASSWORD_HASH, get_authority, require_clients, write_server_files

HASH_TAIL = PASSWORD_HASH[7:]


def read(folder: Path, text: str) -> Rules:
    path = folder / "web.yml"
    path.write_text(text)
    return read_rules(AccessConf(path))


@pytest.mark.parametrize("text", ["", "{}", "tls_server_config:\nbasic_auth_users: {}\n"])
def test_an_empty_file_restricts_nothing(tmp_path, text):
    rules = read(tmp_path, text)
    assert (rules.tls, dict(rules.web.users), dict(rules.web.headers)) == (None, {}, {})


def test_every_supported_key_is_read(tmp_path):
    rules = read(
        tmp_path,
        write_server_files(tmp_path)
        + require_clients(tmp_path)
        + "  min_version: TLS12\n  max_version: TLS13\n  prefer_server_cipher_suites: false\n"
        "  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]\n"
        "  client_allowed_sans: [prometheus]\n"
        "http_server_config:\n  http2: true\n"
        "  headers:\n    X-Frame-Options: deny\n    X-XSS-Protection: '0'\n"
        f"basic_auth_users:\n  alice: {PASSWORD_HASH}\n  bob: $2y$10${HASH_TAIL}\n",
    )
    context = rules.tls.context
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE
    assert [c["name"] for c in context.get_ciphers() if c["protocol"] == "TLSv1.2"] == [
        "ECDHE-RSA-AES128-GCM-SHA256"
    ]
    assert rules.tls.allowed_sans == {"prometheus"}
    assert dict(rules.web.headers) == {"X-Frame-Options": "deny", "X-XSS-Protection": "0"}
    assert dict(rules.web.users) == {"alice": PASSWORD_HASH, "bob": f"$2y$10${HASH_TAIL}"}
    assert PASSWORD_HASH not in repr(rules)


def test_every_cipher_suite_of_the_format_is_known_to_openssl(tmp_path):
    from koff.serve.tls import _CIPHERS

    for name, its_own in _CIPHERS.items():
        rules = read(tmp_path, write_server_files(tmp_path) + f"  cipher_suites: [{name}]\n")
        assert its_own in [cipher["name"] for cipher in rules.tls.context.get_ciphers()]


def test_only_suites_of_tls_13_means_tls_13(tmp_path):
    rules = read(tmp_path, write_server_files(tmp_path) + "  cipher_suites: [TLS_AES_256_GCM_SHA384]\n")
    assert rules.tls.context.minimum_version == ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("NoClientCert", ssl.CERT_NONE),
        ("RequestClientCert", ssl.CERT_NONE),
        ("VerifyClientCertIfGiven", ssl.CERT_OPTIONAL),
        ("RequireAndVerifyClientCert", ssl.CERT_REQUIRED),
    ],
)
def test_what_clients_need_is_set(tmp_path, kind, mode):
    get_authority().cert_pem.write_to_path(tmp_path / "ca.pem")
    ca = "  client_ca_file: ca.pem\n" if mode != ssl.CERT_NONE else ""
    rules = read(tmp_path, write_server_files(tmp_path) + ca + f"  client_auth_type: {kind}\n")
    assert rules.tls.context.verify_mode == mode


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("client_auth_type: RequireAnyClientCert", "koff does not support RequireAnyClientCert"),
        ("client_auth_type: RequireAndVerifyClientCert", "needs client_ca_file"),
        ("client_auth_type: requireandverifyclientcert", "client_auth_type must be one of"),
        ("client_ca_file: cert.pem", "client_ca_file needs client_auth_type"),
        ("client_allowed_sans: [a]", "client_allowed_sans needs client_auth_type"),
        ("min_version: TLS10", "min_version must be one of TLS12, TLS13"),
        ("min_version: TLS13\n  max_version: TLS12", "min_version is above max_version"),
        ("cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]", "unknown name TLS_RSA_WITH_RC4_128_SHA"),
        ("cipher_suites: [TLS_AES_128_GCM_SHA256]\n  max_version: TLS12", "no suite for max_version"),
        ("cipher_suites: TLS_AES_128_GCM_SHA256", "line 4: tls_server_config.cipher_suites must be a list"),
        ("curve_preferences: [X25519]", "line 4: koff does not support curve_preferences"),
        ("cert: text", "line 4: koff does not support cert: use cert_file"),
        ("client_auth: x", "line 4: tls_server_config has the unknown key client_auth: use"),
        ("cert_file: key.pem", "line 4: tls_server_config has the key cert_file twice"),
        ("client_auth_type: [a]", "line 4: tls_server_config.client_auth_type must be a text"),
    ],
)
def test_what_koff_cannot_do_is_refused(tmp_path, lines, says):
    with pytest.raises(ConfigError, match=f"web.yml.*{says}".replace("[", r"\[")):
        read(tmp_path, write_server_files(tmp_path) + f"  {lines}\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tls_server_config: {min_version: TLS12}", "tls_server_config needs cert_file"),
        ("tls_server_config: {cert_file: no, key_file: no}", "cannot read .*: No such file"),
        ("tls_server_config: {cert_file: web.yml, key_file: web.yml}", "cannot use cert_file and key_file"),
        ("rate_limit: {interval: 1s}", "line 1: koff does not support rate_limit"),
        (f"basic_auth_users: {{a: {PASSWORD_HASH.replace('2b', '2')}}}", "line 1: .*.a is no bcrypt hash"),
        (
            f"basic_auth_users: {{a: {PASSWORD_HASH.replace('32.H', '32/H')}}}",
            "line 1: .*.a is no bcrypt hash",
        ),
        ("basic_auth_users: {a: hunter2}", "line 1: basic_auth_users.a is no bcrypt hash: make one with"),
        ("basic_auth_users: {'a:b': " + PASSWORD_HASH + "}", "line 1: .*has no colon"),
        (f"basic_auth_users: {{a: $2b$31${HASH_TAIL}}}", "line 1: .*the cost 31: use a cost from 4 to 18"),
        ("http_server_config: {headers: {Set-Cookie: a}}", "line 1: header Set-Cookie is not one of"),
        ("http_server_config: {headers: {X-Frame-Options: no}}", "must be deny or sameorigin"),
        (
            'http_server_config: {headers: {X-XSS-Protection: "a\\r\\nb"}}',
            "a character that no header may have",
        ),
        ("http_server_config: {http2: maybe}", "http2 must be true or false"),
        ("basic_auth_users: [a]", "basic_auth_users must be a mapping"),
        ("- a", "the file must be a mapping"),
        ("a: b: c", "line 1, column 5: the file is not YAML"),
        ("[" * 5000, "line 1: the file has values that are nested too deeply"),
        ('\n"\\UFFFFFFFF"', "line 2: the file is not YAML"),
        ('tls_server_config: {cert_file: "a\\0", key_file: b}', "cert_file must be a text"),
    ],
)
def test_errors_name_the_line_and_never_a_password(tmp_path, text, says):
    with pytest.raises(ConfigError, match=says) as caught:
        read(tmp_path, text)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*none.yml: No such file"):
        read_rules(AccessConf(tmp_path / "none.yml"))
    (tmp_path / "bytes.yml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=r"bytes\.yml, line 1: the file is not text in UTF-8"):
        read_rules(AccessConf(tmp_path / "bytes.yml"))


def test_without_bcrypt_users_are_refused(tmp_path, monkeypatch):
    import_module = builtins.__import__

    def hide(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "bcrypt":
            raise ImportError(name)
        return import_module(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", hide)
    with pytest.raises(ConfigError, match=r"needs the library bcrypt: pip install 'koff\[auth\]'"):
        read(tmp_path, f"basic_auth_users: {{a: {PASSWORD_HASH}}}")


# Tokens.


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no token"),
        ("# nothing\n\n", "has no token"),
        ("name", "line 1: a line is NAME TOKEN"),
        ("name short", "line 1: a token has at least 16 characters"),
        ("name a-long-enough-token\nname another-long-token", "line 2: a token with this name"),
        ("name sha256:abcdefabcdefabcdef", "line 1: sha256: is followed by 64"),
    ],
)
def test_wrong_lines_of_tokens_are_named_and_not_quoted(tmp_path, text, says):
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        read_rules(AccessConf(tokens_file=path))
    assert "token-" not in str(caught.value).replace("tokens", "")
    assert "abcdef" not in str(caught.value)
