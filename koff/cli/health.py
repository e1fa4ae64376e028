"""`koff health`: asks a running `koff monitor` how it is, for probes of containers without curl."""

from __future__ import annotations

import http.client
import ssl
import sys
from pathlib import Path

import click

from koff.cli.options import FiniteRange, option
from koff.serve.listening import ServeConf

_ANY = ("", "::", "0.0.0.0")  # noqa: S104 - addresses that a server listens on, not this command
_LONGEST_BYTES = 10_000


@click.command()
@option(
    "--listen",
    default="127.0.0.1:9850",
    envvar="KOFF_MONITOR_LISTEN",
    metavar="HOST:PORT",
    help="The address that koff monitor listens on.",
)
@option("--ready", is_flag=True, help="Ask for /readyz, not /healthz.")
@option("--tls", is_flag=True, help="Connect with TLS. The certificate is not checked: no secret is sent.")
@option(
    "--client-cert",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A client certificate in PEM, if koff monitor requires one. Connects with TLS.",
)
@option(
    "--client-key",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Its key, if that is not in the same file.",
)
@option("--timeout", "timeout_s", default=4.0, type=FiniteRange(min=0.1), metavar="SECONDS", help="Deadline.")
def health(
    listen: str,
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
    status, text = _fetch(listen, path, context, timeout_s)
    click.echo(text)
    sys.exit(0 if status == http.client.OK else 1)


def _build_context(client_cert: Path | None, client_key: Path | None) -> ssl.SSLContext:
    """TLS with this certificate of the client. Raises `OSError` if it cannot be used."""
    # The name in the server's certificate is that of the service, not of this machine.
    context = ssl._create_unverified_context()  # noqa: S323 - nothing secret is sent, and little received
    if client_cert is not None:
        client_cert.open("rb").close()  # ssl's error says less
        # Always give a password: otherwise OpenSSL asks at the terminal for the password of an encrypted key.
        context.load_cert_chain(client_cert, client_key, "")
    return context


def _fetch(listen: str, path: str, context: ssl.SSLContext | None, timeout_s: float) -> tuple[int, str]:
    """Status and text of the response. If there is none, the status is 0, and the text says why."""
    host, port = ServeConf(listen).parse_address()
    if host in _ANY:
        host = "localhost"
    if context is not None:
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read(_LONGEST_BYTES).decode(errors="replace").strip()
    except TimeoutError:
        return 0, f"koff monitor at {host}:{port} does not respond within {timeout_s:g} s"
    except (OSError, http.client.HTTPException) as error:
        return 0, f"no response from koff monitor at {host}:{port}: {error}"
    finally:
        connection.close()
    return response.status, text or f"{response.status} {response.reason}"
