"""Take a lexicon's file: all of it, or nothing where one line is bad."""

from __future__ import annotations

from dataclasses import dataclass

from synth.lexicons.csv_file import read_csv
from synth.lexicons.files import BadLine, checked
from synth.lexicons.keeping import Mode, put_entries
from synth.lexicons.pls_file import read_pls
from synth.models import Lexicon
from ttsweb.counted import counted


class BadLinesError(Exception):
    """Lines of a file that cannot be used; nothing was changed."""

    def __init__(self, lines: list[BadLine]) -> None:
        super().__init__(f"{counted(len(lines), 'line')} cannot be used")
        self.lines = lines


@dataclass(frozen=True)
class Imported:
    """Say what came of a file: entries added, entries there are now, what was left out and why."""

    added: int
    entries_total: int
    warnings: list[str]


def import_entries(lexicon: Lexicon, content: bytes, *, mode: Mode, format: str = "") -> Imported:
    """Put the entries of a file into a lexicon.

    Args:
        format: `csv` or `pls`; without it the file's first character says which it is.

    Raises:
        BadLinesError: lines cannot be used.
        FileRefusedError: the file as a whole cannot.
        LexiconError: too_many_entries, lexicon_not_found.
    """
    is_pls = format == "pls" or (not format and content.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"<")
    reading = read_pls(content, language=lexicon.language) if is_pls else read_csv(content)
    rules = checked(reading)
    if reading.bad:
        raise BadLinesError(sorted(reading.bad, key=lambda bad: bad.line))
    total = put_entries(lexicon, rules, mode)
    return Imported(len(rules), total, reading.warnings)
