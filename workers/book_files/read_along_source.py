"""Make a read-along EPUB of the book's own: its text and looks, with its sentences marked.

A sentence becomes one `span` where markup allows that, also around whole inline elements. Where it
begins or ends inside one, the smallest element around it gets the id instead.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html.entities import html5
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from lxml import etree

from synth.books.book import BookRejectedError
from synth.books.epub.package import open_book_archive
from synth.text.segments import SPEAKER_TAG
from workers.book_files.book_audio import BookAudio, BookFacts, BookFileError
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.read_along import (
    FOLDER,
    Clip,
    Overlays,
    audio_name,
    clip_times,
    relative_href,
    write_package,
    xml_bytes,
)

MAX_ENTRY_BYTES = 100 * 2**20
MAX_TOTAL_BYTES = 500 * 2**20
XHTML = "{http://www.w3.org/1999/xhtml}"
ID_PREFIX = "spoken-"
_UNSPOKEN = {f"{XHTML}{name}" for name in ("script", "style", "head", "template", "rt", "rp")}
_ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]*);")
_XML_ENTITIES = {b"amp", b"lt", b"gt", b"quot", b"apos"}


def make_read_along_of(
    path: Path, source: Path, book: BookAudio, encoder: Encoder, encoding: Encoding
) -> tuple[list[ChapterFile], int]:
    """Write the source EPUB with overlays; return the chapters and how many segments have no place.

    A segment's anchor names its document, as `path` or `path#id` inside the EPUB; its words are
    looked for there. One without a place, such as credits, is left out of the overlays.

    Raises:
        OSError: the disk is full.
        BookFileError: `source_unreadable`, or what `Encoder.chapters` and covers raise.
    """
    chapters = list(encoder.chapters(book, encoding))
    try:
        with source.open("rb") as file, open_book_archive(file, "EPUB", damaged="") as archive:
            return chapters, _rewrite(path, archive, chapters, book.facts)
    except (
        BookRejectedError, zipfile.BadZipFile, etree.XMLSyntaxError, KeyError, NotImplementedError,
    ) as error:  # fmt: skip
        raise BookFileError(
            "source_unreadable",
            "The book's own EPUB cannot be rewritten; make a read-along file with the "
            "`format` `made` instead.",
        ) from error


def _rewrite(
    path: Path, archive: zipfile.ZipFile, chapters: Sequence[ChapterFile], facts: BookFacts
) -> int:
    """Write what is in an archive with overlays; return how many segments have no place."""
    limits = _Reader(archive)
    root_file = _parse(limits.read("META-INF/container.xml")).find(".//{*}rootfile")
    if root_file is None:
        raise KeyError("rootfile")
    package_name = str(root_file.attrib["full-path"])
    package = _parse(limits.read(package_name))
    style = posixpath.join(posixpath.dirname(package_name), FOLDER, "style.css")
    changed, overlays, missing = _marked_documents(limits, chapters, style)
    if not overlays:
        raise BookFileError(
            "source_unreadable",
            "None of the spoken sentences was found in the book's own EPUB; make a "
            "read-along file with the `format` `made` instead.",
        )

    def contents() -> Iterator[tuple[str, bytes]]:
        # A signature would no longer hold.
        written = {"", "mimetype", "META-INF/signatures.xml", package_name}
        for info in archive.infolist():
            if info.filename not in written and not info.filename.endswith("/"):
                written.add(info.filename)
                yield info.filename, changed.get(info.filename) or limits.read(info.filename)

    write_package(path, (package_name, package), contents(), overlays, chapters, facts)
    return missing


class _Reader:
    """Read entries with limits on what they unpack to, whatever their headers say."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.names = archive.NameToInfo
        self._archive = archive
        self._left = MAX_TOTAL_BYTES

    def read(self, name: str) -> bytes:
        most = min(MAX_ENTRY_BYTES, self._left)
        with self._archive.open(name) as entry:
            content = entry.read(most + 1)
        self._left -= len(content)
        if len(content) > most:
            raise BookFileError(
                "source_unreadable",
                "The book's EPUB is too large when it is unpacked; use the `format` `made` "
                "instead.",
            )
        return content


