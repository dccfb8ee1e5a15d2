"""Read an EPUB's archive, container and package: what belongs to it, and in which order.

A stranger made the ZIP archive; nothing is ever written to disk.
"""

from __future__ import annotations

import io
import lzma
import re
import struct
import unicodedata
import zipfile
import zlib
from dataclasses import dataclass, field
from typing import IO
from urllib.parse import unquote

from lxml import etree

from synth.books.book import BookRejectedError, Loss, Metadata
from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.documents.parsing import parse_xml
from ttsweb.zips import ZipLimits, ZipRefusedError, open_zip

LIMITS = ZipLimits(
    entries=10_000,
    directory_bytes=4 * 1024**2,
    growth_bytes=128 * 1024**2,  # a long novel has 2 MiB in all
    ratio=50,
    ratio_from_bytes=8 * 1024**2,
)
# The codes of refusals, and what helps.
_REFUSALS = {
    "too_large": (
        "book_archive_too_large",
        "Leave out everything that is not part of the book, or split the book.",
    ),
    "unsafe": ("book_archive_unsafe", "Make the file again with another program."),
    "encrypted": ("book_encrypted", "Send it without a password."),
}


def open_book_archive(source: IO[bytes], what: str, *, damaged: str) -> zipfile.ZipFile:
    """Open an archive by its directory; none of its entries is read.

    Args:
        what: what the archive is to be, such as "EPUB".
        damaged: the code for a file that is no archive, or a damaged one.

    Raises:
        BookRejectedError: `damaged`, book_archive_too_large, book_archive_unsafe, book_encrypted.
    """
    try:
        return open_zip(source, LIMITS)
    except ZipRefusedError as error:
        unknown = (damaged, "Send the file again, or save it again first.")
        code, remedy = _REFUSALS.get(error.code, unknown)
        raise BookRejectedError(code, f"This {what} {error.why}. {remedy}") from error


MAX_ENTRY_BYTES = 16 * 1024**2
MAX_TOTAL_BYTES = LIMITS.growth_bytes
_CHUNK_BYTES = 256 * 1024
# What zipfile raises for files that are damaged; NotImplementedError, for a way of packing that it
# does not know, is a RuntimeError, and a name that is no UTF-8 a ValueError.
DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
)


class EntryError(Exception):
    """One file of the archive cannot be read; the message says why."""


