"""Parse XML and XHTML of strangers: nothing is fetched, no entity is expanded, no text is lost."""

from __future__ import annotations

import contextlib
import html.entities
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser

from lxml import etree
from lxml import html as lxml_html

from synth.books.documents import markup
from synth.books.documents.markup import CONTROLS, Element
from synth.books.txt.decoding import MARKS, codec_of, decode_mostly_utf8, is_wide
from ttsweb.refusals import counted

_NAMED = re.compile(r"&([A-Za-z][A-Za-z0-9]{1,31});")
_BARE_AMPERSAND = re.compile(r"&(?!(?:#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6}|amp|lt|gt|quot|apos);)")
_XML_NAMES = frozenset({"amp", "lt", "gt", "quot", "apos"})
_CONTROL_REFERENCE = re.compile(
    r"&#(?:x0*(?:[0-8bBcCeEfF]|1[0-9a-fA-F])|0*(?:[0-8]|1[124-9]|2\d|3[01]));"
)
_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
_BLANKS = re.compile(r"\s*")
_WIDE_START = 200  # bytes in which the first tag of a text in UTF-16 is looked for
_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z0-9._:-]{1,40})["']""")
_META_CHARSET = re.compile(
    rb"""<meta[^>]{0,300}?charset\s*=\s*["']?([A-Za-z0-9._:-]{1,40})""", re.I
)
# As HTML, <title/> or <a/> would be opened and never closed, and swallow what follows.
_CLOSED = re.compile(r"<([A-Za-z][\w:-]*)(\s[^<>]*)?/>")
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())  # noqa: SIM905
# A quote that is not closed before the tag ends, nor before the next tag begins.
_OPEN_QUOTE = re.compile(r"""(<[A-Za-z][^<>]*=\s*)(["'])((?:(?!\2)[^<>])*)>(?!(?:(?!\2)[^<])*\2)""")
_CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
# Elements of HTML in which no tag is found, so that each swallows what follows where its end is
# missing; only their text matters here.
_RAW = re.compile(r"</?(?:textarea|xmp|plaintext|listing|noembed|noframes)\b[^<>]*>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Parsed:
    """Hold the root of a document and what had to be mended before it could be read."""

    root: Element
    warning: str = ""
    lost: str = ""  # what would be lost, had there been no second reading


def parse_document(content: bytes) -> Parsed:
    """Parse an XHTML or HTML document, whatever state it is in.

    A second reading, which follows the tags as they come, judges the tree: where it finds text that
    the tree has lost, its own tree, which knows headings and paragraphs only, is returned.
    """
    text, charset_warning = decode(content)
    text, has_entities = without_doctype(text)
    text = _DECLARATION.sub("", text, count=1)
    text = _NAMED.sub(_as_character, text)
    declared = "it declares entities, which are not expanded" if has_entities else ""
    try:
        return _choose_reading(_xml(text), charset_warning or declared, text)
    except etree.XMLSyntaxError as error:
        line = f"line {error.lineno or 'unknown'}"
        warning = f"it is not well-formed XHTML ({line}) and was read as HTML"
    text = _BARE_AMPERSAND.sub("&amp;", _CONTROL_REFERENCE.sub("", CONTROLS.sub("", text)))
    try:
        root = _xml(text)
    except etree.XMLSyntaxError:
        first, *others = text.split("<!--")
        # What holds no end before the next start is no comment: its words are kept.
        others = [f"<!--{one}" if "-->" in one else one for one in others]
        text = _OPEN_QUOTE.sub(r"\1\2\3\2>", "".join([first, *others]))
        root = _html(text)
    return _choose_reading(root, warning, text)


def _choose_reading(root: Element | None, warning: str, text: str) -> Parsed:
    """Return what was parsed, or the tree of the second reading where that has more."""
    reader = _LenientReader()
    reader.feed(_WHOLE_SCRIPT.sub("", text))
    reader.close()
    missing = [] if root is None else find_missing_texts(reader.texts, root)
    if root is not None and not missing:
        return Parsed(root, warning)
    begins = f": {' '.join(missing)[:_SAMPLE_CHARS]!r}" if missing else ""
    lost = (
        "its markup is broken in a way that loses text, so headings and paragraphs were "
        f"read without their markup{begins}"
    )
    return Parsed(reader.root, f"{warning}; {lost}" if warning else lost, lost)


def parse_xml(content: bytes) -> Element:
    """Parse a file of the package: container, OPF, NCX.

    Raises:
        lxml.etree.XMLSyntaxError: it is broken beyond a bare ampersand or a control character.
    """
    text, _ = decode(content)
    text = _DECLARATION.sub("", without_doctype(text)[0], count=1)
    text = _NAMED.sub(_as_character, text)
    try:
        return _xml(text)
    except etree.XMLSyntaxError:
        return _xml(_BARE_AMPERSAND.sub("&amp;", CONTROLS.sub("", text)))


def decode(content: bytes) -> tuple[str, str]:
    """Return a file's text and, where its bytes are not what it says, a warning."""
    for mark, name in MARKS:
        if content.startswith(mark):
            return content.decode(name, "replace"), ""
    start = content[:_WIDE_START]
    if b"\0" in start[:4] and start.lstrip(b"\0\t\n\r ").startswith(b"<"):
        is_little = start.find(b"<") % 2 == 0
        return content.decode("utf-16-le" if is_little else "utf-16-be", "replace"), ""
    found = _ENCODING.search(content[:300]) or _META_CHARSET.search(content[:4000])
    declared = found[1].decode("ascii") if found else "utf-8"
    codec = codec_of(declared)
    if codec and not is_wide(codec) and content.isascii():
        # Plain letters may still say others, as those of iso-2022-jp do.
        return content.decode(codec, "replace"), ""
    with contextlib.suppress(UnicodeError):
        is_utf8 = codec == "utf-8" or content.isascii()
        return content.decode("utf-8"), "" if is_utf8 else f"it declares {declared}, but is UTF-8"
    if codec and codec != "utf-8" and not is_wide(codec):
        with contextlib.suppress(UnicodeError):
            return content.decode(codec), ""
    mixed = decode_mostly_utf8(content)
    if mixed is not None:
        return mixed[0], (
            f"{counted(mixed[1], 'byte')} of it were read as Windows-1252, as they are not UTF-8"
        )
    warning = f"it declares {declared}, but its bytes are not; it was read as Windows-1252"
    return content.decode("cp1252", "replace"), warning


def without_doctype(text: str) -> tuple[str, bool]:
    """Return a document without its document type, and whether that declared entities."""
    start = _doctype_start(text)
    if start < 0:
        return text, False
    place, depth, quote = start, 0, ""
    while place < len(text):
        character = text[place]
        if quote:
            quote = "" if character == quote else quote
        elif depth and character in "\"'":
            quote = character
        elif text.startswith("<!--", place):
            end = text.find("-->", place)
            place = end + 2 if end >= 0 else len(text)
        elif character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
        elif character == ">" and depth <= 0:
            break
        place += 1
    if place >= len(text):  # it never ends: that is no document type
        return text[:start] + text[start + 9 :], False
    return text[:start] + text[place + 1 :], "<!ENTITY" in text[start:place]


def _doctype_start(text: str) -> int:
    """Return where the document type begins, after instructions and comments; -1 without one."""
    place = 0
    while True:
        blanks = _BLANKS.match(text, place)
        place = blanks.end() if blanks else place
        if text.startswith("<?", place):
            place = text.find("?>", place) + 2
        elif text.startswith("<!--", place):
            place = text.find("-->", place) + 3
        else:
            return place if text[place : place + 9].upper() == "<!DOCTYPE" else -1
        if place < 4:  # it never ends
            return -1


def _as_character(found: re.Match[str]) -> str:
    """Return the characters of a name that HTML knows; XML knows but five of them."""
    if found[1] in _XML_NAMES:
        return found[0]
    # "&LT;" is a name of HTML, too: what it stands for must not become markup.
    return escape(html.entities.html5.get(f"{found[1]};", ""), quote=False) or found[0]


def _xml(text: str) -> Element:
    # A parser is made for each document: one that met an error may keep part of it.
    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        huge_tree=False,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
    )
    return etree.fromstring(text.encode("utf-8", "replace"), parser)


