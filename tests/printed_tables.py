"""The tables that psctl prints, for tests to compare."""

from __future__ import annotations

from itertools import takewhile


def table_rows(text: str, *titles: str) -> list[str]:
    """The rows of all tables in a text, without headings and with one space between cells.

    `titles` are those of the tables; a table goes to the next title or to an empty line.
    """
    lines = [" ".join(line.split()) for line in text.splitlines()]
    begins = [number for number, line in enumerate(lines) if line.startswith("──")]
    return [row for begin in begins for row in takewhile(lambda row: row and row not in titles, lines[begin + 1 :])]