class Archive:
    """Hold an open archive.

    Attributes:
        names: the usable names, in the order of the archive.
        warnings: what was odd about it.
    """

    def __init__(self, raw: bytes) -> None:
        """Open an archive.

        Raises:
            BookRejectedError: book_not_epub, book_encrypted, book_archive_unsafe or
                book_archive_too_large.
        """
        self.warnings: list[str] = []
        self._total_bytes = 0
        self._zip = open_book_archive(io.BytesIO(raw), "EPUB", damaged="book_not_epub")
        self._entries: dict[str, zipfile.ZipInfo] = {}
        for entry in self._zip.infolist():
            name = entry.filename.replace("\\", "/")  # so do old programs part folders
            if name.endswith("/"):
                continue
            if not name:
                self.warnings.append("The book contains a file without a name, which is not read.")
            elif name.startswith("/") or ".." in name.split("/") or ":" in name[:2]:
                self.warnings.append(f"The file {name!r} has a name that points outside the book.")
            elif name in self._entries:
                self.warnings.append(
                    f"The book contains the file {name!r} twice; the first one is read."
                )
            else:
                self._entries[name] = entry
        self.names = list(self._entries)
        self._loose: dict[str, str] = {}
        for name in self.names:
            self._loose.setdefault(loosely(name), name)

    def close(self) -> None:
        self._zip.close()

    def find(self, name: str) -> str | None:
        """Return the name under which a file is in the archive; letters' case may differ."""
        return name if name in self._entries else self._loose.get(loosely(name))

    def read(self, name: str, *, max_bytes: int = MAX_ENTRY_BYTES) -> bytes:
        """Return a file's bytes, which are counted as they come: stated sizes may be lies.

        Raises:
            EntryError: there is no such file, or it is damaged or too large.
            BookRejectedError: book_archive_too_large, it is a bomb, or all files together are.
        """
        found = self.find(name)
        if found is None:
            raise EntryError("the book does not contain the file")
        entry = self._entries[found]
        too_large = EntryError(f"it has more than {max_bytes // 1024**2} MiB")
        if entry.file_size > max_bytes:
            raise too_large
        chunks: list[bytes] = []
        num_bytes = 0
        try:
            with self._zip.open(entry) as opened:
                while chunk := opened.read(_CHUNK_BYTES):
                    num_bytes += len(chunk)
                    self._total_bytes += len(chunk)
                    is_bomb = num_bytes > LIMITS.ratio * max(entry.compress_size, 1)
                    if self._total_bytes > MAX_TOTAL_BYTES:
                        most = MAX_TOTAL_BYTES // 1024**2
                        raise _too_large(f"unpacks to more than {most} MiB of text")
                    if num_bytes > max_bytes:
                        raise too_large
                    chunks.append(chunk)
                    if is_bomb and num_bytes > LIMITS.ratio_from_bytes:  # the directory may lie
                        packed = f"is packed by more than {LIMITS.ratio} to 1"
                        raise _too_large(f"has a file, {found!r}, that {packed}")
        except DAMAGE as error:
            raise EntryError(f"it is damaged: {error}") from error
        return b"".join(chunks)

    def first(self) -> tuple[str, bool]:
        """Return the first file's name and whether it is stored as it is."""
        entries = self._zip.infolist()
        return (entries[0].filename, not entries[0].compress_type) if entries else ("", False)


def loosely(name: str) -> str:
    """Return a name without what may differ between a link and the file that it means."""
    return unicodedata.normalize("NFC", unquote(name)).casefold()


def _too_large(why: str) -> BookRejectedError:
    return BookRejectedError("book_archive_too_large", f"This EPUB {why}, so it is not read.")


_MIMETYPE = b"application/epub+zip"
DOCUMENTS = frozenset(
    {
        "application/xhtml+xml",
        "text/html",
        "application/html+xml",
        "text/x-oeb1-document",
        "application/x-dtbook+xml",
        "image/svg+xml",
        "application/xml",
        "text/xml",
    }
)
_PAGES = frozenset({"application/xhtml+xml", "text/html"})
_SUFFIXES = (".xhtml", ".html", ".htm", ".xml")


@dataclass(frozen=True, slots=True)
class Item:
    """Hold one file of the manifest; `path` is that in the archive."""

    id: str
    path: str
    media_type: str
    properties: frozenset[str]
    fallback: str = ""

    @property
    def is_nav(self) -> bool:
        return "nav" in self.properties

    @property
    def is_document(self) -> bool:
        """Say whether it is a text that can be read, by its type, or its name for want of one."""
        return self.media_type in DOCUMENTS or (
            not self.media_type and self.path.lower().endswith(_SUFFIXES)
        )


@dataclass(slots=True)
class Package:
    """Hold what the package says; `root` is its element, `path` its place in the archive.

    `spine` is the order of reading: paths, and whether each is linear.
    """

    root: Element
    path: str
    items: dict[str, Item]
    spine: dict[str, bool]
    ncx_id: str = ""
    warnings: list[str] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)  # of the order of reading


