"""Who may connect and what they may see, read from files that may change while koff runs.

`Access` reads the files again every `LOOK_S` seconds. If a new file is wrong, koff keeps what it
had and logs why.
"""

from __future__ import annotations

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
from koff.serve.tokens import Tokens, parse_tokens
from koff.serve.web_config import WebConfig, parse_web_config

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
        """Starts to look for changes."""
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
