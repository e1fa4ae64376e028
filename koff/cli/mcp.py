"""`koff mcp`: lets agents ask a running `koff monitor`, by the Model Context Protocol. It reads only."""

import sys
from pathlib import Path

import click
from click import option

from koff.cli.monitor_client import MonitorClient, ca_option, read_token, url_option
from koff.config.kinds import EXISTING_FILE, checked
from koff.errors import ConfigError
from koff.serve.listen_address import parse_listen_address

_MISSING = "koff mcp needs the MCP package: pip install 'koff[mcp]'"


@click.command()
@url_option
@option(
    "--listen",
    type=checked("HOST:PORT", parse_listen_address),
    help="Serve agents by HTTP on /mcp, in place of standard input and output.",
)
@option(
    "--token-file",
    type=EXISTING_FILE,
    help="The token for koff monitor. With --listen, each agent sends its own.",
)
@ca_option
def mcp(url: str, listen: str | None, token_file: Path | None, ca: Path | None) -> None:
    """Serve what koff monitor knows to agents, by the Model Context Protocol. Nothing can be changed.

    An agent sees what its token may see (docs/security.md): koff mcp only passes requests on.

    \b
    Examples:
      koff mcp --url http://koff:9850
      koff mcp --url https://koff:9850 --ca ca.pem --listen 127.0.0.1:9851
    """
    if listen and token_file:
        raise ConfigError("--token-file and --listen exclude each other: each agent sends its own token")
    try:
        from koff.cli.mcp_tools import Monitor, build_server
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{_MISSING} ({error})") from error
    server = build_server(Monitor(MonitorClient(url, ca), read_token(token_file)))
    if listen is None:
        click.echo(f"koff mcp reads requests from standard input, and asks {url}", err=True)
        server.run()
        return
    host, port = parse_listen_address(listen)
    click.echo(f"agents connect to http://{host or 'localhost'}:{port}/mcp", err=True)
    server.run("streamable-http", host=host or "0.0.0.0", port=port, stateless_http=True)  # noqa: S104
    sys.exit(0)