def _html(text: str) -> Element | None:
    """Parse broken markup as HTML; return None where even that is too broken."""
    opened = _CLOSED.sub(
        lambda found: (
            found[0] if found[1].lower() in _VOID else f"<{found[1]}{found[2] or ''}></{found[1]}>"
        ),
        _RAW.sub(" ", text),
    )
    opened = _CDATA.sub(lambda found: escape(found[1], quote=False), opened)
    opened = opened.replace("<![CDATA[", "")  # which never ends
    for name in markup.STANDS_IN:
        starts = len(re.findall(rf"<{name}\b", opened, re.IGNORECASE))
        if starts != len(re.findall(rf"</{name}\b", opened, re.IGNORECASE)):
            opened = re.sub(rf"</?{name}\b[^<>]*>", " ", opened, flags=re.IGNORECASE)
    parser = lxml_html.HTMLParser(
        encoding="utf-8", no_network=True, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        return etree.fromstring(opened.encode("utf-8", "replace"), parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return None


# What no reader sees, and whose text is no text of the book.
_UNSEEN = frozenset({"title", "script", "style"})
# A title may hold these; whatever else begins in one shows that it was not closed.
_TITLE_MAY_HOLD = frozenset({"i", "em", "b", "strong", "br", "span", "sub", "sup", "small", "font"})
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
_CDATA_START = "<![CDATA["
_SAMPLE_CHARS = 80


def find_missing_texts(texts: Sequence[str], root: Element) -> list[str]:
    """Return the texts of the second reading that are not in the tree of the first one.

    Text that the tree has in a title, a script or a style counts as not being there. Nothing is
    returned where just a few letters differ.
    """
    kept: list[str] = []
    top = markup.text_root(root)
    walk = etree.iterwalk(top, events=("start", "end"))
    for event, element in walk:
        if event == "end":
            kept.append("" if element is top else element.tail or "")
        elif element is not top and markup.name_of(element) in _UNSEEN:
            walk.skip_subtree()
        else:
            kept.append(element.text or "")
    read = _letters("".join(kept))
    found = [_letters(text) for text in texts]
    lost = Counter("".join(found)) - Counter(read)
    if lost.total() <= min(_TOLERATED_LETTERS, _TOLERATED_SHARE * sum(map(len, found))):
        return []
    missing: list[str] = []
    place = 0
    for text, letters in zip(texts, found, strict=True):
        at = read.find(letters, place) if letters else place
        if at < 0:
            missing.append(" ".join(text.split()))
        else:
            place = at + len(letters)
    return missing or [" ".join(text.split()) for text in texts if text.strip()]


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


class _LenientReader(HTMLParser):
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
        if name in markup.HEADINGS or (name not in markup.INLINE and name not in _UNSEEN):
            self._unseen = ""
        if name == "body":
            for key, as_xml in _BODY_ATTRIBUTES.items():
                if given.get(key):
                    self._body.set(as_xml, CONTROLS.sub("", given[key]))
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
        if self._block is None and data.strip():
            self._open("p")
        if (block := self._block) is None:
            return
        text = CONTROLS.sub("", data)
        if len(block):
            block[-1].tail = (block[-1].tail or "") + text
        else:
            block.text = (block.text or "") + text

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        """Pass over a section such as `<![if IE]>`; the text of a CDATA section is kept.

        Returns:
            Where it ends; -1 where it does not.
        """
        text: str = self.rawdata
        if text.startswith(_CDATA_START, i):
            end = text.find("]]>", i)
            if end < 0:
                return i + len(_CDATA_START)
            self.handle_data(text[i + len(_CDATA_START) : end])
            return end + 3
        end = text.find(">", i)
        return end if end < 0 else end + 1

    def _cut(self, name: str) -> None:
        """Let a block end, or begin, at a tag."""
        if name == "br" and self._block is not None:
            etree.SubElement(self._block, "br")
        elif name in markup.HEADINGS and (self._block is None or self._block.tag != name):
            self._open(name)
        elif name not in markup.INLINE:
            self._block = None

    def _open(self, name: str) -> None:
        self._block = etree.SubElement(self._body, name)
        if self._anchor:
            self._block.set("id", CONTROLS.sub("", self._anchor))
            self._anchor = ""
