"""Tell the mark of a note from text: links that are but a number, numbers set high."""

from __future__ import annotations

import re

from synth.books.documents import markup
from synth.books.documents.markup import Element

_BARE_MARK = re.compile(r"(?:\d{1,4}|[a-z]|[ivxlc]{1,6})\Z", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,3}\Z")
_SURE_MARK = re.compile(
    r"(?:[*†‡§¶]{1,4}|[\[({](?:\d{1,4}|[*†‡§¶]{1,4}|[a-zA-Z])[\])}]|\[[A-Z]{2}\])\Z"
)
_HIGH_MARK = re.compile(
    r"(?:\d{1,3}(?:\s*[,–-]\s*\d{1,3})*|[*†‡§¶]{1,4}|\[(?:\d{1,3}|[a-z*†‡])\])\Z"  # noqa: RUF001
)
_VERSE_CLASS = re.compile(
    r"(?:^|[\s_-])(?:v|verse|vers)(?:$|[\s_-]|n(?:o|um|umber)?\b)", re.IGNORECASE
)
_BACK_MARK = re.compile(r"[↩↑^←⏎\ufe0e\ufe0f↵]+\Z")
_NOTE_NAME = re.compile(
    r"(?:foot|end|rear)?note|(?:\b|_|\d)(?:fn|en|ftn|nt)(?=[\d_:-])|_ftn|noteref|fnref|anchor",
    re.IGNORECASE,
)
_RAISED_CLASSES = frozenset({"sup", "super", "superscript", "supertext"})
_RAISED_STYLE = re.compile(r"vertical-align\s*:\s*(?:super|text-top|top)\b", re.IGNORECASE)
# What a mark stands behind: a word, or what closes a clause. "1,2" and "p. 12" are numbers.
_WORD_END = re.compile(r"(?:[^\W\d_]{3,}|[.,;:!?…”’»\"')\]])\Z")  # noqa: RUF001
_NUMBERS_END = re.compile(r"\d[.,;:]?\Z|[\s(\[–—-]\Z|\A\Z")  # noqa: RUF001
_MEASURE_END = re.compile(
    r"\b(?:sec|mol|rad|sin|cos|tan|log|exp|min|miles|metres|meters|feet|inches)\Z", re.IGNORECASE
)
HIGH = str.maketrans("0123456789-–−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁻")  # noqa: RUF001  # signs of minus


def link_role(element: Element, before: str) -> str:
    """Return `noteref` or `backlink` for a link that is but a mark, else an empty string.

    Args:
        before: the end of the text before it in its block.
    """
    types = markup.types_of(element)
    for role in ("noteref", "backlink"):
        if role in types:
            return role
    text, href = markup.squeeze(markup.text_of(element)), element.get("href") or ""
    if not text or len(text) > 12 or "#" not in href:
        return ""
    if _BACK_MARK.match(text):
        return "backlink"
    if _SURE_MARK.match(text):
        return "noteref"
    if not _BARE_MARK.match(text):
        return ""
    parent = element.getparent()
    is_high = (parent is not None and is_raised(parent)) or any(
        is_raised(one) for one in element.iter() if markup.name_of(one)
    )
    names = f"{element.get('class') or ''} {element.get('id') or ''} {href.partition('#')[2]}"
    if is_high or _NOTE_NAME.search(names):
        return "noteref"
    # "word12" is the mark of a note, "chapter 12" and "1,2" are not.
    is_mark = bool(_NUMBER.match(text)) and not _NUMBERS_END.search(before)
    return "noteref" if is_mark and _WORD_END.search(before) else ""


def is_raised(element: Element) -> bool:
    """Say whether an element sets its text high, as marks of notes and exponents are."""
    return (
        markup.name_of(element) == "sup"
        or bool(_RAISED_CLASSES & markup.classes_of(element))
        or bool(_RAISED_STYLE.search(element.get("style") or ""))
    )


def is_verse_number(element: Element, text: str, before: str) -> bool:
    """Say whether a number counts what follows it, as in a Bible, and is no part of a word."""
    if not (text.isascii() and text.isdigit()) or before[-1:].isalnum():
        return False
    return is_raised(element) or bool(_VERSE_CLASS.search(element.get("class") or ""))


def is_high_mark(text: str, before: str) -> bool:
    """Say whether a number set high is the mark of a note that nothing leads to."""
    if not _HIGH_MARK.match(text) or _NUMBERS_END.search(before) or _MEASURE_END.search(before):
        return False
    return bool(_WORD_END.search(before))
