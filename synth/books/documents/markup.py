"""Say what an element of a book's markup means: inline or block, its role, language, note marks."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.parse import unquote

from synth.books.book import count_chars

# lxml declares no types here; an element is Any and is touched by the functions below only.
Element = Any

OPS_TYPE = "{http://www.idpf.org/2007/ops}type"
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Everything else ends a block, unknown names too: better a pause than two words in one.
INLINE = _words(
    "a abbr acronym b basefont bdi bdo big br cite code data del dfn em font i img image input ins "
    "kbd label map area mark math meter nobr object output picture source progress q rb rbc rp rt "
    "rtc ruby s samp select option button small span strike strong sub sup svg time tt u var "
    "wbr switch case default audio video iframe canvas noscript script style template"
)
# Their text is no text of the book, though its characters count.
SILENT = _words("script style template title noscript iframe audio video canvas")
# Of these, those that show their text where they cannot do what they are for.
STANDS_IN = _words("template noscript iframe audio video canvas")

_NO_TEXT = SILENT | {"head"}

# Roles that decide what is spoken; an inner one wins over an outer one.
MATTER = frozenset({"frontmatter", "bodymatter", "backmatter"})
ROLES = MATTER | _words(
    "abstract acknowledgments afterword appendix bibliography chapter code colophon conclusion "
    "contributors copyright-page cover credits dedication dramatis-personae endnote endnotes "
    "epigraph epilogue errata footnote footnotes foreword frontispiece glossary halftitlepage "
    "imprimatur imprint index introduction landmarks link-list loi lot navigation note page-list "
    "part pg-footer pg-header preamble preface prologue seriespage titlepage toc volume"
)
HEADINGS = _words("h1 h2 h3 h4 h5 h6")
SITE = "site"  # the role of what frames a page of the web; a reader of such gives it
LINK_LIST = "link-list"  # the role of a line that is nothing but links
_ALIASES = {
    "title-page": "titlepage",
    **dict.fromkeys(("halftitle", "half-title-page"), "halftitlepage"),
    **dict.fromkeys(("acknowledgements", "acknowledgment"), "acknowledgments"),
    **dict.fromkeys(("rearnotes", "notes"), "endnotes"),
    **dict.fromkeys(("loa", "lov"), "loi"),
    **dict.fromkeys(("pgheader", "pg-start-separator", "pg-machine-header"), "pg-header"),
    **dict.fromkeys(("pgfooter", "pg-end-separator"), "pg-footer"),
    "copyright": "copyright-page",
    "rearnote": "endnote",
    "text": "bodymatter",
    "toc-brief": "toc",
    "other-credits": "credits",
}
NOTE_ROLES = frozenset({"footnote", "endnote", "note"})
NOTE_SECTIONS = frozenset({"footnotes", "endnotes"})
_NOTE_CLASSES = frozenset({"footnote", "endnote", "_idfootnote", "_idendnote"})
_NOTE_LIST_CLASSES = frozenset({"footnotes", "endnotes", "_idfootnotes", "_idendnotes"})
# What those who made the file say of their work.
_TRANSCRIBER_CLASSES = frozenset(
    {"transnote", "tnote", "mynote", "transcribers-note", "transcriber-note", "pgheader"}
)
_VERSE = frozenset({"verse", "poem", "song", "hymn", "lyrics"})
_PAGE_CLASSES = frozenset({"pagenum", "pageno", "pagenumber", "page-number", "page_number"})

CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_BLOCKS = _words("p div h1 h2 h3 h4 h5 h6 ul ol blockquote section article table")
_MAX_MARK_CHARS = 100
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]")
CJK = (  # Chinese and Japanese, which put no blanks between words
    "\u2e80-\u2fdf\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f"
    "\U00020000-\U0003ffff"
)
_CJK_LINE_END = re.compile(rf"(?<=[{CJK}])[ \t\r]*\n[ \t\r\n]*(?=[{CJK}])")
_ONE_LETTER_WORDS = frozenset("AÀÁÅEÉÈIÍOÓÔÖUÚYW")  # in some language of Latin letters
_HIDDEN_STYLE = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_BLOCK_STYLE = re.compile(r"display\s*:\s*(?:block|table|list-item|flex)\b", re.IGNORECASE)
_ORNAMENT = re.compile(r"[\s*⁂•·●○◆◇■□▪❦❧☙✻✽✦✧★☆#~_=–—\-†‡§+∗⁎※◦❖]+\Z")  # noqa: RUF001


def name_of(element: Element) -> str:
    """Return an element's name without its namespace, lower case; empty for comments and such."""
    tag = element.tag
    if not isinstance(tag, str):
        return ""
    # Broken markup makes names such as `a:`, which are elements all the same.
    return (tag.rpartition("}")[2].rpartition(":")[2] or tag).lower()


