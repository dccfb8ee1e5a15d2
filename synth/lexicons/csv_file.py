"""Read and write lexicons as CSV that spreadsheets open without running anything in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

from synth.lexicons.files import BadLine, FileEntry, FileRefusedError, Reading, decoded, one_of
from synth.models import LexiconEntry
from ttsweb.counted import counted

COLUMNS = ("find", "say", "kind", "case_sensitive", "language", "enabled")
_NEEDED = ("find", "say")
_FLAGS = ("case_sensitive", "enabled")
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
# A spreadsheet takes a cell that begins like this for a formula; an apostrophe makes it a text.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")  # noqa: RUF001  # they too


def write_csv(entries: Iterable[LexiconEntry]) -> bytes:
    """Return entries as CSV: UTF-8 with its mark, commas, one line of column names."""
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow(COLUMNS)
    for entry in entries:
        flags = [str(flag).lower() for flag in (entry.case_sensitive, entry.enabled)]
        cells = [entry.find, entry.say, entry.kind, flags[0], entry.language, flags[1]]
        writer.writerow(map(_as_text, cells))
    return file.getvalue().encode("utf-8-sig")


def read_csv(content: bytes) -> Reading:
    """Read what `write_csv` writes; columns may be in any order, `find` and `say` must be there.

    Raises:
        FileRefusedError: file_too_large, file_not_utf8, file_empty, csv_columns.
    """
    text = decoded(content)
    reading = Reading()
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    names: list[str] | None = None
    line = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                if names is None:
                    names = _column_names(row)
                else:
                    _read_row(reading, line, names, row)
                    if reading.is_enough():
                        break
            line = reader.line_num + 1
    except csv.Error as error:
        reading.bad.append(BadLine(line, "", "csv_invalid", f"The file is not CSV: {error}."))
    if names is None and not reading.bad:
        raise _bad_columns("the file has no line of column names")
    return reading


def _column_names(row: list[str]) -> list[str]:
    names = [cell.strip().lower() for cell in row]
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise _bad_columns(f"{unknown[0][:50]!r} is not one of them")
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise _bad_columns(f"{missing[0]!r} is missing")
    if len(set(names)) < len(names):
        raise _bad_columns("a column is given twice")
    return names


def _bad_columns(what: str) -> FileRefusedError:
    return FileRefusedError(
        "csv_columns",
        f"The first line must name the columns, separated by commas: {one_of(COLUMNS)}; {what}.",
    )


def _read_row(reading: Reading, line: int, names: list[str], row: list[str]) -> None:
    if len(row) != len(names):
        sentence = (
            f"The line has {counted(len(row), 'cell')}, but the first line names "
            f"{counted(len(names), 'column')}."
        )
        reading.bad.append(BadLine(line, "", "csv_cells", sentence))
        return
    values: dict[str, Any] = {
        name: _as_written(cell) for name, cell in zip(names, row, strict=True)
    }
    for name in ("kind", "language", *_FLAGS):
        values[name] = values.get(name, "").strip()
    for name in _FLAGS:
        word = values[name].lower()
        if word not in (*_TRUE, *_FALSE, ""):
            reading.bad.append(BadLine(line, name, "invalid", "Expected true or false."))
            return
        values[name] = word in _TRUE or (not word and name == "enabled")
    values["kind"] = values["kind"].lower() or "word"
    reading.entries.append(FileEntry(line, values))


def _as_text(cell: str) -> str:
    return f"'{cell}" if cell.lstrip("'").startswith(_FORMULA) else cell


def _as_written(cell: str) -> str:
    is_marked = cell.startswith("'") and cell.lstrip("'").startswith(_FORMULA)
    return cell[1:] if is_marked else cell
