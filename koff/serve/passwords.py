"""Checks passwords against bcrypt hashes, which takes some 70 ms for each.

- One thread checks, one password at a time: wrong passwords cost at most one core, and the event loop never
  waits.
- A password that was right is recognised by a keyed hash the next time. So a flood of wrong passwords does
  not delay a client that has logged in before.
- A client (an IP address) may have `CLIENT_CHECKS` passwords waiting, all clients `ALL_CHECKS`.
- A name of a user that does not exist takes as long as one of the users, always the same one.
"""

import hmac
import secrets
from collections import Counter
from collections.abc import Mapping

from koff.errors import ConfigError
from koff.serve.shared_calls import SharedCalls

CLIENT_CHECKS = 2
ALL_CHECKS = 32
_USED_BYTES = 72
"""bcrypt ignores what follows. Its library refuses longer passwords since version 5."""
_Check = tuple[str, bytes]
"""A bcrypt hash, and the password to check."""


class TooManyChecks(Exception):
    """Too many passwords wait to be checked."""


class Passwords:
    """Checks passwords. All methods but `stop` are for the thread of the event loop."""

    def __init__(self) -> None:
        self._calls = SharedCalls[_Check, bool](_check, "koff-passwords")
        self._key = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}
        """A keyed hash of the password with which a user has logged in last, and of its bcrypt hash."""
        self._waiting: Counter[str] = Counter()

    def stop(self) -> None:
        """Lets the thread end after the present check."""
        self._calls.stop()

    async def is_right(self, users: Mapping[str, str], user: str, password: bytes, client: str) -> bool:
        """Whether it is the password of the user. `users` has the bcrypt hashes. Raises `TooManyChecks`."""
        hashed = users.get(user) or self._find_fake_hash(users, user)
        password = password[:_USED_BYTES]
        keyed = hmac.digest(self._key, hashed.encode() + b"\0" + password, "sha256")
        if user in users and hmac.compare_digest(self._right.get(user, b""), keyed):
            return True
        if self._waiting[client] >= CLIENT_CHECKS or self._waiting.total() >= ALL_CHECKS:
            raise TooManyChecks
        self._waiting[client] += 1
        try:
            is_right = await self._calls.get((hashed, password)) and user in users
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]
        if is_right:
            self._right = {name: known for name, known in self._right.items() if name in users}
            self._right[user] = keyed
        return is_right

    def _find_fake_hash(self, users: Mapping[str, str], user: str) -> str:
        """A hash that no password has, and that takes as long to check as that of one of the users.

        Which one depends on the name, in a way that a client cannot know. Otherwise the time would tell which
        names exist if their hashes differ in cost.
        """
        known = list(users.values()) or ["$2b$10$"]
        place = int.from_bytes(hmac.digest(self._key, user.encode(), "sha256"), "big") % len(known)
        return f"$2b${known[place].split('$')[2]}${'.' * 53}"


def require_bcrypt() -> None:
    """Raises `ConfigError` if the library is missing."""
    try:
        import bcrypt  # noqa: F401 - not at the top: only passwords need it
    except ImportError:
        raise ConfigError("basic_auth_users needs the library bcrypt: pip install 'koff[auth]'") from None


def _check(check: _Check) -> bool:
    import bcrypt

    hashed, password = check
    try:
        return bcrypt.checkpw(password, hashed.encode())
    except ValueError:  # the password has a NUL
        return False
