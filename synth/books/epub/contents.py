"""Read the contents list and the landmarks: the navigation document, or EPUB 2's NCX and guide."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from lxml import etree

from synth.books.book import BlockKind, Document, Place, TocEntry
from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.documents.notes import places_of, with_blocks
from synth.books.documents.parsing import parse_document, parse_xml
from synth.books.epub.package import Archive, EntryError, Package, loosely
from synth.books.txt.headings import normalised
from ttsweb.refusals import counted

_NCX = "application/x-dtbncx+xml"
_MAX_LEVEL = 12


def read_contents(
    archive: Archive, package: Package, canonical: Canonical
) -> tuple[list[TocEntry], dict[str, str]]:
    """Return the contents list, and the roles of places (path or path#anchor).

    The list is that of the navigation document, unless it leads to less than two places and the
    NCX to more.
    """
    toc: list[TocEntry] = []
    landmarks: dict[str, str] = {}
    for guide in markup.named(package.root, "guide"):
        for reference in markup.named(guide, "reference"):
            kind = (reference.get("type") or "").lower().removeprefix("other.")
            place = _place_of(package.path, reference)
            if role := place and markup.known_role([kind]):
                landmarks.setdefault(place, role)
    nav = next((item for item in package.items.values() if item.is_nav), None)
    root = (
        None
        if nav is None
        else _read_list(archive, package, nav.path, lambda raw: parse_document(raw).root)
    )
    if nav is not None and root is not None:
        for one in _nav_of(root, "toc")[:1]:
            own = [child for child in one if markup.name_of(child) == "ol"]
            for owner in [*own, *markup.named(one, "ol")][:1]:
                toc = _list_entries(owner, nav.path, 1)
        for one in _nav_of(root, "landmarks")[:1]:
            for link in markup.named(one, "a"):
                place = _place_of(nav.path, link)
                if role := place and markup.known_role(markup.types_of(link)):
                    landmarks[place] = role
    roles = {canonical_mark(place, canonical): role for place, role in landmarks.items()}
    places = _count_places(toc, package, canonical)
    if places > 1:
        return toc, roles
    older = _ncx_entries(archive, package)
    if _count_places(older, package, canonical) <= places:
        return toc or older, roles
    if toc:
        package.warnings.append(
            "The navigation document has fewer entries than the NCX, so the NCX is used."
        )
    return older, roles


def canonical_mark(mark: str, canonical: Canonical) -> str:
    """Return a place, "path" or "path#anchor", with the path of the document that is meant."""
    path, sign, anchor = mark.partition("#")
    return f"{canonical(path)}{sign}{anchor}"


def _place_of(path: str, link: Element) -> str:
    """Return where a link in a file leads to; empty for a place out of the book."""
    target = markup.resolve(path, link.get("href") or "")
    return "" if target is None else "#".join(target).removesuffix("#")


def _read_list(
    archive: Archive, package: Package, path: str, parse: Callable[[bytes], Element]
) -> Element | None:
    try:
        return parse(archive.read(path))
    except (EntryError, etree.XMLSyntaxError) as error:
        package.warnings.append(f"The contents list {path!r} cannot be read: {error}.")
        return None


def _count_places(toc: list[TocEntry], package: Package, canonical: Canonical) -> int:
    """Return to how many places in documents that are read a list leads."""
    found = {(canonical(entry.path), entry.fragment) for entry in toc}
    return sum(path in package.spine for path, _ in found)


def _nav_of(root: Element, kind: str) -> list[Element]:
    """Return the lists of a kind, the one to read first; one without a type may be the contents."""
    navs = list(markup.named(root, "nav"))
    untyped = [nav for nav in navs if kind == "toc" and not markup.types_of(nav)]
    return [nav for nav in navs if kind in markup.types_of(nav)] + untyped


def _list_entries(owner: Element, path: str, level: int) -> list[TocEntry]:
    """Return the entries of one list; an entry without a link stands where the first in it does."""
    entries: list[TocEntry] = []
    for item in owner:
        if markup.name_of(item) != "li":
            continue
        inner: list[TocEntry] = []
        label: Element | None = None
        for child in item:
            if markup.name_of(child) == "ol" and level < _MAX_LEVEL:
                inner += _list_entries(child, path, level + 1)
            elif label is None and markup.name_of(child):
                label = child
        entries += _entry(label, item, path, level, inner) + inner
    return entries


def _entry(
    label: Element | None, item: Element, path: str, level: int, inner: list[TocEntry]
) -> list[TocEntry]:
    link = None if label is None else next(markup.named(label, "a"), None)
    text = item.text or ""
    if label is not None:  # its words; those of its images for want of any
        alts = " ".join(image.get("alt") or "" for image in markup.named(label, "img"))
        text = markup.text_of(label).strip() or alts or label.get("title") or ""
    title = markup.squeeze(text)
    target = None if link is None else markup.resolve(path, link.get("href") or "")
    if target is not None:
        return [TocEntry(title, target[0], target[1], level)]
    return [TocEntry(title, inner[0].path, inner[0].fragment, level)] if title and inner else []


def _ncx_entries(archive: Archive, package: Package) -> list[TocEntry]:
    named = (i for i in package.items.values() if i.media_type == _NCX)
    item = package.items.get(package.ncx_id) or next(named, None)
    root = None if item is None else _read_list(archive, package, item.path, parse_xml)
    entries: list[TocEntry] = []
    if item is not None and root is not None:
        for nav_map in markup.named(root, "navmap"):
            _add_points(nav_map, item.path, 1, entries)
    return entries


def _add_points(owner: Element, path: str, level: int, entries: list[TocEntry]) -> None:
    for point in (point for point in owner if markup.name_of(point) == "navpoint"):
        parts = {markup.name_of(part): part for part in reversed(point)}
        label, content = parts.get("navlabel"), parts.get("content")
        target = markup.resolve(path, content.get("src") or "") if content is not None else None
        title = markup.squeeze(markup.text_of(label)) if label is not None else ""
        if target is not None:
            entries.append(TocEntry(title, target[0], target[1], level))
        if level < _MAX_LEVEL:
            _add_points(point, path, level + 1, entries)


Canonical = Callable[[str], str]
_MAX_TITLE_CHARS = 200
_MAY_BE_TITLES = frozenset({BlockKind.HEADING, BlockKind.PARAGRAPH})


def canonical_paths(paths: Iterable[str]) -> Canonical:
    """Return what makes of a link's path that of the document which it means.

    Letters' case, escapes and composed accents may differ; a path of no document stays as it is.
    """
    exact = frozenset(paths)
    loose: dict[str, str] = {}
    for path in paths:
        loose.setdefault(loosely(path), path)
    return lambda path: path if path in exact else loose.get(loosely(path), path)


def mend_contents(
    toc: list[TocEntry], documents: tuple[Document, ...], canonical: Canonical
) -> tuple[tuple[TocEntry, ...], tuple[Document, ...], list[str]]:
    """Return the contents list, the documents and warnings, with lost entries found again.

    An entry whose anchor is gone leads to the heading, or for want of one to the paragraph, of its
    document that says what it says, behind the entry before it. Marks of notes lead to documents as
    they are named.
    """
    numbers = {document.path: number for number, document in enumerate(documents)}
    places = places_of(documents)
    texts: dict[int, dict[str, list[int]]] = {}
    anchors: dict[Place, str] = {}
    last = (0, -1)
    mended: list[TocEntry] = []
    for entry in (replace(entry, path=canonical(entry.path)) for entry in toc):
        number = numbers.get(entry.path)
        place = places.get(f"{entry.path}#{entry.fragment}") if entry.fragment else None
        if number is not None and entry.fragment and place is None:
            known = texts.setdefault(number, {})
            found = _find_title(documents[number], known, entry, last, number)
            if found is not None:
                place = (number, found)
                anchors.setdefault(place, f"contents-{len(anchors) + 1}")
                entry = replace(entry, fragment=anchors[place])
        last = place or last
        mended.append(entry)
    changed = [list(document.blocks) for document in documents]
    for number, blocks in enumerate(changed):
        for at, block in enumerate(blocks):
            if block.note_marks or (number, at) in anchors:
                marks = tuple(canonical_mark(mark, canonical) for mark in block.note_marks)
                own = [anchors[number, at]] if (number, at) in anchors else []
                blocks[at] = replace(block, note_marks=marks, anchors=(*block.anchors, *own))
    warning = (
        f"The contents list has {counted(len(anchors), 'entry', 'entries')} with a broken "
        "link; the place was found by "
        f"{'its title' if len(anchors) == 1 else 'their titles'}."
    )
    return tuple(mended), with_blocks(documents, changed), [warning] if anchors else []


def _find_title(
    document: Document,
    texts: dict[str, list[int]],
    entry: TocEntry,
    last: tuple[int, int],
    number: int,
) -> int | None:
    if not texts:
        for at, block in enumerate(document.blocks):
            if block.kind in _MAY_BE_TITLES and len(block.text) <= _MAX_TITLE_CHARS:
                texts.setdefault(normalised(block.text), []).append(at)
    after = last[1] if last[0] == number else -1
    found = [at for at in texts.get(normalised(entry.title), ()) if at > after]
    headings = [at for at in found if document.blocks[at].kind is BlockKind.HEADING]
    return next(iter(headings or found), None)