def types_of(element: Element) -> tuple[str, ...]:
    """Return the words of `epub:type` and `role`, without the prefixes of their vocabularies."""
    found = f"{element.get(OPS_TYPE) or element.get('epub:type') or ''} {element.get('role') or ''}"
    words = (word.rpartition(":")[2].lower() for word in found.split())
    return tuple(word.removeprefix("doc-") for word in words)


def classes_of(element: Element) -> frozenset[str]:
    """Return the classes of an element, lower case."""
    return frozenset((element.get("class") or "").lower().split())


def known_role(words: tuple[str, ...] | list[str]) -> str:
    """Return the first role of `ROLES` among words, the matter only if there is no other."""
    roles = [role for role in (_ALIASES.get(word, word) for word in words) if role in ROLES]
    return next((role for role in roles if role not in MATTER), roles[0] if roles else "")


def role_of(element: Element) -> str:
    """Return the role that an element gives to what is in it, or an empty string."""
    role = known_role(types_of(element))
    if role and role not in MATTER:
        return role
    classes = classes_of(element)
    if classes & _NOTE_LIST_CLASSES:
        return "footnotes"
    if classes & _TRANSCRIBER_CLASSES and name_of(element) not in INLINE:
        return "pg-header"
    if classes & _NOTE_CLASSES and name_of(element) not in INLINE:
        return "footnote"
    named = known_role([(element.get("id") or "").lower(), *sorted(classes)])
    if named in {"pg-header", "pg-footer"}:
        return named
    return "navigation" if not role and name_of(element) == "nav" else role


def language_of(element: Element) -> str | None:
    """Return the language tag that an element declares, or None."""
    found = element.get(_XML_LANG) or element.get("xml:lang") or element.get("lang")
    return found.strip() if found and found.strip() else None


def is_hidden(element: Element) -> bool:
    """Say whether an element itself says that it is not to be seen or not to be read out."""
    return (
        element.get("hidden") is not None
        or (element.get("aria-hidden") or "").strip().lower() == "true"
        or bool(_HIDDEN_STYLE.search(element.get("style") or ""))
    )


def is_block(element: Element, name: str) -> bool:
    """Say whether text before, in and after the element stands in different blocks."""
    return name not in INLINE or bool(_BLOCK_STYLE.search(element.get("style") or ""))


def _is_called(element: Element, types: frozenset[str], classes: frozenset[str]) -> bool:
    return bool(types & set(types_of(element)) or classes & classes_of(element))


# Whether an element holds lines of a poem, one stanza, who speaks, or what persons of a play do.
is_verse = partial(_is_called, types=_VERSE, classes=_VERSE | _words("poetry stanza linegroup lg"))
is_stanza = partial(
    _is_called, types=frozenset(), classes=_words("stanza linegroup lg verse-group")
)
is_persona = partial(_is_called, types=_words("persona"), classes=_words("speaker persona"))
is_direction = partial(
    _is_called,
    types=_words("stage-direction"),
    classes=_words("stage-direction stagedirection stagedirections stagedir stage-directions"),
)


def named(element: Element, *names: str) -> Iterator[Element]:
    """Yield an element and those in it, at any depth, that have such a name in any namespace."""
    return (found for found in element.iter() if name_of(found) in names)


def holds_blocks(element: Element) -> bool:
    """Say whether there are paragraphs or headings in an element."""
    return any(name_of(inner) in _BLOCKS for inner in element.iterdescendants())


def is_page_mark(element: Element) -> bool:
    """Say whether an element holds a page number of the printed book."""
    return _is_called(element, frozenset({"pagebreak"}), _PAGE_CLASSES) and is_mark(element)


