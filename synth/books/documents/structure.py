"""Find what a document's markup does not name: its role, headings, contents lists, who speaks."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass

from lxml import etree

from synth.books.book import count_chars
from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.rules import SkipReason, title_reason
from synth.books.txt.lines import MIN_SPEAKERS, leading_name, often_named

_MAX_OUTER = 3
# What makers of books call such pages where they give them no role; and the most characters that
# such a page has, for a class is less sure than a role.
_ROLES_BY_NAME = {
    "titlepage": ("titlepage", 1_000),
    "halftitlepage": ("halftitlepage", 1_000),
    "halftitle": ("halftitlepage", 1_000),
    "copyright": ("copyright-page", 10_000),
    "copyrightpage": ("copyright-page", 10_000),
    "dedication": ("dedication", 2_000),
    "epigraph": ("epigraph", 2_000),
}


def document_role(root: Element, body: Element) -> str:
    """Return the role of the body, or the closer one of the only element in it, or by a name."""
    role = markup.role_of(body) or markup.role_of(root)
    outer = [body]  # and elements in it that hold all of its text
    for _ in range(_MAX_OUTER):
        children = [child for child in outer[-1] if markup.name_of(child)]
        if len(children) != 1 or (outer[-1].text or "").strip():
            break
        outer.append(children[0])
    for inner in outer[1:]:
        found = markup.role_of(inner)
        if found and found not in markup.MATTER and markup.name_of(inner) != "nav":
            return found
    if role and role not in markup.MATTER:
        return role
    for element in outer:
        for word in ((element.get("id") or "").lower(), *sorted(markup.classes_of(element))):
            name = word.removeprefix("element-type-").replace("-", "").replace("_", "")
            found, most = _ROLES_BY_NAME.get(name, ("", 0))
            if found and count_chars(markup.text_of(body)) <= most:
                return found
    return role


_PARAGRAPHS = frozenset({"p", "div"})
_BOLD_CLASS = re.compile(r"(?:^|[-_ ])bold(?:$|[-_ \d])|^(?:b|strong)$", re.IGNORECASE)
_CENTRE_CLASS = re.compile(r"(?:^|[-_ ])(?:center|centre|centered|centred)(?:$|[-_ \d])", re.I)
_BOLD_STYLE = re.compile(r"font-weight\s*:\s*(?:bold|[6-9]00)", re.IGNORECASE)
_CENTRE_STYLE = re.compile(r"text-align\s*:\s*center", re.IGNORECASE)
# Sections that are mostly short.
_SHORT_SECTIONS = re.compile(
    r"about the (?:author|translator|publisher)|acknowledge?ments?|(?:also|other \w+|books) by\b|"
    r"dedication|epigraph|(?:author.s )?note\b|du même auteur|remerciements|à propos de l.auteur|"
    r"danksagung|über d(?:en|ie) autor|widmung|agradecimientos|ringraziamenti",
    re.IGNORECASE,
)
_MAX_HEADING_CHARS = 80
_MAX_LINES = 3  # a number, a title and a second line of it
_MIN_REST = 400  # characters below: less is a title page, or a dedication
_MAX_LINE_DEPTH = 8  # of elements in a line
_SENTENCE_ENDS = (".", "!", "?", "…", ",", ";", ":")


def mark_display_headings(body: Element) -> None:
    """Give the bold or centred lines that begin a document the role of a heading, in place."""
    if any(markup.heading_level(e, markup.name_of(e)) for e in body.iter() if markup.name_of(e)):
        return
    lines: list[Element] = []
    for line in _first_lines(body):
        if len(lines) >= _MAX_LINES or line is None or not _is_display(line):
            break
        lines.append(line)
    if not any(map(_is_bold, lines)):
        return
    rest = count_chars(markup.text_of(body)) - sum(count_chars(markup.text_of(e)) for e in lines)
    if rest >= _MIN_REST or (
        rest and _SHORT_SECTIONS.match(markup.squeeze(markup.text_of(lines[0])))
    ):
        for line in lines:
            line.set("role", "heading")


def _first_lines(body: Element) -> Iterator[Element | None]:
    """Yield the innermost paragraph of each text in order; None for a text outside of any."""
    last: Element | None = body
    for element in body.iter():
        for text, owner in ((element.text, element), (element.tail, element.getparent())):
            if not (text or "").strip() or owner is None:
                continue
            near = (e for e in (owner, *owner.iterancestors()) if markup.name_of(e) in _PARAGRAPHS)
            line = next(near, None)
            if line is not last:
                yield line
            last = line


def _is_display(element: Element) -> bool:
    text = markup.squeeze(markup.text_of(element))
    if element.get("role"):
        return False  # it is something else
    if len(text) > _MAX_HEADING_CHARS or text.endswith(_SENTENCE_ENDS) or markup.is_verse(element):
        return False
    is_centred = (element.get("align") or "").lower() == "center"
    is_centred = is_centred or _is_styled(element, _CENTRE_CLASS, _CENTRE_STYLE)
    return any(map(str.isalnum, text)) and (is_centred or _is_bold(element))


def _is_bold(element: Element, depth: int = 0) -> bool:
    """Say whether all of an element's text is bold, by itself or by what is in it."""
    if markup.name_of(element) in {"b", "strong"} or _is_styled(element, _BOLD_CLASS, _BOLD_STYLE):
        return True
    if (element.text or "").strip() or depth >= _MAX_LINE_DEPTH:
        return False
    filled = [child for child in element if markup.text_of(child).strip()]
    is_whole = not any((child.tail or "").strip() for child in element)
    return bool(filled) and is_whole and all(_is_bold(child, depth + 1) for child in filled)


