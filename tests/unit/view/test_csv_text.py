"""Tables as CSV: what programs read of them again."""

import csv
import io

from koff.view.csv_text import write_csv


def test_a_text_with_a_lone_cr_stays_in_its_row():
    rows: list[list[object]] = [["a\rb", 1, None], ["c\nd", "e,f", '"']]
    out = io.StringIO(newline="")
    write_csv(out, ["x", "y", "z"], rows)
    assert out.getvalue() == 'x,y,z\n"a\rb",1,\n"c\nd","e,f",""""\n'
    read = list(csv.reader(io.StringIO(out.getvalue(), newline="")))
    assert read[1:] == [["a\rb", "1", ""], ["c\nd", "e,f", '"']]