def read_package(archive: Archive) -> Package:
    """Read the package of the first rendition.

    Raises:
        BookRejectedError: book_not_epub or book_package_broken.
    """
    try:
        content = archive.read("mimetype", max_bytes=1024)
    except EntryError:
        content = b""
    warnings: list[str] = []
    if content.strip() != _MIMETYPE:
        warnings.append(f"The file's mimetype is not {_MIMETYPE.decode()}; it was read as an EPUB.")
    elif archive.first() != ("mimetype", True):
        warnings.append("The mimetype is not the first file, or is compressed.")
    path = _package_path(archive, warnings)
    try:
        root = parse_xml(archive.read(path))
    except (EntryError, etree.XMLSyntaxError) as error:
        raise BookRejectedError(
            "book_package_broken",
            f"The EPUB's package {path!r} cannot be read ({error}). Repair the book, for "
            "example by converting it to EPUB again.",
        ) from error
    items = _items(root, path)
    package = Package(root, path, items, {}, warnings=warnings)
    _read_spine(package)
    if not package.spine:
        package.warnings.append("The book states no reading order; the order of its files is used.")
        documents = [one for one in items.values() if one.is_document and not one.is_nav]
        package.spine = dict.fromkeys((one.path for one in documents), True)
    _add_unlisted(package, archive)
    return package


def _package_path(archive: Archive, warnings: list[str]) -> str:
    try:
        container = parse_xml(archive.read("META-INF/container.xml"))
        for rootfile in markup.named(container, "rootfile"):
            target = markup.resolve("", rootfile.get("full-path") or "")
            if target and target[0] and archive.find(target[0]):
                return archive.find(target[0]) or target[0]
    except (EntryError, etree.XMLSyntaxError):
        pass
    found = [name for name in archive.names if name.lower().endswith(".opf")]
    if not found:
        raise BookRejectedError(
            "book_not_epub", "This is not an EPUB: the archive has no package (.opf)."
        )
    warnings.append("The container names no existing package; the first .opf file is read.")
    return found[0]


def _items(root: Element, path: str) -> dict[str, Item]:
    items: dict[str, Item] = {}
    for element in markup.named(root, "item"):
        target = markup.resolve(path, element.get("href") or "")
        if not element.get("id") or target is None:
            continue  # a remote resource
        item = Item(
            id=element.get("id"),
            path=target[0],
            media_type=(element.get("media-type") or "").strip().lower(),
            properties=frozenset((element.get("properties") or "").split()),
            fallback=element.get("fallback") or "",
        )
        items.setdefault(item.id, item)
    return items


def _read_spine(package: Package) -> None:
    spine = next(markup.named(package.root, "spine"), None)
    if spine is None:
        return
    package.ncx_id = spine.get("toc") or ""
    for reference in markup.named(spine, "itemref"):
        name = reference.get("idref") or ""
        item = _readable(package.items, name)
        if name not in package.items:
            package.warnings.append(
                f"The reading order names {name!r}, which the book does not list."
            )
            package.losses.append(
                Loss(name, "The reading order names it, but the book has no file with this name.")
            )
        elif item is None:
            path = package.items[name].path
            package.warnings.append(f"{path!r} in the reading order is not text; it is left out.")
        elif item.path in package.spine:
            package.warnings.append(
                f"{item.path!r} is in the reading order twice; it is read once."
            )
        else:
            linear = (reference.get("linear") or "yes").strip().lower()
            package.spine[item.path] = linear != "no"


def _add_unlisted(package: Package, archive: Archive) -> None:
    """Put pages that the order of reading leaves out behind it: somebody may include them."""
    for item in package.items.values():
        is_page = item.media_type in _PAGES and not item.is_nav
        if not is_page or item.path in package.spine or archive.find(item.path) is None:
            continue
        package.spine[item.path] = False
        package.warnings.append(
            f"{item.path!r} is not in the reading order; it is not spoken unless you include it."
        )


def _readable(items: dict[str, Item], name: str) -> Item | None:
    """Return the first text in an item's chain of fallbacks."""
    seen: set[str] = set()
    while name in items and name not in seen:
        seen.add(name)
        if items[name].is_document:
            return items[name]
        name = items[name].fallback
    return None


_TAG = re.compile(r"<[^<>]{0,2000}>")
_OPF = "{http://www.idpf.org/2007/opf}"
_MAX_CHARS = 10_000


