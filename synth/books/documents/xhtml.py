"""Turn an element tree into blocks: each non-blank character of the body is in exactly one."""

from __future__ import annotations

from dataclasses import replace

from synth.books.book import Block, BlockKind, Document, count_chars
from synth.books.documents import markup, notes, structure
from synth.books.documents.labels import is_label, mark_label_headings
from synth.books.documents.markup import Element
from synth.books.documents.notes import Context, Run, context_in

_CELLS = frozenset({"td", "th"})
# Where two `br` in a row begin a new paragraph.
_PROSE = frozenset({BlockKind.PARAGRAPH, BlockKind.LIST_ITEM, BlockKind.NOTE, BlockKind.SPEECH})
_SPOKEN_BY = frozenset({BlockKind.PARAGRAPH, BlockKind.VERSE})
HIDDEN = "hidden"
_SPECIAL = frozenset({"img", "image", "svg", "math", "ruby"})
_MAX_STAND_IN_SHARE = 0.5
_NO_SEPARATOR = ".,;:!?…—–-"  # noqa: RUF001  # dashes


def document_of(root: Element, path: str, *, language: str = "") -> Document:
    """Read the body of a parsed XHTML or HTML document.

    Args:
        root: the `html` element, or any other whose text is to be read.
        path: where the document is in its book; links are resolved against it.
        language: the tag of the book's language.
    """
    body = markup.text_root(root)
    language = markup.language_of(body) or markup.language_of(root) or language
    role = structure.document_role(root, body)
    structure.mark_link_lists(body, path)
    structure.mark_display_headings(body)
    structure.mark_speakers(body)
    walker = _Walker(path, count_chars(markup.text_of(body)))
    walker.walk(body, Context(language=language, role=role), is_root=True)
    hidden = {block.role == HIDDEN for block in walker.blocks if block.source_chars}
    if hidden == {True}:  # then it is a chapter of its own, which may be spoken as others are
        walker = _Walker(path, walker.num_chars, shows_hidden=True)
        role = HIDDEN
        walker.walk(body, Context(language=language), is_root=True)
    blocks = tuple(
        replace(block, language="" if block.language == language else block.language)
        for block in walker.finished()
    )
    blocks = mark_label_headings(blocks)
    return Document(path, blocks, walker.num_chars, role=role, language=language)


