"""Give sentences of an XHTML document an id each, by finding their words in it, in order.

A sentence becomes one `span` where markup allows that, also around whole inline elements. Where it
begins or ends inside one, the smallest element around it gets the id instead.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from synth.text.segments import SPEAKER_TAG

XHTML = "{http://www.w3.org/1999/xhtml}"
ID_PREFIX = "spoken-"
_UNSPOKEN = {f"{XHTML}{name}" for name in ("script", "style", "head", "template", "rt", "rp")}


class _Holder(NamedTuple):
    """Name a text node: an element's own first text, or what follows the element."""

    element: Any
    is_tail: bool

    def get(self) -> str:
        return (self.element.tail if self.is_tail else self.element.text) or ""

    def put(self, text: str) -> None:
        if self.is_tail:
            self.element.tail = text
        else:
            self.element.text = text

    @property
    def parent(self) -> Any:
        return self.element.getparent() if self.is_tail else self.element


class _Place(NamedTuple):
    """Name a character: its text node and where it is in it."""

    holder: _Holder
    at: int


def mark_sentences(body: Any, texts: Sequence[tuple[str, str]]) -> list[str | None]:
    """Mark the sentences of a document's body, changed in place.

    Args:
        body: the lxml element whose text they are in.
        texts: a sentence and, where it is known, the id of the element that it begins in.

    Returns:
        The fragment of each; None of one that is not in the document.
    """
    letters, places = _letters(body)
    starts = _starts(body, places)
    found: list[tuple[_Place, _Place] | None] = []
    cursor = 0
    for text, anchor in texts:
        wanted = "".join(_fold(SPEAKER_TAG.sub("", text)))
        at = letters.find(wanted, max(cursor, starts.get(anchor, 0))) if wanted else -1
        if at < 0 and wanted:
            at = letters.find(wanted, cursor)
        if at < 0:
            found.append(None)
            continue
        cursor = at + len(wanted)
        found.append((places[at], places[cursor - 1]))
    marks: list[str | None] = [None] * len(texts)
    prefix = _free_prefix(body)
    # From the last on, so that what is cut never moves the places before it.
    for index in reversed(range(len(texts))):
        span = found[index]
        if span is not None:
            marks[index] = _mark(body, *span, f"{prefix}{index + 1}")
    return marks


def _free_prefix(body: Any) -> str:
    """Return what no id of the document begins with."""
    taken = [str(one.get("id")) for one in body.getroottree().iter("{*}*") if one.get("id")]
    prefix = ID_PREFIX
    while any(one.startswith(prefix) for one in taken):
        prefix = f"x{prefix}"
    return prefix


def _letters(body: Any) -> tuple[str, list[_Place]]:
    """Return the characters of a document without blanks, and where each is."""
    letters: list[str] = []
    places: list[_Place] = []
    for holder in _holders(body):
        for at, character in enumerate(holder.get()):
            for folded in _fold(character):
                letters.append(folded)
                places.append(_Place(holder, at))
    return "".join(letters), places


def _fold(text: str) -> Iterator[str]:
    """Yield what a text is compared by: no blanks, accents or soft hyphens, in lower case."""
    for character in unicodedata.normalize("NFKD", text):
        if not character.isspace() and unicodedata.category(character) not in ("Mn", "Cf", "Cc"):
            yield from character.casefold()


def _holders(element: Any) -> Iterator[_Holder]:
    """Yield the text nodes in reading order, without those that nobody reads."""
    if isinstance(element.tag, str) and element.tag not in _UNSPOKEN:
        yield _Holder(element, False)
        for child in element:
            yield from _holders(child)
            yield _Holder(child, True)


def _starts(body: Any, places: Sequence[_Place]) -> dict[str, int]:
    """Return at which character each element with an id begins."""
    first: dict[_Holder, int] = {}
    for index, place in enumerate(places):
        first.setdefault(place.holder, index)
    found: dict[str, int] = {}
    waiting: list[str] = []
    for holder in _holders(body):
        if not holder.is_tail and (name := holder.element.get("id")):
            waiting.append(name)
        if holder in first:
            found.update({name: first[holder] for name in waiting if name not in found})
            waiting.clear()
    return found


def _mark(body: Any, start: _Place, end: _Place, name: str) -> str:
    """Put a span around the text between two characters, or name the element around them."""
    parents = [start.holder.parent, *start.holder.parent.iterancestors()]
    around_end = {end.holder.parent, *end.holder.parent.iterancestors()}
    common = next(one for one in parents if one in around_end)
    first, last = _edge(common, start, is_first=True), _edge(common, end, is_first=False)
    if first is None or last is None:
        if common is body or not common.get("id"):
            common.set("id", common.get("id") or name)
        return str(common.get("id"))
    _wrap(common, first, last, name)
    return name


class _Edge(NamedTuple):
    """Say where a wrap begins or ends in a parent: in a text node of it, or at a child."""

    child: Any | None  # a whole child, or None for a place in a text node
    place: _Place | None


def _edge(common: Any, place: _Place, *, is_first: bool) -> _Edge | None:
    """Return an edge of the wrap; None where it lies in the middle of a child."""
    if place.holder.parent is common:
        return _Edge(None, place)
    child = place.holder.parent
    while child.getparent() is not common:
        child = child.getparent()
    texts = [one for one in _holders(child) if "".join(_fold(one.get()))]
    outer = texts[0] if is_first else texts[-1]
    if outer != place.holder:
        return None
    rest = outer.get()[: place.at] if is_first else outer.get()[place.at + 1 :]
    return None if "".join(_fold(rest)) else _Edge(child, None)


def _wrap(common: Any, first: _Edge, last: _Edge, name: str) -> None:
    """Move what lies between two edges of a parent into a new span."""
    span = common.makeelement(f"{XHTML}span", {"id": name})
    after = _cut_after(common, last)
    if first.child is not None:
        position = common.index(first.child)
    else:
        assert first.place is not None
        holder, text = first.place.holder, first.place.holder.get()
        holder.put(text[: first.place.at])
        span.text = text[first.place.at :]
        position = common.index(holder.element) + 1 if holder.is_tail else 0
    stop = len(common) if after.next_child is None else common.index(after.next_child)
    for child in list(common)[position:stop]:
        span.append(child)  # with its tail
    common.insert(position, span)
    span.tail = after.text


class _After(NamedTuple):
    text: str
    next_child: Any | None


def _cut_after(common: Any, last: _Edge) -> _After:
    """Cut off the text that follows the last character, and return it with the child after it."""
    if last.child is not None:
        text, last.child.tail = last.child.tail or "", None
        return _After(text, last.child.getnext())
    assert last.place is not None
    holder, text = last.place.holder, last.place.holder.get()
    holder.put(text[: last.place.at + 1])
    rest = text[last.place.at + 1 :]
    if holder.is_tail:
        return _After(rest, holder.element.getnext())
    return _After(rest, common[0] if len(common) else None)