def read_metadata(root: Element) -> Metadata:
    """Return the metadata of a package's root; what is not there is empty."""
    found = _Statements(root)
    titles = [one for one in found.refined_texts("title", "title-type") if one[1]]
    title = _choose_text(titles, "main")
    identifiers = found.elements.get("identifier", [])
    unique = root.get("unique-identifier")
    identifiers = [e for e in identifiers if unique and e.get("id") == unique] or identifiers
    series, series_index = _series(found)
    # Who wrote it: creators with that role, else those without any, else all.
    creators = found.refined_texts("creator", "role")
    authors = [text for roles, text in creators if "aut" in roles]
    authors += [text for roles, text in creators if not roles]
    authors = authors or [text for _, text in creators]
    texts = {
        name: next(iter(found.texts(name)), "")
        for name in ("language", "publisher", "description", "rights")
    }
    return Metadata(
        title=title,
        subtitle=next((t for types, t in titles if "subtitle" in types and t != title), ""),
        authors=tuple(dict.fromkeys(filter(None, authors))),
        language=texts["language"].replace("_", "-"),
        publisher=texts["publisher"],
        date=_choose_text(found.refined_texts("date", "event"), "publication"),
        description=markup.squeeze(_TAG.sub(" ", texts["description"])),
        identifier=_text(identifiers[0]) if identifiers else "",
        series=series,
        series_index=series_index,
        rights=texts["rights"],
        subjects=tuple(dict.fromkeys(found.texts("subject"))),
    )


class _Statements:
    """Index the elements of the metadata by name, and what refines them by id."""

    def __init__(self, root: Element) -> None:
        self.elements: dict[str, list[Element]] = {}
        self.refined: dict[tuple[str, str], list[str]] = {}
        self.metas: list[Element] = []
        metadata = next(markup.named(root, "metadata"), None)
        for element in metadata.iter() if metadata is not None else ():
            name = markup.name_of(element)
            self.elements.setdefault(name, []).append(element)
            if name == "meta":
                self.metas.append(element)
                key = ((element.get("refines") or "").lstrip("#"), element.get("property") or "")
                self.refined.setdefault(key, []).append(_text(element))

    def texts(self, name: str) -> list[str]:
        """Return the texts of a Dublin Core element."""
        return [text for element in self.elements.get(name, []) if (text := _text(element))]

    def refinements(self, element: Element, name: str) -> list[str]:
        """Return what refines an element: EPUB 3's metas, or EPUB 2's attribute."""
        attribute = element.get(f"{_OPF}{name}") or element.get(f"opf:{name}")
        refined = self.refined.get((element.get("id") or "", name), []) if element.get("id") else []
        return [*refined, *([attribute] if attribute else [])]

    def refined_texts(self, name: str, refinement: str) -> list[tuple[list[str], str]]:
        """Return what refines each element of a name, and its text."""
        elements = self.elements.get(name, [])
        return [(self.refinements(element, refinement), _text(element)) for element in elements]

    def named(self, name: str) -> str:
        """Return the content of EPUB 2's `<meta name content>`."""
        metas = (meta for meta in self.metas if meta.get("name") == name)
        return next((meta.get("content") or "" for meta in metas), "").strip()


def _text(element: Element) -> str:
    return markup.squeeze(markup.text_of(element))[:_MAX_CHARS]


def _choose_text(texts: list[tuple[list[str], str]], wanted: str) -> str:
    """Return the first text that is refined so, else the first that nothing refines, else any."""
    refined = [text for kinds, text in texts if wanted in kinds and text]
    plain = [text for kinds, text in texts if not kinds and text]
    return next(iter([*refined, *plain, *(text for _, text in texts)]), "")


def _series(found: _Statements) -> tuple[str, str]:
    """Return (name, number) of the series: EPUB 3's collection, or what Calibre writes."""
    for meta in found.metas:
        if meta.get("property") == "belongs-to-collection" and not meta.get("refines"):
            kinds = found.refinements(meta, "collection-type")
            if not kinds or "series" in kinds:
                positions = found.refinements(meta, "group-position")
                return _text(meta), next(iter(positions), "")
    return found.named("calibre:series"), found.named("calibre:series_index")
