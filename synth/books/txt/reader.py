"""Read a plain text as a book: wrapped or not, from Gutenberg or not, prose, verse or play."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from synth.books.book import Block, BlockKind, Book, Document, Metadata, count_chars
from synth.books.chapters import states_rights
from synth.books.documents.html import check_complete, toc_of
from synth.books.documents.markup import ROLES, is_ornament
from synth.books.txt import decoding as txt_gutenberg
from synth.books.txt.decoding import decode_text
from synth.books.txt.headings import ContentsList, Heading, find_contents, find_heading, is_title
from synth.books.txt.lines import (
    Group,
    Layout,
    Line,
    find_speakers,
    is_verse,
    join_lines,
    measure_layout,
    polish,
    polish_line,
    split_groups,
    split_paragraphs,
    split_speeches,
)

# Outer ranks first; those that a book does not have leave no gap between the levels.
_RANKS = ("volume", "book", "part", "act", "chapter", "scene", "numbered", "numeral")
_FRONT_GROUPS = 25  # how far from the start credits and the title page can be
_WIDE_GAP = 3
_PLACE = "text"
_ABOUT_FILE = "pg-header"  # the role of what transcribers say of their work
_PROSE = BlockKind.PARAGRAPH
_LOOSE = frozenset({BlockKind.PARAGRAPH, BlockKind.VERSE, BlockKind.BREAK})
_MAX_RIGHTS = 300
_MAX_TITLE_LINE = 80  # characters of an address or a motto between title and publisher


def read_txt(raw: bytes, filename: str) -> Book:
    """Return the book that a plain text holds.

    Raises:
        BookRejectedError: `book_empty`, `book_not_text`, `book_charset_unknown`.
    """
    text, warnings = decode_text(raw)
    header, body, licence = txt_gutenberg.split_parts(text)
    metadata = txt_gutenberg.read_header(header)
    name = PurePath(filename).name or _PLACE
    reader = _Reader(split_groups(body), metadata)
    blocks = [
        *_furniture(header, "pg-header"),
        *link_notes(reader.read()),
        *_furniture(licence, "pg-footer"),
    ]
    if not metadata.title:
        metadata = replace(metadata, title=PurePath(name).stem.replace("_", " "))
    document = Document(name, tuple(blocks), count_chars(text), language=metadata.language)
    check_complete(document)
    return Book(metadata, (document,), toc_of(document), warnings=warnings)


def _furniture(text: str, role: str) -> Iterator[Block]:
    for group in split_groups(text):
        yield Block(BlockKind.FURNITURE, polish(group.text), group.source_chars, role=role)


class _Reader:
    """Read the body of one text; `blocks` grows in reading order."""

    def __init__(self, groups: list[Group], metadata: Metadata) -> None:
        self.layout: Layout = measure_layout(groups)
        self.groups = split_brackets(groups)
        self.metadata = metadata
        self.blocks: list[Block] = []
        self.lists: list[ContentsList] = find_contents(self.groups, self.layout)
        self.titles = frozenset(
            title for found in self.lists if found.role == "toc" for title in found.titles
        )
        self.role = ""  # of the section that was opened by the last heading
        self.num_headings = 0

    def read(self) -> list[Block]:
        """Return the blocks of the whole body."""
        listed = {i: found for found in self.lists for i in range(found.start, found.end)}
        headings = self._find_headings(set(listed))
        levels = _levels_of(list(headings.values()))
        used = listed.keys() | headings.keys()
        self.speakers = find_speakers(
            [group for index, group in enumerate(self.groups) if index not in used],
            is_play=any(heading.rank in {"act", "scene"} for heading in headings.values()),
        )
        in_text = [index for index, heading in headings.items() if heading.role != _ABOUT_FILE]
        before_text = min([*in_text, *listed, len(self.groups)])
        index = 0
        while index < len(self.groups):
            group = self.groups[index]
            if index in listed:
                self._add_list(group, listed[index].role, is_first=index == listed[index].start)
            elif index in headings:
                index += self._add_heading(index, headings[index], levels)
            elif (
                self._is_behind_notes(group)
                and index < _FRONT_GROUPS
                and self._is_front(group, index < before_text)
            ):
                pass
            else:
                self._add_text(group)
            index += 1
        return _complete_title_page(self.blocks)

    def _is_behind_notes(self, group: Group) -> bool:
        """Say whether a group is no note of the transcriber, which a wide gap ends."""
        if self.role == _ABOUT_FILE and group.blanks >= _WIDE_GAP:
            self.role = ""
        return self.role != _ABOUT_FILE

    def _find_headings(self, listed: set[int]) -> dict[int, Heading]:
        found: dict[int, Heading] = {}
        last = {"numeral": 0, "numbered": 0}
        for index, group in enumerate(self.groups):
            if index in listed:
                continue
            heading = find_heading(group, titles=self.titles)
            is_early = index < _FRONT_GROUPS and bool(self.metadata.title)
            if heading is None or (
                is_early
                and heading.rank == "titled"
                and txt_gutenberg.is_title_page(group, self.metadata)
            ):
                continue
            if heading.rank in last:
                # A number alone is a heading only in its turn: others are page numbers and "I".
                if heading.number not in (1, last[heading.rank] + 1):
                    continue
                last[heading.rank] = heading.number
            found[index] = heading
        counted = [heading.number for heading in found.values() if heading.rank == "numeral"]
        if counted and max(counted) == 1:  # there is never a second: "I" is also a word
            return {index: one for index, one in found.items() if one.rank != "numeral"}
        return found

    def _is_front(self, group: Group, is_before_text: bool) -> bool:
        """Add a group as credits or as a piece of the title page, if it is one."""
        kind, role, text = _PROSE, "titlepage", polish(group.text)
        if txt_gutenberg.is_credits(group.text):
            kind, role = BlockKind.FURNITURE, _ABOUT_FILE
        elif (
            is_before_text
            and self.metadata.title
            and txt_gutenberg.is_title_page(group, self.metadata)
        ):
            text = " ".join(polish_line(line.text) for line in group.lines)
        elif is_before_text and len(group.text) <= _MAX_RIGHTS and states_rights(group.text):
            role = "copyright-page"
        else:
            return False
        self.blocks.append(Block(kind, text, group.source_chars, role=role))
        return True

    def _add_list(self, group: Group, role: str, *, is_first: bool) -> None:
        for index, line in enumerate(group.lines):
            is_title = is_first and index == 0
            kind = BlockKind.HEADING if is_title else BlockKind.LIST_ITEM
            level = 1 if is_title else 0
            text = polish_line(line.text)
            self.blocks.append(Block(kind, text, count_chars(line.text), level=level, role=role))

    def _add_heading(self, index: int, heading: Heading, levels: dict[str, int]) -> int:
        """Add a heading; return how many groups below it, its title, it takes as well."""
        chars = self.groups[index].source_chars
        below = self._title_below(index, heading)
        if below is not None:
            heading = replace(heading, title=below.text)
            chars += below.source_chars
        self.role = heading.role if heading.role in ROLES else ""
        self.num_headings += 1
        block = Block(
            BlockKind.HEADING,
            polish_line(heading.text),
            chars,
            level=levels[heading.rank],
            role=self.role,
            anchors=(f"h{self.num_headings}",),
        )
        self.blocks.append(block)
        return 0 if below is None else 1

    def _title_below(self, index: int, heading: Heading) -> Group | None:
        if heading.title or not heading.label or index + 2 >= len(self.groups):
            return None
        below = self.groups[index + 1]
        found = find_heading(below, titles=self.titles)
        is_other = found is not None and found.rank not in {"titled", "named"}
        # Under an act stands where it plays, and under a wide gap something new.
        is_apart = heading.rank in {"act", "scene"} or bool(self.speakers) or below.blanks > 2
        if is_other or is_apart or below.text.startswith("["):
            return None
        return below if is_title(below, titles=self.titles) else None

    def _add_text(self, group: Group) -> None:
        block = bracket_block(group, self.layout)
        if block is None and is_ornament(group.text):
            block = Block(BlockKind.BREAK, " ".join(group.text.split()), group.source_chars)
        if block is not None:
            self.blocks.append(block)
            return
        if group.blanks >= _WIDE_GAP and self.blocks and self.blocks[-1].kind is _PROSE:
            self.blocks.append(Block(BlockKind.BREAK, "", 0))
        if self.role == "dramatis-personae":
            self._add_lines(group.lines, BlockKind.LIST_ITEM)
        elif self.speakers:
            self._add_speeches(group)
        elif is_verse(group, self.layout):
            self._add_lines(group.lines, BlockKind.VERSE)
        else:
            for lines in split_paragraphs(group, self.layout):
                self._add_paragraph(lines)

    def _add_speeches(self, group: Group) -> None:
        for speech in split_speeches(group, self.speakers):
            if not speech.speaker:
                self._add_paragraph(speech.lines)
                continue
            said = [speech.first, *(line.text for line in speech.lines[1:])]
            text = polish(join_lines([line for line in said if line], self.layout))
            if speech.aside:
                text = f"({polish(speech.aside)}) {text}".strip()
            chars = sum(count_chars(line.text) for line in speech.lines)
            self.blocks.append(
                Block(BlockKind.SPEECH, text, chars, speaker=speech.speaker, role=self.role)
            )

    def _add_paragraph(self, lines: Sequence[Line]) -> None:
        text = polish(join_lines((line.text for line in lines), self.layout))
        chars = sum(count_chars(line.text) for line in lines)
        self.blocks.append(Block(_PROSE, text, chars, role=self.role))

    def _add_lines(self, lines: Sequence[Line], kind: BlockKind) -> None:
        for line in lines:
            text = polish_line(line.text)
            self.blocks.append(Block(kind, text, count_chars(line.text), role=self.role))


def _complete_title_page(blocks: list[Block]) -> list[Block]:
    """Return the blocks with the short lines between two pieces of a title page as such, too."""
    pieces = [at for at, block in enumerate(blocks[:_FRONT_GROUPS]) if block.role == "titlepage"]
    for one, other in itertools.pairwise(pieces):
        between = blocks[one + 1 : other]
        if all(b.kind in _LOOSE and len(b.text) <= _MAX_TITLE_LINE for b in between):
            blocks[one + 1 : other] = [replace(b, role="titlepage") for b in between]
    return blocks


def _levels_of(headings: Sequence[Heading]) -> dict[str, int]:
    """Return the level of each rank that occurs; a part may hold books, or a book parts."""
    present = list(dict.fromkeys(heading.rank for heading in headings))
    outer = [rank for rank in present if rank in _RANKS[:3]]
    inner = [rank for rank in _RANKS[3:] if rank in present]
    levels = {rank: min(level, 6) for level, rank in enumerate([*outer, *inner], start=1)}
    chapters = next((rank for rank in inner if rank != "scene"), None)
    plain = levels[chapters] if chapters else min(len(outer) + 1, 6)
    return levels | {"named": plain, "titled": plain}


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
        label = note["label"] or note["label2"]
        return Block(BlockKind.NOTE, body, chars, role="footnote", anchors=(label,))
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
