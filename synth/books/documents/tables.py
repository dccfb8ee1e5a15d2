"""Tell what a table is for: rows of data, the speeches of a play, or the places of things."""

from __future__ import annotations

import enum

from synth.books.documents import markup
from synth.books.documents.markup import Element

_PLACED = ("div", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "blockquote", "table")
_BLOCKS = tuple(f"{{*}}{name}" for name in _PLACED)
_DRAMA = frozenset({"drama", "play", "scene", "act"})
_MAX_NAME = 40
_MIN_SPEECHES = 4


class Use(enum.Enum):
    """Say how a table is read."""

    ROWS = "rows"
    SPEECHES = "speeches"  # the first cell says who speaks
    LAYOUT = "layout"  # cells are read as if there were no table


def use_of(table: Element) -> Use:
    """Return how a table is to be read."""
    if "presentation" in markup.types_of(table) or "none" in markup.types_of(table):
        return Use.LAYOUT
    rows = [_cells(row) for row in _rows(table)]
    if _is_play(table, rows):
        return Use.SPEECHES
    inner = (found for found in table.iter(*_BLOCKS) if found is not table)
    if not _is_data(table) and next(inner, None) is not None:
        return Use.LAYOUT
    paragraphs = sum(1 for _ in table.iter("{*}p"))
    if all(len(row) <= 1 for row in rows) or paragraphs > sum(len(row) for row in rows):
        return Use.LAYOUT
    return Use.ROWS


def _rows(table: Element) -> list[Element]:
    """Return the rows of a table, without those of tables inside it."""
    found = []
    for child in table:
        if markup.name_of(child) == "tr":
            found.append(child)
        elif markup.name_of(child) in {"thead", "tbody", "tfoot"}:
            found += [row for row in child if markup.name_of(row) == "tr"]
    return found


def _cells(row: Element) -> list[Element]:
    return [cell for cell in row if markup.name_of(cell) in {"td", "th"}]


def _is_data(table: Element) -> bool:
    return next(table.iter("{*}th"), None) is not None


def _is_play(table: Element, rows: list[list[Element]]) -> bool:
    """Say whether the first cells name speakers: by their type, or by how they look together."""
    if any(row and markup.is_persona(row[0]) for row in rows):
        return True
    pairs = [row for row in rows if len(row) == 2]
    if not pairs or len(pairs) < 0.8 * len(rows) or _is_data(table):
        return False
    names = [name for row in pairs if (name := markup.squeeze(markup.text_of(row[0])))]
    if any(len(name) > _MAX_NAME or any(map(str.isdigit, name)) for name in names):
        return False
    above = table.iterancestors()
    if names and any(_DRAMA & {*markup.types_of(e), *markup.classes_of(e)} for e in above):
        return True
    speeches = [len(markup.squeeze(markup.text_of(row[1]))) for row in pairs]
    is_repeated = len(set(names)) <= 0.7 * len(names)
    return len(names) >= _MIN_SPEECHES and is_repeated and sum(speeches) > 20 * len(speeches)
