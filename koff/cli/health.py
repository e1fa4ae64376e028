"""`koff health`: asks a running `koff monitor` how it is, for probes of containers without curl.

A probe runs every few seconds. So this command imports next to nothing: not numpy, no log, no http.client.
"""

import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click import option

from koff.cli.listening_process import find_listen_address
from koff.config.kinds import FILE, checked, number
from koff.serve.listen_address import DEFAULT_LISTEN, parse_listen_address

if TYPE_CHECKING:
    import ssl

_ANY = ("", "::", "0.0.0.0")  # noqa: S104 - addresses that a server listens on, not this command
_LONGEST_BYTES = 10_000


@click.command()
@option(
    "--listen",
    default=DEFAULT_LISTEN,
    envvar="KOFF_MONITOR_LISTEN",
    type=checked("HOST:PORT", parse_listen_address),
    help="The address that koff monitor listens on.",
)
@option(
    "--find",
    is_flag=True,
    help="Ask the koff of this user that listens, wherever it does (on Linux; for containers): --listen "
    "holds if there is none.",
)
@option("--ready", is_flag=True, help="Ask for /readyz, not /healthz.")
@option("--tls", is_flag=True, help="Connect with TLS. The certificate is not checked: no secret is sent.")
@option(
    "--client-cert",
    type=FILE,
    help="A client certificate in PEM, if koff monitor requires one. Connects with TLS.",
)
@option("--client-key", type=FILE, help="Its key, if that is not in the same file.")
@option("--timeout", "timeout_s", default=4.0, type=number("SECONDS", 0.1), help="Deadline.")
def health(
    listen: str,
    find: bool,
    ready: bool,
    tls: bool,
    client_cert: Path | None,
    client_key: Path | None,
    timeout_s: float,
) -> None:
    """Ask a running `koff monitor` for /healthz or /readyz, and print its response.

    Exits with 0 if the response is 200, else with 1. For probes: a container needs no curl.

    \b
    Examples:
      koff health
      koff health --ready --listen :9850
    """
    path = "/readyz" if ready else "/healthz"
    context = None
    if tls or client_cert is not None:
        try:
            context = _build_context(client_cert, client_key)
        except OSError as error:  # ssl.SSLError is an OSError
            click.echo(f"cannot use the client certificate {client_cert}: {error.strerror or error}")
            sys.exit(1)
    status, text = _fetch((find_listen_address() if find else None) or listen, path, context, timeout_s)
    click.echo(text)
    sys.exit(0 if status == 200 else 1)


def _build_context(client_cert: Path | None, client_key: Path | None) -> "ssl.SSLContext":
    """TLS with this certificate of the client. Raises `OSError` if it cannot be used."""
    import ssl  # takes 4 MiB

    # The name in the server's certificate is that of the service, not of this machine.
    context = ssl._create_unverified_context()  # noqa: S323 - nothing secret is sent, and little received
    if client_cert is not None:
        client_cert.open("rb").close()  # ssl's error says less
        # Always give a password: otherwise OpenSSL asks at the terminal for the password of an encrypted key.
        context.load_cert_chain(client_cert, client_key, "")
    return context


def _fetch(listen: str, path: str, context: "ssl.SSLContext | None", timeout_s: float) -> tuple[int, str]:
    """Status and text of the response. If there is none, the status is 0, and the text says why."""
    host, port = parse_listen_address(listen)
    if host in _ANY:
        host = "localhost"
    try:
        with socket.create_connection((host, port), timeout_s) as opened:
            connection = context.wrap_socket(opened, server_hostname=host) if context is not None else opened
            with connection:
                # HTTP/1.0: the body is what comes until the server closes, and not in chunks.
                connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
                received = _receive(connection)
    except TimeoutError:
        return 0, f"koff monitor at {host}:{port} does not respond within {timeout_s:g} s"
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host can be so long
        return 0, f"no response from koff monitor at {host}:{port}: {error}"
    head, _, body = received.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] (\d{3})([^\r\n]*)", head)
    if status is None:
        return 0, f"no response from koff monitor at {host}:{port}: what is there does not speak HTTP"
    text = body.decode(errors="replace").strip()
    return int(status[1]), text or b"".join(status.groups()).decode("latin-1")


def _receive(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection, but not more than `_LONGEST_BYTES`."""
    received = b""
    while len(received) < _LONGEST_BYTES and (part := connection.recv(4096)):
        received += part
    return received
