"""Who may connect and what they may see, read from files that may change while koff runs.

`Access` reads the files again every `LOOK_S` seconds. If a new file is wrong, koff keeps what it
had and logs why.
"""

import hashlib
import hmac
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from koff.errors import ConfigError, KoffError
from koff.logs import get_logger
from koff.serve.config_files import MAX_BYTES, read_text
from koff.serve.passwords import require_bcrypt
from koff.serve.tls import ServerTls, build_server_tls
from koff.serve.web_config import WebConfig, parse_web_config

MIN_LENGTH = 16
_HASHED = "sha256:"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The SHA-256 of each token, by the name that the file gives it."""

    hashes: Mapping[str, bytes] = field(repr=False)

    def find_name(self, token: str) -> str | None:
        """The name of the token, None if it is none of them. Takes equally long for each token."""
        hashed = _hash(token)
        found = [name for name, known in self.hashes.items() if hmac.compare_digest(known, hashed)]
        return found[0] if found else None


def parse_tokens(path: Path, text: str) -> Tokens:
    """The tokens in the text of the file `path`: `NAME TOKEN` or `NAME sha256:HEX` in each line.

    Raises `ConfigError`, which never quotes a line.
    """
    hashes: dict[str, bytes] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        words, where = line.split(), f"{path}, line {number}"
        if len(words) != 2:
            raise ConfigError(f"{where}: a line is NAME TOKEN or NAME {_HASHED}HEX")
        name, token = words
        if name in hashes:
            raise ConfigError(f"{where}: a token with this name is already there")
        hashes[name] = (
            _read_hash(token.removeprefix(_HASHED), where) if token.startswith(_HASHED) else _hash(token)
        )
        if len(token) < MIN_LENGTH:
            raise ConfigError(f"{where}: a token has at least {MIN_LENGTH} characters")
    if not hashes:
        raise ConfigError(f"{path} has no token: a line is NAME TOKEN")
    return Tokens(hashes)


def _read_hash(text: str, where: str) -> bytes:
    try:
        found = bytes.fromhex(text)
    except ValueError:
        found = b""
    if len(found) != hashlib.sha256().digest_size:
        raise ConfigError(f"{where}: {_HASHED} is followed by 64 hexadecimal digits")
    return found


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


log = get_logger("serve")

LOOK_S = 1.0
TokensFor = Literal["api", "all"]


@dataclass(frozen=True, slots=True)
class AccessConf:
    """The files that say who may connect. Without any, all may.

    `tokens_for` says which paths need a token: those of the API, or all.
    """

    web_config_file: Path | None = None
    tokens_file: Path | None = None
    tokens_for: TokensFor = "api"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the files said when they were read."""

    web: WebConfig = field(default_factory=WebConfig)
    tls: ServerTls | None = None
    tokens: Tokens | None = None


class Access:
    """The present rules. Raises `ConfigError` at creation if a file is wrong."""

    def __init__(self, conf: AccessConf) -> None:
        self.conf = conf
        self._contents: Mapping[Path, bytes | str] = {}
        self.rules = read_rules(conf)
        """Another thread replaces the rules, and never changes them."""
        self._contents = self._read_files()
        self._why = ""
        """Why the files are not applied; "" if they are."""
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="koff-access", daemon=True)

    def take_tls(self) -> ServerTls:
        """TLS for a connection that is made now. Only for a server with TLS."""
        assert self.rules.tls is not None  # it is not removed while koff runs
        return self.rules.tls

    def start(self) -> None:
        if self.conf.web_config_file or self.conf.tokens_file:
            self._thread.start()

    def stop(self) -> None:
        """Lets the thread end. Does not wait for that: a file system may hang."""
        self._is_stopping.set()

    def _run(self) -> None:
        while not self._is_stopping.wait(LOOK_S):
            contents = self._read_files()
            # Files that are wrong are read each time: they may name a file that will come later.
            if contents != self._contents or self._why:
                # Noted before the rules are read: a file that changes meanwhile is read again.
                self._contents = contents
                try:
                    self._apply()
                except Exception:  # a fault of koff must not end the thread
                    log.exception("the files for access cannot be read")

    def _apply(self) -> None:
        try:
            rules = read_rules(self.conf)
            _check_nothing_is_removed(self.rules, rules)
        except KoffError as error:
            if str(error) != self._why:
                self._why = str(error)
                log.error("the files for access are wrong, and are not applied", why=self._why)
            return
        self.rules, self._why = rules, ""
        log.info("the files for access were read again", users=len(rules.web.users))

    def _read_files(self) -> dict[Path, bytes | str]:
        """The contents of all files by path; of one that cannot be read, the error."""
        files = [path for path in (self.conf.web_config_file, self.conf.tokens_file) if path is not None]
        if self.rules.web.tls is not None:
            files += self.rules.web.tls.list_files()
        return dict(_read_each(files))


def read_rules(conf: AccessConf) -> Rules:
    """Reads all files. Raises `ConfigError`."""
    web, tls, tokens = WebConfig(), None, None
    if conf.web_config_file is not None:
        web = parse_web_config(conf.web_config_file, read_text(conf.web_config_file))
        try:
            tls = build_server_tls(web.tls) if web.tls is not None else None
            if web.users:
                require_bcrypt()
        except ConfigError as error:
            raise ConfigError(f"{conf.web_config_file}: {error}") from None
    if conf.tokens_file is not None:
        tokens = parse_tokens(conf.tokens_file, read_text(conf.tokens_file))
    return Rules(web, tls, tokens)


def _check_nothing_is_removed(old: Rules, new: Rules) -> None:
    """Raises `ConfigError` if the new rules do not ask clients for what the old ones ask for.

    The file may be written at this moment, and only its first lines may be there: that must let nobody in.
    """
    if (old.tls is None) != (new.tls is None):
        raise ConfigError("tls_server_config was added or removed, which needs a restart")
    if old.web.users and not new.web.users:
        raise ConfigError("basic_auth_users was removed, which needs a restart")
    if old.tls is not None and new.tls is not None:
        if old.tls.context.verify_mode > new.tls.context.verify_mode:
            raise ConfigError("client_auth_type was removed or weakened, which needs a restart")
        if old.tls.allowed_sans and not new.tls.allowed_sans:
            raise ConfigError("client_allowed_sans was removed, which needs a restart")


def _read_each(files: Iterable[Path]) -> Iterator[tuple[Path, bytes | str]]:
    for path in files:
        try:
            with path.open("rb") as opened:
                yield path, opened.read(MAX_BYTES + 1)
        except OSError as error:
            yield path, str(error)