def _is_styled(element: Element, named: re.Pattern[str], styled: re.Pattern[str]) -> bool:
    style = styled.search(element.get("style") or "")
    return style is not None or any(map(named.search, markup.classes_of(element)))


_LINES = markup.HEADINGS | {"p", "div", "li", "tr", "dt", "dd"}
_MIN_LINKS = 5  # that stand together; fewer are choices or cross-references
_MIN_TITLED = 2  # below a title such as "Contents"
_MIN_LINKED_SHARE = 0.8  # of a line's characters, where no title says what it is
_MAX_TITLE = 40
_MAX_ENTRY = 200


@dataclass(slots=True)
class _Line:
    """Hold a line of text: its characters, those of them in links, and how many links."""

    element: Element
    chars: int
    linked: int
    links: int

    @property
    def is_linked(self) -> bool:
        """Say whether it is nothing but links; a heading may lead back to its entry."""
        is_full = self.linked >= _MIN_LINKED_SHARE * self.chars
        return is_full and self.links > 0 and not self.is_heading

    @property
    def is_heading(self) -> bool:
        return markup.heading_level(self.element, markup.name_of(self.element)) > 0

    @property
    def is_title(self) -> bool:
        text = markup.squeeze(markup.text_of(self.element)) if self.chars <= _MAX_TITLE else ""
        return title_reason(text) is SkipReason.CONTENTS


def mark_link_lists(body: Element, path: str) -> None:
    """Give lines of links to places in the book, and their title, the role `link-list`, in place.

    Args:
        path: where the document is in its book.
    """
    lines = _lines(body, path)
    at = 0
    while at < len(lines):
        end = _titled_end(lines, at)
        is_list = end > at
        while not is_list and end < len(lines) and lines[end].is_linked:
            end += 1
        if is_list or sum(line.links for line in lines[at:end]) >= _MIN_LINKS:
            for line in lines[at:end]:
                # The items of lists that it is in, too: of a part with its chapters.
                around = [e for e in line.element.iterancestors() if markup.name_of(e) == "li"]
                for one in (line.element, *around):
                    one.set("role", markup.LINK_LIST)
        at = max(end, at + 1)


def _lines(body: Element, path: str) -> list[_Line]:
    """Return the innermost lines that hold text, in order; none where there are too few links."""
    targets = [(e, markup.resolve(path, e.get("href") or "")) for e in markup.named(body, "a")]
    links = [link for link, target in targets if target is not None and target != (path, "")]
    if len(links) < _MIN_TITLED:
        return []
    lines = list(markup.named(body, *_LINES))
    # The nearest around each; the others around it are around that one.
    outer = {
        next((e for e in line.iterancestors() if markup.name_of(e) in _LINES), None)
        for line in lines
    }
    counted = [(e, count_chars(markup.text_of(e))) for e in lines if e not in outer]
    found = {element: _Line(element, chars, 0, 0) for element, chars in counted if chars}
    for link in links:
        line = next((found[one] for one in link.iterancestors() if one in found), None)
        if line is not None:
            line.links += 1
            line.linked += count_chars(markup.text_of(link))
    return list(found.values())


