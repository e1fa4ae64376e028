"""`koff decode`: decodes records without a cluster."""

import base64
import binascii
import json
import sys
from collections.abc import Callable
from typing import TextIO

import click
from click import option

from koff.cli.decode_segments import segments
from koff.cli.record_formats import FORMATS, find_format
from koff.errors import ConfigError
from koff.records import decode as decode_offsets
from koff.records import decode_share_state

_NAMED = 10
"""So many lines that are no pairs are named."""
_LINE_FORMATS = [name for name in FORMATS if name != "raw"]


@click.group(invoke_without_command=True)
@option("--format", "form", type=click.Choice(_LINE_FORMATS), default="text", help="As in koff printer.")
@option("--base64", "as_base64", is_flag=True, help="The pairs are in base64 instead of hex.")
@option("--share-state", is_flag=True, help="The records are of __share_group_state.")
@click.pass_context
def decode(ctx: click.Context, form: str, as_base64: bool, share_state: bool) -> None:
    """Decode records without a cluster: pairs from standard input, or log segments.

    Standard input holds one pair per line: `KEYHEX VALUEHEX`, where `-` is null and `e` is empty. koff prints
    one line for each. If a line is not such a pair, the exit code is 1; the other lines are still decoded.

    \b
    Examples:
      echo 000100016700017400000000 - | koff decode
      koff printer --brokers localhost:9092 --no-follow --format raw | koff decode --format kafka
      koff decode segments /var/lib/kafka/__consumer_offsets-7
    """
    if ctx.invoked_subcommand is not None:
        return
    if sys.stdin is None:
        raise ConfigError("standard input is closed: give koff decode pairs to read, or name log segments")
    if sys.stdin.isatty():
        click.echo("reading pairs KEYHEX VALUEHEX from the terminal, one per line; Ctrl-D ends", err=True)
    decode_record = decode_share_state if share_state else decode_offsets
    show = find_format(form)
    ctx.exit(
        _decode_lines(
            sys.stdin, lambda key, value: show(None, decode_record(key, value)), as_base64=as_base64
        )
    )


decode.add_command(segments)


def _decode_lines(
    lines: TextIO, format_pair: Callable[[bytes | None, bytes | None], str], *, as_base64: bool
) -> int:
    """Prints one line for each line of the input. Returns the exit code."""
    invalid: list[int] = []
    for number, line in enumerate(lines, 1):
        try:
            key, value = (_parse_word(word, as_base64=as_base64) for word in line.split())
        except ValueError:
            invalid.append(number)
            reason = f"line {number} is not a pair KEY VALUE in {'base64' if as_base64 else 'hex'}"
            sys.stdout.write(json.dumps({"error": reason}) + "\n")
        else:
            sys.stdout.write(format_pair(key, value) + "\n")
        sys.stdout.flush()  # each line at once, for a reader at the other end of a pipe
    if invalid:
        named = ", ".join([*map(str, invalid[:_NAMED]), *(["..."] if len(invalid) > _NAMED else [])])
        which = f"line {named} is not a pair" if len(invalid) == 1 else f"lines {named} are not pairs"
        click.echo(f"Error: {which} KEY VALUE: write two words, - for null, e for empty", err=True)
    return 1 if invalid else 0


def _parse_word(word: str, *, as_base64: bool) -> bytes | None:
    """The bytes of a key or value. Raises `ValueError`."""
    if word == "-":
        return None
    if word == "e":
        return b""
    try:
        return base64.b64decode(word, validate=True) if as_base64 else bytes.fromhex(word)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
