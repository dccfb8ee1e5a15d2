"""Take bracketed matter out of a plain text: pictures, notes of the transcriber, footnotes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from synth.books.book import Block, BlockKind, count_chars
from synth.books.txt.lines import Group, Layout, join_lines, polish

_OPEN = re.compile(
    r"\[\s*(?:(?P<what>illustration|footnote|transcriber.?s? notes?|sidenote|blank page|abbildung|"
    r"anmerkung(?:en)? (?:zur|des|der) (?:transkription|bearbeiter\w*)|"
    r"notes? d[eu]s? (?:la )?transcript\w+)\b|(?:note|fußnote|fussnote|anmerkung|nota|noot)\s+\d)",
    re.IGNORECASE,
)
_PICTURE = re.compile(r"\[_?(?:illustration|abbildung)s?_?[.:]?\s*(.*?)\]?\Z", re.I | re.S)
_NOTE = re.compile(
    r"(?:\[(?:footnote|note|fußnote|fussnote|anmerkung|nota|noot)\s+(?P<label>[\w*†‡]{1,5})\s*[:.]\s*(?P<body>.*?)\]?"
    r"|\[(?P<label2>\d{1,4}|[A-Z]{1,2}|[*†‡]{1,3})\][:.]?\s+(?P<body2>.*))\Z",
    re.IGNORECASE | re.DOTALL,
)
_MARK = re.compile(r"[ \t]?\[(\d{1,4}|[A-Z]{1,2}|[*†‡]{1,3})\]")
_PAGE = re.compile(r"(?:\[(?:pg|page|p\.|seite|s\.)?\s*\d{1,4}\]|\{\d{1,4}\})\Z", re.IGNORECASE)
_MARKED = re.compile(r"[\[{]")
_BARE_PICTURE = re.compile(r"\[_?illustration_?[.:]?\]", re.IGNORECASE)
_INNER_PAGE = re.compile(r" ?(?:\[(?:pg|page|p\.)\s*\d{1,4}\]|\{\d{1,4}\})", re.IGNORECASE)
_MAX_SPAN = 12  # groups that a bracket may be open for


def split_brackets(groups: Sequence[Group]) -> list[Group]:
    """Return the groups, with each bracketed picture or note in a group of its own."""
    parted: list[Group] = []
    index = 0
    while index < len(groups):
        group = groups[index]
        if _OPEN.match(group.text) and not _is_closed(group.text):
            for end in range(index + 1, min(index + 1 + _MAX_SPAN, len(groups))):
                lines = [line for one in groups[index : end + 1] for line in one.lines]
                if _is_closed(" ".join(line.text for line in lines)):
                    group, index = Group(lines, group.blanks), end
                    break
        parted += _cut_at_brackets(group)
        index += 1
    return parted


def _is_closed(text: str) -> bool:
    return text.count("]") >= text.count("[")


def _cut_at_brackets(group: Group) -> list[Group]:
    """Cut a group at bracketed lines, so that a picture between two lines is no part of them."""
    parts: list[Group] = []
    is_open = False
    depth = 0
    for line in group.lines:
        is_start = depth <= 0 and bool(_OPEN.match(line.text) or _PAGE.fullmatch(line.text))
        if is_start or not is_open:
            parts.append(Group([], group.blanks if not parts else 0))
        parts[-1].lines.append(line)
        if is_start:
            depth = 0
        depth += line.text.count("[") - line.text.count("]")
        inside = bool(_OPEN.match(parts[-1].lines[0].text) or _PAGE.fullmatch(line.text))
        is_open = not (inside and depth <= 0)
    return parts


def bracket_block(group: Group, layout: Layout) -> Block | None:
    """Return the block for a bracketed group, or None for anything else."""
    text = join_lines((line.text for line in group.lines), layout)
    chars = group.source_chars
    if _PAGE.fullmatch(text):
        return Block(BlockKind.FURNITURE, text, chars, role="pagebreak")
    note = _NOTE.match(text)
    if note is not None:
        body = polish(note["body"] or note["body2"] or "")
        return Block(BlockKind.NOTE, body, chars, role="footnote", anchors=(_label(note),))
    opened = _OPEN.match(text)
    if opened is None or not opened["what"] or not text.endswith("]"):
        return None
    picture = _PICTURE.match(text)
    if picture is not None:
        caption = polish(picture[1].rstrip("] "))
        kind = BlockKind.CAPTION if caption else BlockKind.FURNITURE
        return Block(kind, caption or text, chars, role="" if caption else "picture")
    if opened["what"].lower().startswith("sidenote"):
        return Block(BlockKind.FURNITURE, polish(text), chars, role="sidenote")
    return Block(BlockKind.FURNITURE, polish(text), chars, role="pg-header")


def _label(note: re.Match[str]) -> str:
    return note["label"] or note["label2"]


def link_notes(blocks: list[Block]) -> list[Block]:
    """Give each note an anchor of its own, and take the marks that lead to notes out of texts.

    A mark leads to the next note of its label, or, where there is none below it, to the last one
    above. A mark without a note stays in the text, for it may be an aside of the author.
    """
    places: dict[str, list[int]] = {}
    for index, block in enumerate(blocks):
        if block.kind is BlockKind.NOTE:
            places.setdefault(block.anchors[0].lower(), []).append(index)
    names = {
        index: f"note-{label if label.isalnum() else 'mark'}-{nth}"
        for label, found in places.items()
        for nth, index in enumerate(found, start=1)
    }
    linked = []
    for index, block in enumerate(blocks):
        if index in names:
            linked.append(replace(block, anchors=(names[index],)))
        elif block.kind in (BlockKind.FURNITURE, BlockKind.BREAK) or not _MARKED.search(block.text):
            linked.append(block)
        else:
            linked.append(_remove_marks(block, index, places, names))
    return linked


def _remove_marks(
    block: Block, index: int, places: dict[str, list[int]], names: dict[int, str]
) -> Block:
    marks: list[str] = []

    def take(match: re.Match[str]) -> str:
        found = places.get(match[1].lower())
        if not found:
            return match[0]
        marks.append(names[next((place for place in found if place > index), found[-1])])
        return ""

    text = _INNER_PAGE.sub("", _BARE_PICTURE.sub("", _MARK.sub(take, block.text)))
    if count_chars(text) == 0:
        return block
    return replace(block, text=" ".join(text.split()), note_marks=tuple(marks))
