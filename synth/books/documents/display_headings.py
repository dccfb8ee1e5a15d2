"""Take what looks like a heading at a document's start for one, where its markup names none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from synth.books.book import count_chars
from synth.books.documents import markup
from synth.books.documents.markup import Element

_PARAGRAPHS = frozenset({"p", "div"})
_BOLD_CLASS = re.compile(r"(?:^|[-_ ])bold(?:$|[-_ \d])|^(?:b|strong)$", re.IGNORECASE)
_CENTRE_CLASS = re.compile(r"(?:^|[-_ ])(?:center|centre|centered|centred)(?:$|[-_ \d])", re.I)
_BOLD_STYLE = re.compile(r"font-weight\s*:\s*(?:bold|[6-9]00)", re.IGNORECASE)
_CENTRE_STYLE = re.compile(r"text-align\s*:\s*center", re.IGNORECASE)
# Sections that are mostly short.
_NAMED = re.compile(
    r"about the (?:author|translator|publisher)|acknowledge?ments?|(?:also|other \w+|books) by\b|"
    r"dedication|epigraph|(?:author.s )?note\b|du même auteur|remerciements|à propos de l.auteur|"
    r"danksagung|über d(?:en|ie) autor|widmung|agradecimientos|ringraziamenti",
    re.IGNORECASE,
)
_MAX_CHARS = 80
_MAX_LINES = 3  # a number, a title and a second line of it
_MIN_REST = 400  # characters below: less is a title page, or a dedication
_MAX_DEPTH = 8  # of elements in a line
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
    if rest >= _MIN_REST or (rest and _NAMED.match(markup.squeeze(markup.text_of(lines[0])))):
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
    if len(text) > _MAX_CHARS or text.endswith(_SENTENCE_ENDS) or markup.is_verse(element):
        return False
    return any(map(str.isalnum, text)) and (_is_bold(element) or _is_centred(element))


def _is_bold(element: Element, depth: int = 0) -> bool:
    """Say whether all of an element's text is bold, by itself or by what is in it."""
    if _says_bold(element):
        return True
    if (element.text or "").strip() or depth >= _MAX_DEPTH:
        return False
    told = [child for child in element if markup.text_of(child).strip()]
    is_whole = not any((child.tail or "").strip() for child in element)
    return bool(told) and is_whole and all(_is_bold(child, depth + 1) for child in told)


def _says_bold(element: Element) -> bool:
    return (
        markup.name_of(element) in {"b", "strong"}
        or any(map(_BOLD_CLASS.search, markup.classes_of(element)))
        or bool(_BOLD_STYLE.search(element.get("style") or ""))
    )


def _is_centred(element: Element) -> bool:
    return (
        (element.get("align") or "").lower() == "center"
        or any(map(_CENTRE_CLASS.search, markup.classes_of(element)))
        or bool(_CENTRE_STYLE.search(element.get("style") or ""))
    )
