"""Remembers which brokers refuse a log-in, or a TLS handshake.

Such a broker is tried after `REFUSED_S`, then ever more rarely.

A broker may lock an account after some refusals, and logs each. koff's own connections check here before they
connect. All this is of one process.
"""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

from koff.client.cluster_conf import ClusterConf
from koff.client.secret_file import read_again
from koff.errors import LogInRefused

REFUSED_S, MOST_REFUSED_S = 10.0, 60.0
"""The pause after a refusal. It doubles with each further one, up to the second value."""
_JITTER = 0.1
"""It is longer by up to this share, so that many processes do not try at the same moment."""
_FORGET_S = 60.0

Address = tuple[str, int]
Identity = Hashable
"""The bootstrap servers and the properties for SASL and TLS, with what is in the files now."""


class _Refusal(NamedTuple):
    """When the broker may get a request again, the pause until then, and what it has said."""

    again_s: float
    pause_s: float
    text: str


class Refusals:
    """The refusals of the last minute, by who logs in and by broker. For many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Identity, dict[Address, _Refusal]] = defaultdict(dict)

    def check(self, identity: Identity, address: Address) -> None:
        """Raises `LogInRefused` if the broker has refused this log-in lately.

        Otherwise the caller may try. After a refusal, others may not until the caller notes the result.
        """
        now = time.monotonic()
        with self._lock:
            known = self._known.get(identity, {}).get(address)
            if known is None:
                return
            if now < known.again_s:
                raise LogInRefused(known.text)
            self._known[identity][address] = known._replace(again_s=now + REFUSED_S)

    def note(self, identity: Identity, address: Address, refusal: str) -> None:
        """Notes the result of an attempt. `refusal` is "" if the broker did not refuse the log-in."""
        now = time.monotonic()
        with self._lock:
            known = self._known[identity].pop(address, None)
            if refusal:
                pause_s = REFUSED_S if known is None else min(2 * known.pause_s, MOST_REFUSED_S)
                again_s = now + pause_s * random.uniform(1, 1 + _JITTER)  # noqa: S311  # no secret
                self._known[identity][address] = _Refusal(again_s, pause_s, refusal)
            for who, refused in list(self._known.items()):
                kept = {at: known for at, known in refused.items() if now < known.again_s + _FORGET_S}
                self._known[who] = kept
                if not kept:
                    del self._known[who]


REFUSALS = Refusals()


def identify(conf: ClusterConf, token: object = None) -> Identity:
    """Returns the bootstrap servers and the properties for SASL and TLS, with what is in the files now.

    That is the text of a password's file, and the time of a certificate's. `token` is the source of bearer
    tokens.
    """
    properties = {
        name: value for name, value in conf.properties.items() if name.startswith(("sasl.", "ssl."))
    }
    files = tuple(_read_time_ns(value) for name, value in properties.items() if name.endswith(".location"))
    return (conf.brokers, token, files, *sorted(read_again(properties).items()))


def _read_time_ns(path: str) -> int:
    """When the file was last written, 0 if there is none."""
    try:
        return Path(path).stat().st_mtime_ns
    except (OSError, ValueError):
        return 0
