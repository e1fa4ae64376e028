"""`koff decode`: what bytes mean, without a cluster."""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Callable
from typing import TextIO

import click

from koff.cli.decode_segments import segments
from koff.cli.options import option
from koff.cli.record_formats import FORMATS, format_named
from koff.records import decode as decode_offsets
from koff.records import decode_share_state

_LINE_FORMATS = [name for name in FORMATS if name != "raw"]


@click.group(invoke_without_command=True)
@option(
    "--format", "form", type=click.Choice(_LINE_FORMATS), default="text", help="kafka: as Kafka's formatters."
)
@option("--base64", "as_base64", is_flag=True, help="The pairs are base64 instead of hex.")
@option("--share-state", is_flag=True, help="They are records of __share_group_state.")
@click.pass_context
def decode(ctx: click.Context, form: str, as_base64: bool, share_state: bool) -> None:
    """Decode records without a cluster: pairs from standard input, or log segments.

    Standard input holds a pair a line, `KEYHEX VALUEHEX`, where `-` is a null and `e` is empty; for every
    line a line is printed. Exit code 1 when a line was no such pair (the others are decoded all the same).

    \b
    Examples:
      echo 0001000167000174 00000000 - | koff decode
      koff printer --brokers localhost:9092 --no-follow --format raw | koff decode --format kafka
      koff decode segments /var/lib/kafka/__consumer_offsets-7
    """
    if ctx.invoked_subcommand is not None:
        return
    if sys.stdin.isatty():
        click.echo("reading pairs from the terminal, a line each; Ctrl-D ends", err=True)
    meaning = decode_share_state if share_state else decode_offsets
    show = format_named(form)
    ctx.exit(
        _decode_lines(sys.stdin, lambda key, value: show(None, meaning(key, value)), as_base64=as_base64)
    )


decode.add_command(segments)


def _decode_lines(
    lines: TextIO, line_of: Callable[[bytes | None, bytes | None], str], *, as_base64: bool
) -> int:
    """Prints a line for each, and returns the exit code."""
    refused = 0
    for number, line in enumerate(lines, 1):
        try:
            key, value = (_bytes(word, as_base64=as_base64) for word in line.split())
        except ValueError:
            refused += 1
            reason = f"line {number} is no pair KEY VALUE in {'base64' if as_base64 else 'hex'}"
            sys.stdout.write(json.dumps({"error": reason}) + "\n")
        else:
            sys.stdout.write(line_of(key, value) + "\n")
        sys.stdout.flush()
    if refused:
        click.echo(f"Error: {refused} lines were no pairs", err=True)
    return 1 if refused else 0


def _bytes(word: str, *, as_base64: bool) -> bytes | None:
    """The bytes of one word; raises `ValueError`."""
    if word == "-":
        return None
    if word == "e":
        return b""
    try:
        return base64.b64decode(word, validate=True) if as_base64 else bytes.fromhex(word)
    except binascii.Error as failure:
        raise ValueError(str(failure)) from failure
