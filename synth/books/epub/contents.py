"""Read the contents list and the landmarks: the navigation document, or EPUB 2's NCX and guide."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from lxml import etree

from synth.books.book import Block, BlockKind, Document, TocEntry
from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.documents.notes import places_of
from synth.books.documents.parsing import parse_document, parse_xml
from synth.books.epub.archive import Archive, EntryError, loosely
from synth.books.epub.package import Item, Package, children
from synth.books.txt.headings import normalised
from ttsweb.counted import counted

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
    landmarks = _guide(package)
    nav = package.with_property("nav")
    if nav is not None:
        try:
            root = parse_document(archive.read(nav.path)).root
        except EntryError as error:
            package.warnings.append(f"The contents list {nav.path!r} cannot be read: {error}.")
        else:
            toc = _nav_entries(root, nav.path)
            landmarks.update(_nav_landmarks(root, nav.path))
    roles = {_canonical_place(place, canonical): role for place, role in landmarks.items()}
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


def _canonical_place(place: str, canonical: Canonical) -> str:
    path, sign, anchor = place.partition("#")
    return f"{canonical(path)}{sign}{anchor}"


def _count_places(toc: list[TocEntry], package: Package, canonical: Canonical) -> int:
    """Return to how many places in documents that are read a list leads."""
    read = {place.item.path for place in package.spine}
    found = {(canonical(entry.path), entry.fragment) for entry in toc}
    return sum(path in read for path, _ in found)


def _nav_of(root: Element, kind: str) -> Element | None:
    navs = children(root, "nav")
    found = next((nav for nav in navs if kind in markup.types_of(nav)), None)
    untyped = [nav for nav in navs if not markup.types_of(nav)]
    return untyped[0] if found is None and kind == "toc" and untyped else found


def _nav_entries(root: Element, path: str) -> list[TocEntry]:
    nav = _nav_of(root, "toc")
    owner = next((e for e in nav if markup.name_of(e) == "ol"), None) if nav is not None else None
    if owner is None and nav is not None:
        owner = next(iter(children(nav, "ol")), None)
    return _list_entries(owner, path, 1) if owner is not None else []


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
    links = [] if label is None else children(label, "a")
    link = links[0] if links else None
    title = markup.squeeze(_label_text(label) if label is not None else item.text or "")
    target = markup.resolve(path, link.get("href") or "") if link is not None else None
    if target is not None:
        return [TocEntry(title, target[0], target[1], level)]
    if title and inner:
        return [TocEntry(title, inner[0].path, inner[0].fragment, level)]
    return []


def _label_text(label: Element) -> str:
    """Return a label's words; those of its images for want of any."""
    alts = " ".join(image.get("alt") or "" for image in children(label, "img"))
    return markup.text_of(label).strip() or alts or label.get("title") or ""


def _nav_landmarks(root: Element, path: str) -> dict[str, str]:
    nav = _nav_of(root, "landmarks")
    found: dict[str, str] = {}
    for link in children(nav, "a") if nav is not None else ():
        target = markup.resolve(path, link.get("href") or "")
        role = markup.known_role(markup.types_of(link))
        if target is not None and role:
            found[_place(*target)] = role
    return found


def _guide(package: Package) -> dict[str, str]:
    found: dict[str, str] = {}
    for guide in children(package.root, "guide"):
        for reference in children(guide, "reference"):
            target = markup.resolve(package.path, reference.get("href") or "")
            kind = (reference.get("type") or "").lower().removeprefix("other.")
            role = markup.known_role([kind])
            if target is not None and role:
                found.setdefault(_place(*target), role)
    return found


def _place(path: str, fragment: str) -> str:
    return f"{path}#{fragment}" if fragment else path


def _ncx_item(package: Package) -> Item | None:
    item = package.items.get(package.ncx_id)
    if item is not None:
        return item
    return next((i for i in package.items.values() if i.media_type == _NCX), None)


def _ncx_entries(archive: Archive, package: Package) -> list[TocEntry]:
    item = _ncx_item(package)
    if item is None:
        return []
    try:
        root = parse_xml(archive.read(item.path))
    except (EntryError, etree.XMLSyntaxError) as error:
        package.warnings.append(f"The contents list {item.path!r} cannot be read: {error}.")
        return []
    entries: list[TocEntry] = []
    for nav_map in children(root, "navmap"):
        _add_points(nav_map, item.path, 1, entries)
    return entries


def _add_points(owner: Element, path: str, level: int, entries: list[TocEntry]) -> None:
    for point in owner:
        if markup.name_of(point) != "navpoint":
            continue
        label = next((e for e in point if markup.name_of(e) == "navlabel"), None)
        content = next((e for e in point if markup.name_of(e) == "content"), None)
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


def linked(documents: tuple[Document, ...], canonical: Canonical) -> tuple[Document, ...]:
    """Return the documents with the marks of their notes leading to documents as they are named."""
    return tuple(
        replace(document, blocks=tuple(_link_block(b, canonical) for b in document.blocks))
        for document in documents
    )


def _link_block(block: Block, canonical: Canonical) -> Block:
    if not block.note_marks:
        return block
    parted = (mark.partition("#") for mark in block.note_marks)
    marks = (f"{canonical(path)}{sign}{anchor}" for path, sign, anchor in parted)
    return replace(block, note_marks=tuple(marks))


def mend_contents(
    toc: list[TocEntry], documents: tuple[Document, ...], canonical: Canonical
) -> tuple[tuple[TocEntry, ...], tuple[Document, ...], list[str]]:
    """Return the contents list, the documents and warnings, with lost entries found again.

    An entry whose anchor is gone leads to the heading, or for want of one to the paragraph, of its
    document that says what it says, behind the entry before it.
    """
    numbers = {document.path: number for number, document in enumerate(documents)}
    places = places_of(documents)
    texts: dict[int, dict[str, list[int]]] = {}
    anchors: dict[tuple[int, int], str] = {}
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
    warning = (
        f"The contents list has {counted(len(anchors), 'entry', 'entries')} with a broken "
        "link; the place was found by "
        f"{'its title' if len(anchors) == 1 else 'their titles'}."
    )
    return tuple(mended), _add_anchors(documents, anchors), [warning] if anchors else []


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


def _add_anchors(
    documents: tuple[Document, ...], anchors: dict[tuple[int, int], str]
) -> tuple[Document, ...]:
    changed = [list(document.blocks) for document in documents]
    for (number, at), anchor in anchors.items():
        block = changed[number][at]
        changed[number][at] = replace(block, anchors=(*block.anchors, anchor))
    return tuple(
        replace(document, blocks=tuple(blocks))
        for document, blocks in zip(documents, changed, strict=True)
    )
