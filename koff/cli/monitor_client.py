"""What a running `koff monitor` responds to other commands."""

import json
import ssl
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import click

from koff.config.kinds import EXISTING_FILE
from koff.errors import ConfigError, KoffError

_TIMEOUT_S = 30.0
url_option = click.option(
    "--url", default="http://127.0.0.1:9850", show_default=True, help="Where koff monitor is."
)
ca_option = click.option(
    "--ca", type=EXISTING_FILE, help="The authorities in PEM that koff monitor's certificate is checked with."
)


class MonitorClient:
    """Reads what koff monitor serves at `url`. `ca` is a PEM file that its certificate is checked with."""

    def __init__(self, url: str, ca: Path | None = None) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"--url {url}: it must begin with http:// or https://")
        self.url = url.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca) if ca or url.startswith("https:") else None

    def get(self, path: str, *, accept: str, authorization: str | None, most_bytes: int) -> bytes:
        """The body of the response to GET `path`. Raises `KoffError` with what koff monitor says."""
        request = Request(f"{self.url}{path}", headers={"Accept": accept})  # noqa: S310 - http or https
        if authorization:
            request.add_header("Authorization", authorization)
        try:
            with urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as response:  # noqa: S310
                body: bytes = response.read(most_bytes + 1)
        except HTTPError as error:
            raise KoffError(f"koff monitor says {error.code}: {_read_error(error)}") from error
        except (URLError, OSError) as error:
            why = error.reason if isinstance(error, URLError) else error
            raise KoffError(f"koff monitor at {self.url} does not respond: {why}") from error
        if len(body) > most_bytes:
            raise KoffError(f"the response to {path} is longer than {most_bytes} bytes: ask for less")
        return body


def read_token(path: Path | None) -> str | None:
    """The header Authorization for the token in a file."""
    return f"Bearer {path.read_text().strip()}" if path else None


def _read_error(error: HTTPError) -> str:
    text = error.read(2000).decode(errors="replace")
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, LookupError, TypeError):
        return text.strip() or error.reason
