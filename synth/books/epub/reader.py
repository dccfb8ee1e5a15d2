"""Read an EPUB into a book: what can be read is read, and what cannot is told."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from synth.books.book import Book, BookRejectedError, Document, Loss
from synth.books.documents import markup
from synth.books.documents.notes import mark_notes
from synth.books.documents.parsing import parse_document
from synth.books.documents.xhtml import document_of
from synth.books.epub.archive import Archive, EntryError
from synth.books.epub.contents import read_contents
from synth.books.epub.covers import read_cover
from synth.books.epub.drm import refuse_drm
from synth.books.epub.links import canonical_paths, linked, mend_contents
from synth.books.epub.metadata import read_metadata
from synth.books.epub.package import Package, read_package
from synth.books.epub.roles import all_linear, is_contents, with_landmarks

MAX_DOCUMENTS = 5_000
_MAX_WARNINGS = 200


def read_epub(source: Path | bytes | BinaryIO) -> Book:
    """Read an EPUB 2 or 3 from a file, its bytes, or an open file that can be searched.

    Raises:
        BookRejectedError: book_not_epub, book_drm, book_encrypted, book_archive_unsafe,
            book_archive_too_large, book_package_broken or book_without_text.
        OSError: the file cannot be read.
    """
    if isinstance(source, Path):
        with source.open("rb") as opened:
            return read_epub(opened)
    if isinstance(source, bytes):
        return read_epub(io.BytesIO(source))
    with Archive(source) as archive:
        refuse_drm(archive)
        package = read_package(archive)
        metadata = read_metadata(package.root)
        canonical = canonical_paths([place.item.path for place in package.spine])
        found, landmarks = read_contents(archive, package, canonical)
        documents = _documents(archive, package, metadata.language, landmarks)
        cover = read_cover(archive, package, landmarks)
        toc, documents, toc_warnings = mend_contents(found, linked(documents, canonical), canonical)
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
    for place in package.spine:
        path = place.item.path
        try:
            parsed = parse_document(archive.read(path))
        except EntryError as error:
            package.warnings.append(f"{path!r} in the reading order is missing: {error}.")
            package.losses.append(Loss(path, f"It is in the reading order, but {error}."))
            continue
        if parsed.warning:
            package.warnings.append(f"{path!r}: {parsed.warning}.")
        document = document_of(parsed.root, path, language=language)
        if not document.source_chars and _has_pictures(parsed.root):
            package.warnings.append(f"{path!r} has pictures but no text; nothing of it is spoken.")
        if is_contents(parsed.root, document):
            document = replace(document, role="toc")
        documents.append(replace(document, is_linear=place.is_linear))
    documents, told = with_landmarks(documents, landmarks)
    documents, told_too = all_linear(documents)
    package.warnings += [*told, *told_too]
    return tuple(documents)


def _has_pictures(root: markup.Element) -> bool:
    return any(markup.name_of(element) in {"img", "image", "svg"} for element in root.iter())
