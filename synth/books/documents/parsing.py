"""Parse XML and XHTML of strangers: nothing is fetched, no entity is expanded, no text is lost."""

from __future__ import annotations

import html.entities
import re
from dataclasses import dataclass
from html import escape

from lxml import etree
from lxml import html as lxml_html

from synth.books.documents import markup
from synth.books.documents.markup import CONTROLS, Element
from synth.books.second_reading import missing_texts, read_again, sample_of
from synth.books.txt.charsets import codec_of, decode_mostly_utf8, is_wide
from ttsweb.counted import counted

_NAMED = re.compile(r"&([A-Za-z][A-Za-z0-9]{1,31});")
_BARE_AMPERSAND = re.compile(r"&(?!(?:#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6}|amp|lt|gt|quot|apos);)")
_XML_NAMES = frozenset({"amp", "lt", "gt", "quot", "apos"})
_CONTROL_REFERENCE = re.compile(
    r"&#(?:x0*(?:[0-8bBcCeEfF]|1[0-9a-fA-F])|0*(?:[0-8]|1[124-9]|2\d|3[01]));"
)
_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
_BLANKS = re.compile(r"\s*")
_WIDE_START = 200  # bytes in which the first tag of a text in UTF-16 is looked for
_MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
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
        return _judged(Parsed(_xml(text), charset_warning or declared), text)
    except etree.XMLSyntaxError as error:
        warning = f"it is not well-formed XHTML ({_line(error)}) and was read as HTML"
    mended = _BARE_AMPERSAND.sub("&amp;", _CONTROL_REFERENCE.sub("", CONTROLS.sub("", text)))
    try:
        return _judged(Parsed(_xml(mended), warning), mended)
    except etree.XMLSyntaxError:
        mended = _OPEN_QUOTE.sub(r"\1\2\3\2>", _without_open_comments(mended))
        return _judged(Parsed(_html(mended), warning), mended)


def _without_open_comments(text: str) -> str:
    """Return a text without starts of comments that no end belongs to: their words are kept."""
    first, *others = text.split("<!--")
    # What holds no end before the next start is no comment.
    return first + "".join(f"<!--{one}" if "-->" in one else one for one in others)


def _judged(parsed: Parsed, text: str) -> Parsed:
    """Return what was parsed, or the tree of the second reading where that has more."""
    reading = read_again(text)
    missing = [] if parsed.root is None else missing_texts(reading, parsed.root)
    if parsed.root is not None and not missing:
        return parsed
    begins = f": {sample_of(missing)[:80]!r}" if missing else ""
    warning = (
        "its markup is broken in a way that loses text, so headings and paragraphs were "
        f"read without their markup{begins}"
    )
    told = f"{parsed.warning}; {warning}" if parsed.warning else warning
    return Parsed(reading.root, told, warning)


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
    for mark, name in _MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(name, "replace"), ""
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
    try:
        text = content.decode("utf-8")
    except UnicodeError:
        return _decode_other(content, codec, declared)
    is_told = codec == "utf-8" or content.isascii()
    return text, "" if is_told else f"it declares {declared}, but is UTF-8"


def _decode_other(content: bytes, codec: str, declared: str) -> tuple[str, str]:
    """Decode bytes that are no UTF-8 throughout."""
    if codec and codec != "utf-8" and not is_wide(codec):
        try:
            return content.decode(codec), ""
        except UnicodeError:
            pass
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
    opened = _CLOSED.sub(_with_end_tag, _RAW.sub(" ", text))
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


def _with_end_tag(found: re.Match[str]) -> str:
    if found[1].lower() in _VOID:
        return found[0]
    return f"<{found[1]}{found[2] or ''}></{found[1]}>"


def _line(error: etree.XMLSyntaxError) -> str:
    return f"line {error.lineno}" if error.lineno else "line unknown"
