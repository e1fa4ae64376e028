"""Tables as CSV (RFC 4180), with the line ends of Unix."""

import csv
from collections.abc import Iterable
from typing import TextIO


class _UnixLines:
    """Gets a row at a time from a writer, whose line terminator says which characters it quotes."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, line: str) -> int:
        return self._out.write(line.removesuffix("\r\n") + "\n")


def write_csv(out: TextIO, names: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Writes a head and rows. A text with a comma, a quote, CR or LF is quoted.

    Python before 3.13 quotes a lone CR, with which many programs end a row, only with such a terminator.
    """
    writer = csv.writer(_UnixLines(out), lineterminator="\r\n")
    writer.writerow(names)
    writer.writerows(rows)
