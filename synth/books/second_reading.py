"""Read a document once more, leniently, to find what the first reading lost.

The first reading builds a tree, in which one element that is closed wrongly may swallow a chapter.
This one follows the tags as they come, with another parser, and nothing swallows anything: a title
or a script ends where a block begins, a comment that is never closed is a few characters.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from html.parser import HTMLParser

from lxml import etree

from synth.books.documents import markup
from synth.books.documents.markup import Element

# What no reader sees, and whose text is no text of the book.
_UNSEEN = frozenset({"title", "script", "style"})
# A title may hold these; whatever else begins in one shows that it was not closed.
_TITLE_MAY_HOLD = frozenset({"i", "em", "b", "strong", "br", "span", "sub", "sup", "small", "font"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_BODY_ATTRIBUTES = {
    "class": "class",
    "id": "id",
    "role": "role",
    "lang": "lang",
    "xml:lang": "lang",
    "epub:type": markup.OPS_TYPE,
}
# A script or a style that is closed before another begins, or head or body begin or end.
_WHOLE_SCRIPT = re.compile(
    r"<(script|style)\b[^<>]*>(?:(?!</?(?:head|body)\b|<(?:script|style)\b).)*?</\1\s*>",
    re.I | re.S,
)
# Parsers differ in a few characters, such as references to what is no character.
_TOLERATED_LETTERS, _TOLERATED_SHARE = 20, 0.02
_CDATA = "<![CDATA["
_SAMPLE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold the texts between tags in their order, and a tree that only knows blocks."""

    texts: tuple[str, ...]
    root: Element


def read_again(text: str) -> Reading:
    """Read XHTML or HTML, in whatever state it is, without its document type."""
    reader = _Reader()
    reader.feed(_WHOLE_SCRIPT.sub("", text))
    reader.close()
    return Reading(tuple(reader.texts), reader.root)


def missing_texts(reading: Reading, root: Element) -> list[str]:
    """Return the texts of the second reading that are not in the tree of the first one.

    Text that the tree has in a title, a script or a style counts as not being there. Nothing is
    returned where just a few letters differ.
    """
    read = _letters("".join(_seen_texts(markup.text_root(root))))
    found = [_letters(text) for text in reading.texts]
    lost = Counter("".join(found)) - Counter(read)
    if lost.total() <= min(_TOLERATED_LETTERS, _TOLERATED_SHARE * sum(map(len, found))):
        return []
    missing: list[str] = []
    place = 0
    for text, letters in zip(reading.texts, found, strict=True):
        at = read.find(letters, place) if letters else place
        if at < 0:
            missing.append(" ".join(text.split()))
        else:
            place = at + len(letters)
    return missing or [" ".join(text.split()) for text in reading.texts if text.strip()]


def sample_of(texts: list[str]) -> str:
    """Return how texts begin, for somebody to know them by."""
    return " ".join(texts)[:_SAMPLE_CHARS]


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _seen_texts(root: Element) -> list[str]:
    """Return the texts of a tree but those of titles, scripts and styles."""
    found: list[str] = []
    waiting: list[Element | str] = [root]
    while waiting:
        element = waiting.pop()
        if isinstance(element, str):
            found.append(element)
            continue
        if element is not root and element.tail:
            found_later = element.tail
            waiting.append(found_later)
        name = markup.name_of(element)
        if not name or (name in _UNSEEN and element is not root):
            continue
        waiting.extend(reversed(element))
        if element.text:
            found.append(element.text)
    return found


class _Reader(HTMLParser):
    """Gather texts and blocks, tag by tag."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.root = etree.Element("html")
        self._body = etree.SubElement(self.root, "body")
        self._block: Element | None = None
        self._anchor = ""
        self._unseen = ""  # the title, script or style that is open

    def set_cdata_mode(self, elem: str, **options: object) -> None:
        """Stay in the mode in which tags are found: no open script swallows what follows."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a block; end what must have ended before it."""
        name = tag.rpartition(":")[2]
        given = {key: value or "" for key, value in attrs}
        if name in _UNSEEN:
            self._unseen = name
            return
        if self._unseen == "title" and name not in _TITLE_MAY_HOLD:
            self._unseen = ""
        if name in _HEADINGS or (name not in markup.INLINE and name not in _UNSEEN):
            self._unseen = ""
        if name == "body":
            for key, as_xml in _BODY_ATTRIBUTES.items():
                if given.get(key):
                    self._body.set(as_xml, _as_xml(given[key]))
        self._anchor = given.get("id") or given.get("name") or self._anchor
        self._cut(name)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Heed an element that is closed at once, such as `<title/>`."""
        name = tag.rpartition(":")[2]
        if name not in _UNSEEN:
            self.handle_starttag(tag, attrs)
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        """End a block, or what is not seen."""
        name = tag.rpartition(":")[2]
        if name in {self._unseen, "head"}:
            self._unseen = ""
        self._cut(name)

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        if self._unseen:
            return
        self.texts.append(data)
        if self._block is None:
            if not data.strip():
                return
            self._open("p")
        self._append(_as_xml(data))

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Pass over a section such as `<![if IE]>`; the text of a CDATA section is kept.

        Returns:
            Where it ends; -1 where it does not.
        """
        text: str = self.rawdata
        if text.startswith(_CDATA, i):
            end = text.find("]]>", i)
            if end < 0:
                return i + len(_CDATA)
            self.handle_data(text[i + len(_CDATA) : end])
            return end + 3
        end = text.find(">", i)
        return end if end < 0 else end + 1

    def _cut(self, name: str) -> None:
        """Let a block end, or begin, at a tag."""
        if name == "br" and self._block is not None:
            etree.SubElement(self._block, "br")
        elif name in _HEADINGS and (self._block is None or self._block.tag != name):
            self._open(name)
        elif name not in markup.INLINE:
            self._block = None

    def _open(self, name: str) -> None:
        self._block = etree.SubElement(self._body, name)
        if self._anchor:
            self._block.set("id", _as_xml(self._anchor))
            self._anchor = ""

    def _append(self, text: str) -> None:
        block = self._block
        if block is None:
            return
        if len(block):
            block[-1].tail = (block[-1].tail or "") + text
        else:
            block.text = (block.text or "") + text


def _as_xml(text: str) -> str:
    """Return a text without what no XML may hold."""
    return markup.CONTROLS.sub("", text)
