"""Read an EPUB into a book: what can be read is read, and what cannot is told."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from synth.books.book import (
    MAX_COVER_PIXELS,
    Book,
    BookRejectedError,
    Cover,
    Document,
    Loss,
    count_chars,
    image_size,
)
from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.documents.notes import mark_notes
from synth.books.documents.parsing import decode, parse_document
from synth.books.documents.xhtml import document_of
from synth.books.epub.contents import canonical_paths, mend_contents, read_contents
from synth.books.epub.package import Archive, EntryError, Package, read_metadata, read_package
from synth.books.rules import SkipReason, section_reason

# A page of this kind is not longer: a book of one file says that its start is the title page.
_MAX_CHARS = {SkipReason.TITLE_PAGE: 3_000, SkipReason.LICENCE: 30_000, SkipReason.CONTENTS: 60_000}
_MAX_SHARE = 0.5  # of the book's text
_MIN_LINKS = 5
_MIN_LINKED_SHARE = 0.8  # of a page's characters: what is all links is a contents list


def apply_landmarks(
    documents: list[Document], landmarks: dict[str, str]
) -> tuple[list[Document], list[str]]:
    """Return the documents with the roles that the landmarks give them, and warnings.

    A role that would leave out a text too long for it is not believed.
    """
    total = sum(document.source_chars for document in documents)
    chosen: list[Document] = []
    warnings: list[str] = []
    for document in documents:
        role = landmarks.get(document.path, "")
        if role in markup.MATTER or (document.role and document.role not in markup.MATTER):
            role = ""
        reason = section_reason(role)
        limit = min(_MAX_CHARS.get(reason, total), _MAX_SHARE * total) if reason else total
        if role and document.source_chars > limit:
            warnings.append(
                f"The book marks {document.path!r} as its {role}, but it has "
                f"{document.source_chars} characters, so it is treated as text."
            )
            role = ""
        chosen.append(replace(document, role=role or document.role))
    return chosen, warnings


def is_contents(root: Element, document: Document) -> bool:
    """Say whether a page that no role names is nothing but links to places in the book."""
    if document.role not in {"", *markup.MATTER}:
        return False
    links = [
        link
        for link in markup.named(root, "a")
        if markup.resolve(document.path, link.get("href") or "")
    ]
    if not _MIN_LINKS <= len(links) <= document.source_chars:
        return False
    linked = sum(count_chars(markup.text_of(link)) for link in links)
    return linked >= _MIN_LINKED_SHARE * document.source_chars


# They scramble fonts so that these cannot be copied out; texts stay as they are.
_FONT_OBFUSCATION = frozenset(
    {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
)
_URI = re.compile(r"<(?:[\w.-]+:)?CipherReference\b[^>]*?\bURI\s*=\s*[\"']([^\"']*)")
_ALGORITHM = re.compile(r"<(?:[\w.-]+:)?EncryptionMethod\b[^>]*?\bAlgorithm\s*=\s*[\"']([^\"']*)")
_ENCRYPTED = re.compile(r"<(?:[\w.-]+:)?EncryptedData\b")
_LICENCES = ("META-INF/rights.xml", "META-INF/sinf.xml", "META-INF/license.lcpl")
# What a listener does not need; shops have scrambles of their own for fonts.
_UNHEARD = (
    *(".ttf", ".otf", ".woff", ".woff2", ".ttc", ".css", ".js"),
    *(".jpg", ".jpeg", ".png", ".gif", ".webp", ".svg", ".mp3", ".m4a", ".mp4"),
)
_DOCUMENTS = (".xhtml", ".html", ".htm", ".opf")
_MAX_LOOKED_AT = 5


def refuse_drm(archive: Archive) -> None:
    """Pass a book that anybody may read.

    Raises:
        BookRejectedError: book_drm.
    """
    is_licensed = any(archive.find(name) for name in _LICENCES)
    if _has_locked_files(archive) or (is_licensed and not _is_open(archive)):
        raise BookRejectedError(
            "book_drm",
            "This book is protected by DRM and cannot be read. Send a file without DRM, for "
            "example from the publisher or from a shop without DRM.",
        )


def _has_locked_files(archive: Archive) -> bool:
    name = archive.find("META-INF/encryption.xml")
    if name is None:
        return False
    try:
        text, _ = decode(archive.read(name, max_bytes=256 * 1024))
    except EntryError:
        return True  # something is encrypted, and nobody can say what
    starts = [found.start() for found in _ENCRYPTED.finditer(text)]
    return any(_is_lock(text[a:b]) for a, b in itertools.pairwise([*starts, len(text)]))


def _is_lock(entry: str) -> bool:
    """Say whether an entry of the list of encrypted files keeps a listener from the text."""
    algorithms = [found.strip() for found in _ALGORITHM.findall(entry)]
    if algorithms and _FONT_OBFUSCATION.issuperset(algorithms):
        return False
    uris = _URI.findall(entry)
    return not uris or not all(uri.partition("?")[0].lower().endswith(_UNHEARD) for uri in uris)


def _is_open(archive: Archive) -> bool:
    """Say whether documents are markup to be seen: some shops add licences to open books."""
    names = [name for name in archive.names if name.lower().endswith(_DOCUMENTS)]
    try:
        texts = [decode(archive.read(name))[0] for name in names[:_MAX_LOOKED_AT]]
    except EntryError:
        return False
    return bool(texts) and all(text.lstrip("\ufeff \t\r\n").startswith("<") for text in texts)


_SIGNATURES = {
    "webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    "jpeg": re.compile(rb"\xff\xd8\xff"),
    "png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "gif": re.compile(rb"GIF8"),
}


def read_cover(archive: Archive, package: Package, landmarks: dict[str, str]) -> Cover | None:
    """Return the cover that the package names, or the picture on its cover page; else None."""
    for path in _candidates(archive, package, landmarks):
        try:
            content = archive.read(path)
        except EntryError as error:
            package.warnings.append(f"The cover {path!r} cannot be read: {error}.")
            continue
        kind = next((name for name, start in _SIGNATURES.items() if start.match(content)), "")
        size = image_size(content)
        if kind and size is not None and size.width * size.height > MAX_COVER_PIXELS:
            # Players could not show it, by the size in its first bytes.
            package.warnings.append(
                f"The cover {path!r} has {size.width} x {size.height} pixels, more than "
                f"{MAX_COVER_PIXELS}, so it is not used."
            )
        elif kind:
            return Cover(f"image/{kind}", content)
        elif b"<svg" not in content[:4096] and content.lstrip()[:5].lower() != b"<?xml":
            package.warnings.append(f"The cover {path!r} is not in a known picture format.")
    return None


def _candidates(archive: Archive, package: Package, landmarks: dict[str, str]) -> list[str]:
    paths = [item.path for item in package.items.values() if "cover-image" in item.properties]
    for meta in package.root.iter("{*}meta"):
        if meta.get("name") == "cover" and (item := package.items.get(meta.get("content") or "")):
            paths.append(item.path)
    package.warnings += [
        f"The cover {path!r} is not in the book."
        for path in dict.fromkeys(paths)
        if archive.find(path) is None
    ]
    pages = [place.partition("#")[0] for place, role in landmarks.items() if role == "cover"]
    for path in dict.fromkeys([*paths, *pages]):
        if not path.lower().endswith((".xhtml", ".html", ".htm")):
            continue
        paths += _pictures(archive, path)
    return [path for path in dict.fromkeys(paths) if archive.find(path)]


def _pictures(archive: Archive, path: str) -> Iterator[str]:
    """Yield the pictures of a page, those in a drawing too."""
    try:
        root = parse_document(archive.read(path)).root
    except EntryError:
        return
    for element in markup.named(root, "img", "image"):
        link = element.get("src") or element.get("{http://www.w3.org/1999/xlink}href")
        target = markup.resolve(path, link or element.get("xlink:href") or "")
        if target is not None and target[0] != path:
            yield target[0]


MAX_DOCUMENTS = 5_000
_MAX_WARNINGS = 200


def read_epub(raw: bytes) -> Book:
    """Return the book that an EPUB 2 or 3 holds.

    Raises:
        BookRejectedError: book_not_epub, book_drm, book_encrypted, book_archive_unsafe,
            book_archive_too_large, book_package_broken or book_without_text.
    """
    with closing(Archive(raw)) as archive:
        refuse_drm(archive)
        package = read_package(archive)
        metadata = read_metadata(package.root)
        canonical = canonical_paths(package.spine)
        found, landmarks = read_contents(archive, package, canonical)
        documents = _documents(archive, package, metadata.language, landmarks)
        cover = read_cover(archive, package, landmarks)
        toc, documents, toc_warnings = mend_contents(found, documents, canonical)
        documents, note_warnings = mark_notes(documents)
        warnings = [*archive.warnings, *package.warnings, *toc_warnings, *note_warnings]
    if len(warnings) > _MAX_WARNINGS:
        left = len(warnings) - _MAX_WARNINGS
        warnings = [*warnings[:_MAX_WARNINGS], f"{left} more warnings are not shown."]
    if not any(document.source_chars for document in documents):
        raise BookRejectedError(
            "book_without_text",
            "This EPUB has no text: its pages are empty, are pictures, or cannot be read. "
            + " ".join(warnings[:3]),
        )
    losses = tuple(package.losses)
    return Book(metadata, documents, toc, cover, landmarks, tuple(warnings), losses)


def _documents(
    archive: Archive, package: Package, language: str, landmarks: dict[str, str]
) -> tuple[Document, ...]:
    """Read the documents in the order of the spine; one that cannot be read is told."""
    if len(package.spine) > MAX_DOCUMENTS:
        raise BookRejectedError(
            "book_archive_too_large",
            f"This EPUB has {len(package.spine)} documents; at most {MAX_DOCUMENTS} are allowed.",
        )
    documents: list[Document] = []
    for path, is_linear in package.spine.items():
        try:
            parsed = parse_document(archive.read(path))
        except EntryError as error:
            package.warnings.append(f"{path!r} in the reading order is missing: {error}.")
            package.losses.append(Loss(path, f"It is in the reading order, but {error}."))
            continue
        if parsed.warning:
            package.warnings.append(f"{path!r}: {parsed.warning}.")
        document = document_of(parsed.root, path, language=language)
        pictures = markup.named(parsed.root, "img", "image", "svg")
        if not document.source_chars and any(True for _ in pictures):
            package.warnings.append(f"{path!r} has pictures but no text; nothing of it is spoken.")
        if is_contents(parsed.root, document):
            document = replace(document, role="toc")
        documents.append(replace(document, is_linear=is_linear))
    documents, notes = apply_landmarks(documents, landmarks)
    package.warnings += notes
    if documents and not any(d.is_linear and d.source_chars for d in documents):
        documents = [replace(document, is_linear=True) for document in documents]
        package.warnings.append(
            "The book marks all its pages as outside the reading order; all of them are read."
        )
    return tuple(documents)