def _titled_end(lines: list[_Line], start: int) -> int:
    """Return where the list below a title ends, or `start` if there is no title or no list."""
    if not lines[start].is_title:
        return start
    end, num_links = start + 1, 0
    while end < len(lines):
        line = lines[end]
        following = lines[end + 1].links if end + 1 < len(lines) else 0
        is_entry = line.links > 0 and line.chars <= _MAX_ENTRY
        # "Chapter, page" above the entries, or the name of a part between them.
        is_label = line.chars <= _MAX_TITLE and following > 0 and not line.is_title
        if line.is_heading or not (is_entry or is_label):
            break
        num_links += line.links
        end += 1
    return end if num_links >= _MIN_TITLED else start


SPEAKER_CLASS = "persona"
_NAMERS = frozenset({"b", "strong", "span", "i", "em", "small", "font", "cite"})
_DRAMA = frozenset({"drama", "play", "scene", "act"})
_PLAY_HEADING = re.compile(
    r"(?:(?:act|scene|acte|scène|akt|aufzug|auftritt|szene|acto|escena|atto|scena)\s+"
    r"(?:[ivxlc]+|\d+|the\s+\w+|one|two|three|first|premier)\b|dramatis person|"
    r"(?:first|second|third|fourth|fifth|last)\s+(?:act|scene)\b|(?:the\s+)?persons\s+(?:of|in)\s+the"
    r"|(?:premier|deuxième|second|troisième|quatrième|cinquième)\s+acte\b|"
    r"(?:erster|zweiter|dritter|vierter|fünfter|letzter)\s+(?:akt|aufzug|auftritt))",
    re.IGNORECASE,
)
_NAME = re.compile(r"[^\W\d_][\w .'\u2019-]{0,29}\Z")
_NUMERAL = re.compile(r"[IVXLC]+\Z")
_MARKS = ".:"
_AFTER_NAME = ".:,([—–-"  # noqa: RUF001
_MAX_NAME = 40
_MIN_SPOKEN_SHARE = 0.4  # of the paragraphs, where nothing else says that it is a play


@dataclass(frozen=True, slots=True)
class _Start:
    """Hold how a paragraph begins: a name, in an element of its own or in plain capitals."""

    paragraph: Element
    name: str
    element: Element | None  # None: the name is the paragraph's first characters
    is_capital: bool


def mark_speakers(body: Element) -> None:
    """Give the names that begin speeches a class, in place; a text that is no play stays as it is.

    No character is added or taken; names in plain text get an element around them.
    """
    paragraphs = list(markup.named(body, "p", "div", "dd"))
    starts = [start for one in paragraphs if (start := _start_of(one)) is not None]
    if len({start.name for start in starts}) < MIN_SPEAKERS:
        return
    is_play = any(map(_says_play, body.iter()))
    least = 0.0 if is_play else _MIN_SPOKEN_SHARE * sum(map(_has_own_text, paragraphs))
    names = often_named((start.name for start in starts if is_play or start.is_capital), least)
    if names and is_play:  # a messenger speaks but once: capitals and a mark are enough for a name
        names |= {start.name for start in starts if start.is_capital}
    for start in starts:
        if start.name in names:
            _mark_speaker(start)


def _start_of(paragraph: Element) -> _Start | None:
    """Return the name that a paragraph begins with and a mark sets off, if any."""
    text = (paragraph.text or "").lstrip()
    if text:
        name = leading_name(text)
        return _Start(paragraph, name, None, is_capital=True) if name else None
    child = next((one for one in paragraph if markup.name_of(one)), None)
    if child is None or markup.name_of(child) not in _NAMERS or markup.is_persona(child):
        return None
    said = markup.squeeze(markup.text_of(child))
    tail = (child.tail or "").lstrip()
    name = said.rstrip(" .:")
    is_set_off = said.endswith(tuple(_MARKS)) or tail.startswith(tuple(_AFTER_NAME))
    if not is_set_off or not _NAME.match(name) or not name[0].isupper():
        return None
    if _NUMERAL.match(name) or not (tail.strip(" .:") or len(paragraph) > 1):
        return None
    return _Start(paragraph, name, child, is_capital=name.isupper())