def is_mark(element: Element) -> bool:
    """Say whether an element is so small that it can be a mark: one that is not closed is not."""
    return count_chars(text_of(element)) <= _MAX_MARK_CHARS and not holds_blocks(element)


def is_initial(element: Element) -> bool:
    """Say whether an element holds the first letter of a word, set large, and no whole word."""
    classes = " ".join(classes_of(element))
    if not any(word in classes for word in ("drop", "initial", "lettrine")):
        return False
    text = text_of(element).strip()
    return len(text) == 1 and text.isalpha() and text.upper() not in _ONE_LETTER_WORDS


def begins_speech(element: Element) -> bool:
    """Say whether a name is that of who speaks now: a mark, nothing or a new sentence follows."""
    name, tail = text_of(element).rstrip(), (element.tail or "").lstrip()
    if not tail or name.endswith((".", ":")) or tail[0] in ".:,([—–-":  # noqa: RUF001
        return True
    # "HAMLET To be" speaks, "HAMLET goes out" is told.
    return name.isupper() and len(name) > 1 and (tail[0].isupper() or tail[0] in "“\"'‘«")  # noqa: RUF001


def heading_level(element: Element, name: str) -> int:
    """Return 1 to 6 for a heading, else 0."""
    if len(name) == 2 and name[0] == "h" and name[1] in "123456":
        return int(name[1])
    if "heading" in (element.get("role") or "").split():
        level = (element.get("aria-level") or "2").strip()
        return min(max(int(level), 1), 6) if level.isascii() and level.isdigit() else 2
    return 0


def text_root(root: Element) -> Element:
    """Return the element that holds all text of a document: its body, unless there is more."""
    body = next(root.iter("{*}body"), None)
    if body is None:
        return root
    inside = {body, *body.iterancestors()}
    for element in inside - {body}:
        others = [child for child in element if child not in inside]
        texts = [element.text or "", *(child.tail or "" for child in element)]
        texts += [text_of(child) for child in others if name_of(child) not in _NO_TEXT]
        if any(text.strip() for text in texts):
            return root
    return body


def text_of(element: Element) -> str:
    """Return all text inside an element as it stands, without comments."""
    return "".join(element.xpath(".//text()"))


def squeeze(text: str) -> str:
    """Return a text in NFC, blanks collapsed, without soft hyphens and marks of layout.

    A line's end between two letters of Chinese or Japanese is no blank.
    """
    if "\n" in text and not text.isascii():
        text = _CJK_LINE_END.sub("", text)
    return unicodedata.normalize("NFC", " ".join(_INVISIBLE.sub("", text).split()))


def is_ornament(text: str) -> bool:
    """Say whether a text is nothing but ornaments, such as stand between two scenes."""
    return len(text) <= 60 and bool(_ORNAMENT.match(text))


def resolve(path: str, href: str) -> tuple[str, str] | None:
    """Return (path in the book, fragment) of a link in the document `path`; None if it leads out.

    Blanks and `%20` are the same; a link that climbs out of the book leads out.
    """
    href = href.strip()
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", href) or href.startswith("//"):
        return None
    place, _, fragment = href.partition("#")
    place = unquote(place.partition("?")[0])
    if not place:
        return path, unquote(fragment)
    joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), place)).lstrip("/")
    if joined == ".." or joined.startswith("../"):
        return None
    return joined, unquote(fragment)


def list_numbers(owner: Element) -> dict[Element, str]:
    """Return what stands before each item of a numbered list, such as "3."."""
    items = [child for child in owner if name_of(child) == "li"]
    if "none" in (owner.get("style") or ""):
        return {}
    is_reversed = owner.get("reversed") is not None
    number = whole(owner.get("start"), len(items) if is_reversed else 1)
    found = {}
    for item in items:
        number = whole(item.get("value"), number)
        found[item] = f"{number}."
        if owner.get("type") in {"a", "A"} and 1 <= number <= 26:
            found[item] = f"{chr(ord(owner.get('type')) + number - 1)}."
        number += -1 if is_reversed else 1
    return found


def whole(text: str | None, default: int) -> int:
    """Return the whole number that an attribute says, or the default if it says none."""
    text = (text or "").strip()
    is_number = text.removeprefix("-").isdigit() and text.isascii() and len(text) <= 9
    return int(text) if is_number else default