def _marked_documents(
    limits: _Reader, chapters: Sequence[ChapterFile], style: str
) -> tuple[dict[str, bytes], Overlays, int]:
    """Return the spoken documents, with ids and a style, their overlays, the unplaced segments."""
    heard: dict[str, list[tuple[str, str, str, int, int]]] = defaultdict(list)
    missing = 0
    for index, chapter in enumerate(chapters):
        for span, begin, end in clip_times(chapter):
            name, _, fragment = span.anchor.partition("#")
            if not name or name not in limits.names:
                missing += 1
            else:
                heard[name].append((span.text, unquote(fragment), audio_name(index), begin, end))
    documents: dict[str, bytes] = {}
    overlays: Overlays = {}
    for name, rows in heard.items():
        tree = _parse(limits.read(name))
        body, head = tree.find(f"{XHTML}body"), tree.find(f"{XHTML}head")
        if body is None:
            missing += len(rows)
            continue
        clips: list[Clip] = []
        marks = mark_sentences(body, [(text, fragment) for text, fragment, *_ in rows])
        for mark, (_, _, audio, begin, end) in zip(marks, rows, strict=True):
            if mark is None:
                missing += 1
            # One of the same element that goes on where the last ended makes it longer.
            elif clips and clips[-1][:2] == (mark, audio) and clips[-1].end == begin:
                clips[-1] = clips[-1]._replace(end=end)
            else:
                clips.append(Clip(mark, audio, begin, end))
        if head is not None:
            href = relative_href(style, posixpath.dirname(name))
            link = {"rel": "stylesheet", "type": "text/css", "href": href}
            etree.SubElement(head, f"{XHTML}link", link)
        documents[name] = xml_bytes(tree)
        if clips:
            overlays[name] = clips
    return documents, overlays, missing


def _parse(content: bytes) -> Any:
    """Parse XML without entities, network or huge trees; named characters are resolved before."""

    def number(found: re.Match[bytes]) -> bytes:
        name = found.group(1)
        text = html5.get(f"{name.decode()};") if name not in _XML_ENTITIES else None
        return "".join(f"&#{ord(one)};" for one in text).encode() if text else found.group()

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    return etree.fromstring(_ENTITY.sub(number, content), parser)


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
    found: list[tuple[int, _Place, _Place]] = []
    cursor = 0
    for index, (text, anchor) in enumerate(texts):
        wanted = "".join(_fold(SPEAKER_TAG.sub("", text)))
        at = letters.find(wanted, max(cursor, starts.get(anchor, 0))) if wanted else -1
        if at < 0 and wanted:
            at = letters.find(wanted, cursor)
        if at >= 0:
            cursor = at + len(wanted)
            found.append((index, places[at], places[cursor - 1]))
    # No id of the document begins with it.
    taken = [str(one.get("id")) for one in body.getroottree().iter("{*}*") if one.get("id")]
    prefix = ID_PREFIX
    while any(one.startswith(prefix) for one in taken):
        prefix = f"x{prefix}"
    marks: list[str | None] = [None] * len(texts)
    # From the last on, so that what is cut never moves the places before it.
    for index, first, last in reversed(found):
        marks[index] = _mark(body, first, last, f"{prefix}{index + 1}")
    return marks


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


def _edge(common: Any, place: _Place, *, is_first: bool) -> Any:
    """Return an edge of the wrap: a place in a parent's text, or a whole child of it.

    None where it lies in the middle of a child.
    """
    if place.holder.parent is common:
        return place
    child = place.holder.parent
    while child.getparent() is not common:
        child = child.getparent()
    texts = [one for one in _holders(child) if "".join(_fold(one.get()))]
    outer = texts[0] if is_first else texts[-1]
    if outer != place.holder:
        return None
    rest = outer.get()[: place.at] if is_first else outer.get()[place.at + 1 :]
    return None if "".join(_fold(rest)) else child


def _wrap(common: Any, first: Any, last: Any, name: str) -> None:
    """Move what lies between two edges of a parent into a new span."""
    span = common.makeelement(f"{XHTML}span", {"id": name})
    tail, next_child = _cut_after(common, last)
    if isinstance(first, _Place):
        holder, text = first.holder, first.holder.get()
        holder.put(text[: first.at])
        span.text = text[first.at :]
        position = common.index(holder.element) + 1 if holder.is_tail else 0
    else:
        position = common.index(first)
    stop = len(common) if next_child is None else common.index(next_child)
    for child in list(common)[position:stop]:
        span.append(child)  # with its tail
    common.insert(position, span)
    span.tail = tail


def _cut_after(common: Any, last: Any) -> tuple[str, Any | None]:
    """Cut off the text that follows the last character, and return it with the child after it."""
    if not isinstance(last, _Place):
        text, last.tail = last.tail or "", None
        return text, last.getnext()
    holder, text = last.holder, last.holder.get()
    holder.put(text[: last.at + 1])
    rest = text[last.at + 1 :]
    if holder.is_tail:
        return rest, holder.element.getnext()
    return rest, common[0] if len(common) else None
