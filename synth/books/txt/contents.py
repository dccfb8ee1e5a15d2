"""Find the contents list at the start of a plain text, which repeats the titles of its chapters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from synth.books.txt.headings import find_heading, find_label, normalised
from synth.books.txt.lines import Group, Layout, closed_up, is_verse

_TITLES = {
    "toc": r"(?:the |table of )?contents|table(?: des (?:matières|chapitres))?|inhalt|"
    r"inhaltsverzeichnis|inhaltsübersicht|índice|indice|sommaire|inhoud|innehåll|"
    r"sisällys|indhold|innhold|spis treści|obsah|tartalom",
    "loi": r"(?:list of )?(?:illustrations|plates|maps)|(?:table|liste) des (?:gravures|"
    r"illustrations)|verzeichnis der abbildungen|abbildungen",
}
_PAGE = re.compile(r"[\s._·…-]*(?:(?<=[\s.…_])\d{1,4}|(?<=\s)[ivxlc]{1,6})\.?\Z")
_MAX_ENTRIES = 3000
_WIDE_GAP = 3
_PROSE_CHARS = 120


@dataclass(frozen=True, slots=True)
class ContentsList:
    """Hold where a list is (groups from `start`, below `end`), its role and its titles."""

    start: int
    end: int
    role: str
    titles: frozenset[str]


def find_contents(groups: Sequence[Group], layout: Layout) -> list[ContentsList]:
    """Return the contents lists (`toc`) and lists of plates (`loi`), in order."""
    found: list[ContentsList] = []
    index = 0
    while index < len(groups):
        role = _list_role(groups[index].lines[0].text)
        # The first one only: a chapter in the middle may well be called "Contents".
        known = {contents.role for contents in found}
        if not role or role in known:
            index += 1
            continue
        end = _end_of(groups, index, layout)
        entries = _entries(groups[index:end])
        if len(entries) >= 2:
            titles = {title for entry in entries for title in _titles_of(entry)}
            found.append(ContentsList(index, end, role, frozenset(titles)))
        index = max(end, index + 1)
    return found


def _list_role(line: str) -> str:
    bare = closed_up(line).strip(" ._:—-").casefold()
    return next((role for role, names in _TITLES.items() if re.fullmatch(names, bare)), "")


def _entries(groups: Sequence[Group]) -> list[str]:
    return [line.text for group in groups for line in group.lines][1:]


def _end_of(groups: Sequence[Group], start: int, layout: Layout) -> int:
    """Return the index of the first group after the list that begins at `start`."""
    entries = [line.text for line in groups[start].lines[1:]]
    known = {normalised(entry) for entry in entries}
    widest = 0
    for index in range(start + 1, len(groups)):
        group = groups[index]
        if len(entries) > _MAX_ENTRIES:
            break
        if entries and (_list_role(group.lines[0].text) or _is_repeat(group, entries, known)):
            return index
        if len(entries) >= 2 and group.blanks >= _WIDE_GAP > widest:
            return index
        num_groups = index - start - (not groups[start].lines[1:])
        is_dense = len(entries) >= 2 * num_groups
        if is_dense and len(entries) >= 2 and group.blanks >= 2 and not _goes_on(group, entries):
            return index
        if _is_prose(group, layout):
            return _without_body(groups, start, index)
        widest = max(widest, group.blanks if entries else 0)
        added = [line.text for line in group.lines]
        entries += added
        known |= {normalised(entry) for entry in added}
    return start  # no text came after it: it was no list


def _is_repeat(group: Group, entries: list[str], known: set[str]) -> bool:
    """Say whether a group is the first title of the list again, so that the text begins."""
    first, line = entries[0], group.lines[0].text
    one, other = normalised(_PAGE.sub("", first)), normalised(line)
    if one and one in (other, normalised(group.text)):
        return True
    label, again = find_label(_PAGE.sub("", first)), find_label(line)
    if label is None or again is None or (label.rank, label.number) != (again.rank, again.number):
        return bool(other) and len(other) > 12 and other in known
    if not (label.number or label.title):
        return False
    return not (label.title and again.title) or label.title == again.title


def _goes_on(group: Group, entries: list[str]) -> bool:
    """Say whether a group looks like more of the list: a number in its turn, or a page."""
    line = group.lines[0].text
    if _PAGE.search(line) is not None or (group.lines[0].indent and len(group.lines) > 1):
        return True
    label, last = find_label(line), find_label(_PAGE.sub("", entries[-1]))
    if label is None:
        return False
    return last is None or label.rank != last.rank or label.number in (0, last.number + 1)


def _is_prose(group: Group, layout: Layout) -> bool:
    first = group.lines[0].text
    if max(len(line.text) for line in group.lines) > max(_PROSE_CHARS, layout.width + 10):
        return True
    is_entry = find_label(first) is not None or bool(_PAGE.search(group.lines[-1].text))
    return (
        not is_entry
        and len(group.lines) >= 2
        and not is_verse(group, layout)
        and len(group.text) > _PROSE_CHARS
        and len(first) > 0.6 * (layout.width or 72)
    )


def _without_body(groups: Sequence[Group], start: int, end: int) -> int:
    """Step back over the headings before the first prose that the list has named already."""
    known: set[str] = set()
    for entry in _entries(groups[start : end - 1]):
        known |= _titles_of(entry)
    while end > start + 2 and normalised(groups[end - 1].text) in known:
        end -= 1
    if end == start + 1 and find_heading(groups[start]) is None:
        return start
    return end


def _titles_of(entry: str) -> set[str]:
    bare = _PAGE.sub("", entry).strip()
    titles = {normalised(entry), normalised(bare)}
    label = find_label(bare)
    if label is not None and label.title:
        titles.add(label.title)
    return {title for title in titles if title and not title.isdigit() and len(title) > 2}