def _has_own_text(element: Element) -> bool:
    return bool((element.text or "").strip()) or any(
        (child.tail or "").strip() or markup.name_of(child) in markup.INLINE for child in element
    )


def _says_play(element: Element) -> bool:
    if markup.name_of(element) in {"h1", "h2", "h3", "h4"} and _PLAY_HEADING.match(
        markup.squeeze(markup.text_of(element))
    ):
        return True
    return bool(markup.name_of(element)) and _is_drama(element)


def _is_drama(element: Element) -> bool:
    return bool(_DRAMA & {*markup.types_of(element), *markup.classes_of(element)})


def _mark_speaker(start: _Start) -> None:
    element = start.element
    if element is None:
        paragraph = start.paragraph
        text = paragraph.text
        place = text.index(start.name) + len(start.name)
        element = etree.Element("span")
        paragraph.text, element.text, element.tail = None, text[:place], text[place:]
        paragraph.insert(0, element)
    element.set("class", f"{element.get('class') or ''} {SPEAKER_CLASS}".strip())


def block_name(element: Element) -> str:
    """Return the name that a block of its own says, such as `<p class="speaker">`, or nothing."""
    if not markup.is_persona(element):
        return ""
    name = markup.squeeze(markup.text_of(element)).rstrip(" .:")
    return name if len(name) <= _MAX_NAME and any(map(str.isalpha, name)) else ""


_PLACED = markup.HEADINGS | {"div", "ul", "ol", "dl", "blockquote", "table"}
_BLOCKS = tuple(f"{{*}}{name}" for name in _PLACED)
_MIN_SPEECHES = 4


class Use(enum.Enum):
    """Say how a table is read."""

    ROWS = "rows"
    SPEECHES = "speeches"  # the first cell says who speaks
    LAYOUT = "layout"  # cells are read as if there were no table


def use_of(table: Element) -> Use:
    """Return how a table is to be read."""
    if {"presentation", "none"} & set(markup.types_of(table)):
        return Use.LAYOUT
    is_data = next(table.iter("{*}th"), None) is not None
    rows = [[e for e in row if markup.name_of(e) in {"td", "th"}] for row in _rows(table)]
    if _is_table_of_speeches(table, rows, is_data=is_data):
        return Use.SPEECHES
    inner = (found for found in table.iter(*_BLOCKS) if found is not table)
    if not is_data and next(inner, None) is not None:
        return Use.LAYOUT
    paragraphs = sum(1 for _ in table.iter("{*}p"))
    if all(len(row) <= 1 for row in rows) or paragraphs > sum(len(row) for row in rows):
        return Use.LAYOUT
    return Use.ROWS


def _rows(table: Element) -> Iterator[Element]:
    """Yield the rows of a table, without those of tables inside it."""
    for child in table:
        is_part = markup.name_of(child) in {"thead", "tbody", "tfoot"}
        yield from (one for one in (child if is_part else [child]) if markup.name_of(one) == "tr")


def _is_table_of_speeches(table: Element, rows: list[list[Element]], *, is_data: bool) -> bool:
    """Say whether the first cells name speakers: by their type, or by how they look together."""
    if any(row and markup.is_persona(row[0]) for row in rows):
        return True
    pairs = [row for row in rows if len(row) == 2]
    if not pairs or len(pairs) < 0.8 * len(rows) or is_data:
        return False
    names = [name for row in pairs if (name := markup.squeeze(markup.text_of(row[0])))]
    if any(len(name) > _MAX_NAME or any(map(str.isdigit, name)) for name in names):
        return False
    if names and any(map(_is_drama, table.iterancestors())):
        return True
    speeches = [len(markup.squeeze(markup.text_of(row[1]))) for row in pairs]
    is_repeated = len(set(names)) <= 0.7 * len(names)
    return len(names) >= _MIN_SPEECHES and is_repeated and sum(speeches) > 20 * len(speeches)
