"""Find who speaks in a play or an interview whose markup names nobody: by names that return."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from lxml import etree

from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.txt import plays as txt_plays

SPEAKER_CLASS = "persona"
_NAMERS = frozenset({"b", "strong", "span", "i", "em", "small", "font", "cite"})
_PLAY_NAMES = frozenset({"drama", "play", "scene", "act"})
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
_MIN_NAMES = 2
_MIN_RETURNS = 3
_MIN_SHARE = 0.4  # of the paragraphs, where nothing else says that it is a play


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
    paragraphs = [e for e in body.iter() if markup.name_of(e) in {"p", "div", "dd"}]
    starts = [start for one in paragraphs if (start := _start_of(one)) is not None]
    if len({start.name for start in starts}) < _MIN_NAMES:
        return
    is_play = _is_play(body)
    names = _speakers(starts, sum(map(_has_own_text, paragraphs)), is_play=is_play)
    for start in starts:
        if start.name in names:
            _mark(start)


def _start_of(paragraph: Element) -> _Start | None:
    """Return the name that a paragraph begins with and a mark sets off, if any."""
    text = (paragraph.text or "").lstrip()
    if text:
        name = txt_plays.leading_name(text)
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


def _speakers(starts: list[_Start], num_paragraphs: int, *, is_play: bool) -> frozenset[str]:
    counts = Counter(start.name for start in starts if is_play or start.is_capital)
    often = {name for name, count in counts.items() if count >= _MIN_RETURNS}
    if len(often) < _MIN_NAMES:
        return frozenset()
    if not is_play and sum(counts[name] for name in often) < _MIN_SHARE * num_paragraphs:
        return frozenset()
    # A messenger speaks but once; in a play, capitals and a mark are enough for a name.
    once = {start.name for start in starts if is_play and start.is_capital}
    return frozenset(often | once)


def _has_own_text(element: Element) -> bool:
    return bool((element.text or "").strip()) or any(
        (child.tail or "").strip() or markup.name_of(child) in markup.INLINE for child in element
    )


def _is_play(body: Element) -> bool:
    return any(_says_play(element) for element in body.iter())


def _says_play(element: Element) -> bool:
    name = markup.name_of(element)
    if not name:
        return False
    if _PLAY_NAMES & {*markup.types_of(element), *markup.classes_of(element)}:
        return True
    return name in {"h1", "h2", "h3", "h4"} and bool(
        _PLAY_HEADING.match(markup.squeeze(markup.text_of(element)))
    )


def _mark(start: _Start) -> None:
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