class _Walker:
    def __init__(self, path: str, num_chars: int, *, shows_hidden: bool = False) -> None:
        self.path = path
        self.num_chars = num_chars  # of the whole document, without blanks
        self.shows_hidden = shows_hidden
        self.apart = ""  # the role of what is being read, if that is no text of the book
        self.blocks: list[Block] = []
        self.run = Run()
        self.anchors: list[str] = []
        self.prefix = ""
        self.numbers: dict[Element, str] = {}  # of the items of numbered lists
        self.is_stanza_start = False
        self.said_by = ""  # whom a block of its own names as who speaks below it
        self.said_rows = ("", 0)  # who speaks in the next rows of a table, and in how many
        self.said_in: Element | None = None  # the element at whose end that is over

    def finished(self) -> list[Block]:
        """Return the blocks; anchors at the very end lead to the last one."""
        if self.anchors and self.blocks:
            last = self.blocks[-1]
            self.blocks[-1] = replace(last, anchors=(*last.anchors, *self.anchors))
        return self.blocks

    def walk(self, element: Element, context: Context, *, is_root: bool = False) -> None:
        """Read an element and what is in it, but not the text after it."""
        name = markup.name_of(element)
        if not name:
            return  # a comment or an instruction
        self._anchor(element)
        if name in markup.SILENT and not self._stands_in(element, name):
            self._aside(element, HIDDEN)
        elif role := self._role_apart(element):
            self._set_apart(element, name, role, context, is_root=is_root)
        elif markup.is_page_mark(element):
            self._aside(element, "pagebreak", element.get("title") or element.get("aria-label"))
        elif name == "br":
            self._break_line(context)
        elif name == "hr":
            self._flush(context)
            self._end_speech(context)
            self._emit(Block(BlockKind.BREAK, "", 0, role=context.role))
        elif name in _SPECIAL and not markup.holds_blocks(element):
            self._special(element, name, context)
        elif (
            name == "a"
            and not context.is_flat
            and (role := notes.link_role(element, self.run.before()))
        ):
            self._note_mark(element, role, context)
        elif not is_root and markup.is_block(element, name):
            self._block(element, name, context)
        else:
            self._inline(element, name, context)
            if is_root:
                self._flush(context, is_last=True)

    def _stands_in(self, element: Element, name: str) -> bool:
        """Say whether what stands in for a film or a script is most of the document's text."""
        if name not in markup.STANDS_IN:
            return False
        return count_chars(markup.text_of(element)) > _MAX_STAND_IN_SHARE * self.num_chars

    def _role_apart(self, element: Element) -> str:
        """Return the role of an element that is no text of the book, or an empty string."""
        if self.shows_hidden or self.apart:
            return ""
        if element.get("role") == markup.SITE:
            return markup.SITE
        return HIDDEN if markup.is_hidden(element) else ""

    def _set_apart(
        self, element: Element, name: str, role: str, context: Context, *, is_root: bool
    ) -> None:
        """Keep what is no text of the book as furniture: block by block, where it has blocks."""
        if not (is_root or markup.is_block(element, name)) or context.is_flat:
            self._aside(element, role)
            return
        self._flush(context, is_last=True)
        self.apart = role
        self.walk(element, Context(language=context.language), is_root=True)
        self._flush(context, is_last=True)
        self.apart = ""

    def _inline(self, element: Element, name: str, context: Context) -> None:
        before = self.run.before()
        if notes.is_raised(element) and self._read_raised(element, before, context):
            return
        is_told_of = context.is_direction or context.role == "dramatis-personae"
        is_elsewhere = context.speaker or context.is_flat or is_told_of or self.run.last
        if (
            not is_elsewhere
            and context.kind in {BlockKind.PARAGRAPH, BlockKind.VERSE}
            and markup.is_persona(element)
            and markup.begins_speech(element)
        ):
            self._anchor_all(element)
            self.run.speaker = markup.squeeze(markup.text_of(element)).rstrip(" .:")
            self.run.drop(markup.text_of(element))
            return
        marks = self._marks(element, name, context)
        context = replace(
            context,
            language=markup.language_of(element) or context.language,
            is_direction=context.is_direction or markup.is_direction(element),
        )
        if marks:
            self.run.add_uncounted(marks[0])
        self._children(element, context)
        if marks:
            self.run.add_uncounted(marks[1])
        if notes.is_verse_number(element, markup.squeeze(element.text or ""), before):
            self.run.add_blank()
        self.run.is_initial = markup.is_initial(element) and self.run.last == self.run.before()

    def _marks(self, element: Element, name: str, context: Context) -> str:
        """Return the two marks that an element stands for, which printed books have."""
        if name == "q":
            return "“”"
        is_said = (self.run.speaker or context.speaker) and not context.is_direction
        if is_said and not context.is_flat and markup.is_direction(element):
            text = markup.text_of(element).strip()
            return "" if text.startswith(("[", "(")) else "[]"
        return ""

    def _read_raised(self, element: Element, before: str, context: Context) -> bool:
        """Read a number that is set high: a mark, or an exponent; False if it is neither."""
        text = markup.squeeze(markup.text_of(element))
        if any(markup.name_of(inner) == "a" for inner in element.iter()):
            return False
        if notes.is_high_mark(text, before):
            self._aside(element, "noteref")
            return True
        digits = text.lstrip("-–−")  # noqa: RUF001  # signs of minus
        if not (digits.isascii() and digits.isdigit() and before[-1:].isalnum()):
            return False
        self._anchor_all(element)
        # "10³" is another number than "103".
        self.run.add(markup.text_of(element).translate(notes.HIGH), context.language)
        return True

    def _children(self, element: Element, context: Context) -> None:
        self._text(element.text, context)
        for child in element:
            self.walk(child, context)
            self._text(child.tail, context)

    def _text(self, text: str | None, context: Context) -> None:
        if not (text and context.is_preformatted and "\n" in text):
            self.run.add(text, context.language)
            return
        first, *others = text.split("\n")
        self.run.add(first, context.language)
        for line in others:
            self.is_stanza_start |= not self.run.last
            self._flush(context)
            self.run.add(line, context.language)

    def _block(self, element: Element, name: str, context: Context) -> None:
        """Read an element that is a block of its own, or holds such."""
        if context.is_flat:
            self.run.add_blank()
            self._children(element, context)
            self.run.add_blank()
            return
        self._flush(context)
        if context.kind in _SPOKEN_BY and (said := structure.block_name(element)):
            self._name_speaker(element, said, context)
            return
        inner = context_in(element, name, context)
        if inner.kind is BlockKind.VERSE and not inner.is_preformatted:
            has_lines = name == "p" and next(element.iter("{*}br"), None) is not None
            is_first = context.kind is not BlockKind.VERSE
            self.is_stanza_start |= has_lines or is_first or markup.is_stanza(element)
        if self.said_by and inner.kind not in _SPOKEN_BY:
            self._end_speech(context)
        elif inner.is_direction:
            self._pause_speech(context)
        if name == "ol" and inner.role not in {"toc", "navigation"}:
            self.numbers.update(markup.list_numbers(element))
        use = structure.use_of(element) if name == "table" else structure.Use.LAYOUT
        if use is not structure.Use.LAYOUT and inner.kind is not BlockKind.NOTE:
            self._rows(element, use, inner)
        elif name == "li":
            self.prefix = self.numbers.pop(element, "")
            self._children(element, inner)
            self._flush(inner)
            self.prefix = ""
        else:
            self._children(element, inner)
        self._flush(inner)
        if self.said_in is element:
            self._end_speech(context)
        elif self.said_by and not context.is_direction:
            self.run.speaker = self.run.speaker or self.said_by

    def _name_speaker(self, element: Element, said: str, context: Context) -> None:
        """Take a block that only says who speaks: it is one with the paragraph below it."""
        self._end_speech(context)
        self._anchor_all(element)
        self.said_by, self.said_in = said, element.getparent()
        self.run.speaker = said
        self.run.drop(markup.text_of(element))

    def _pause_speech(self, context: Context) -> None:
        """Let what follows be nobody's; a name that nothing followed is a block of its own."""
        if self.run.speaker and not self.run.last:
            self._flush(context, is_last=True)
        self.run.speaker = ""

    def _end_speech(self, context: Context) -> None:
        if self.said_by:
            self._pause_speech(context)
            self.said_by, self.said_in = "", None
            self.run.speaker = ""

    def _rows(self, owner: Element, use: structure.Use, context: Context) -> None:
        """Read what a table, or a part of it, holds as rows, or as the speeches of a play."""
        self._text(owner.text, context)
        for child in owner:
            is_part = markup.name_of(child) in {"thead", "tbody", "tfoot"}
            if is_part and markup.name_of(owner) == "table":
                self._anchor(child)
                self._rows(child, use, context)
            else:
                self._row(child, use, context)
            self._text(child.tail, context)

    def _row(self, row: Element, use: structure.Use, context: Context) -> None:
        if markup.name_of(row) != "tr" or markup.is_hidden(row):
            self.walk(row, context)
            return
        self._flush(context)
        self._anchor(row)
        if use is structure.Use.SPEECHES:
            self._speech(row, context)
            return
        role = markup.role_of(row) or context.role
        inner = replace(context, kind=BlockKind.TABLE_ROW, is_flat=True, role=role)
        self._text(row.text, inner)
        for cell in row:
            if self.run.last and markup.name_of(cell) in _CELLS:
                is_open = bool(markup.text_of(cell).strip()) and self.run.last not in _NO_SEPARATOR
                while self.run.parts and self.run.parts[-1].isspace():
                    self.run.parts.pop()
                self.run.add_uncounted(", " if is_open else " ")
            self.walk(cell, inner)
            self._text(cell.tail, inner)
        self._flush(inner)

    def _speech(self, row: Element, context: Context) -> None:
        """Read a row of which the first cell says who speaks; an empty one: nobody does."""
        cells = [cell for cell in row if markup.name_of(cell) in _CELLS]
        name, rows = self.said_rows if len(cells) == 1 else ("", 0)
        if len(cells) > 1:
            name = markup.squeeze(markup.text_of(cells[0])).rstrip(" .:")
            rows = markup.whole(cells[0].get("rowspan"), 1)
        self.said_rows = (name, rows - 1) if rows > 1 else ("", 0)
        kind = BlockKind.SPEECH if name else context.kind
        inner = replace(context, kind=kind, speaker=name)
        self._text(row.text, inner)
        for cell in row:
            if name and len(cells) > 1 and cell is cells[0]:
                self._anchor_all(cell)
                self.run.speaker = name
                self.run.drop(markup.text_of(cell))
            elif markup.name_of(cell) in _CELLS:
                self._anchor(cell)
                self._children(cell, inner)
                self._flush(inner)
            else:
                self.walk(cell, inner)
            self._text(cell.tail, inner)
        self._flush(inner, is_last=True)

    def _special(self, element: Element, name: str, context: Context) -> None:
        """Read what is no text of its own: images, formulas, text with readings."""
        if name == "ruby":
            self._ruby(element, context)
            return
        text = markup.text_of(element)
        if name == "math":
            parts = element.xpath(".//text()[not(ancestor::*[local-name()='annotation'])]")
            words = f" {' '.join(' '.join(parts).split())} "
            self.run.add_uncounted(element.get("alttext") or words)
            self.run.drop(text)
            return
        self._anchor_all(element)
        alt = markup.squeeze(element.get("alt") or element.get("aria-label") or text)
        if len(alt) == 1 and alt.isalpha() and not self.run.last:
            self.run.add_uncounted(alt)  # an initial: it begins the word that follows
            self.run.drop(text)
        elif alt or count_chars(text):
            role = markup.role_of(element) or context.role
            block = Block(BlockKind.ALT_TEXT, alt, count_chars(text), role=role)
            self.run.side.append(replace(block, language=context.language))

    def _ruby(self, element: Element, context: Context) -> None:
        self.run.add(element.text, context.language)
        for child in element:
            if markup.name_of(child) in {"rt", "rp", "rtc"}:
                self._anchor_all(child)
                self.run.drop(markup.text_of(child))
            elif markup.name_of(child) == "rb":
                self._ruby(child, context)
            else:
                self.walk(child, context)
            self.run.add(child.tail, context.language)

    def _note_mark(self, element: Element, role: str, context: Context) -> None:
        is_note = context.kind is BlockKind.NOTE or context.role in {"toc", "navigation", "index"}
        target = markup.resolve(self.path, element.get("href") or "")
        if role == "noteref" and not is_note and target and target[1]:
            self.run.note_marks.append("#".join(target))
        self._aside(element, "backlink" if is_note else role)

    def _aside(self, element: Element, role: str, shown: str | None = None) -> None:
        """Keep an element's text as furniture, after the block that it stands in."""
        self._anchor_all(element)
        text = markup.text_of(element)
        if count_chars(text):
            said = markup.squeeze(text) or shown or ""
            self.run.side.append(Block(BlockKind.FURNITURE, said, count_chars(text), role=role))

    def _break_line(self, context: Context) -> None:
        is_heading = context.kind is BlockKind.HEADING
        is_line = context.kind is BlockKind.VERSE and not context.is_flat
        is_paragraph = context.kind in _PROSE and not context.is_flat and self.run.is_broken
        if is_line or is_paragraph or (is_heading and is_label(self.run.text())):
            self.is_stanza_start |= is_line and not self.run.last
            speaker = self.run.speaker
            self._flush(context)
            self.run.speaker = speaker
        else:
            self.run.add_blank()
            self.run.is_broken = bool(self.run.last)

    def _anchor(self, element: Element) -> None:
        self.anchors += [found for key in ("id", "name") if (found := element.get(key))][:1]

    def _anchor_all(self, element: Element) -> None:
        for inner in element.iter():
            if markup.name_of(inner) and inner is not element:
                self._anchor(inner)

    def _flush(self, context: Context, *, is_last: bool = False) -> None:
        """Make a block of the run, and of what stood beside its text."""
        if self.run.speaker and self.run.dropped and not self.run.last and not is_last:
            return  # only a name yet: what is said follows
        run, self.run = self.run, Run(speaker=self.said_by)
        text = run.text()
        if context.kind is BlockKind.HEADING and not text:
            text = run.take_alt()
        if text or run.count():
            is_start = self.is_stanza_start
            block = run.block(context, text, prefix=self.prefix, is_stanza_start=is_start)
            self._emit(block)
            self.prefix = "" if block.kind is BlockKind.LIST_ITEM else self.prefix
            self.is_stanza_start = is_start and not block.is_stanza_start
        for block in run.side:
            self._emit(block)

    def _emit(self, block: Block) -> None:
        """Append a block; the ids that were passed since the last one lead to it."""
        anchors = tuple(dict.fromkeys((*self.anchors, *block.anchors)))
        self.anchors = []
        if self.apart:
            block = Block(BlockKind.FURNITURE, block.text, block.source_chars, role=self.apart)
        self.blocks.append(replace(block, anchors=anchors))
