"""Decide what a document of an EPUB is for, where the book says it wrongly or not at all."""

from __future__ import annotations

from dataclasses import replace

from synth.books.book import Document, count_chars
from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.rules import SkipReason, section_reason

# A page of this kind is not longer: a book of one file says that its start is the title page.
_MAX_CHARS = {
    SkipReason.TITLE_PAGE: 3_000,
    SkipReason.LICENCE: 30_000,
    SkipReason.CONTENTS: 60_000,
}
_MAX_SHARE = 0.5  # of the book's text
_MIN_LINKS = 5
_MIN_LINKED_SHARE = 0.8  # of a page's characters: what is all links is a contents list


def with_landmarks(
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


def all_linear(documents: list[Document]) -> tuple[list[Document], list[str]]:
    """Return the documents; if none of them belongs to the order of reading, all do."""
    if any(document.is_linear and document.source_chars for document in documents):
        return documents, []
    told = ["The book marks all its pages as outside the reading order; all of them are read."]
    return [replace(document, is_linear=True) for document in documents], told if documents else []


def is_contents(root: Element, document: Document) -> bool:
    """Say whether a page that no role names is nothing but links to places in the book."""
    if document.role not in {"", *markup.MATTER}:
        return False
    links = [
        link
        for link in root.iter()
        if markup.name_of(link) == "a" and markup.resolve(document.path, link.get("href") or "")
    ]
    if not _MIN_LINKS <= len(links) <= document.source_chars:
        return False
    linked = sum(count_chars(markup.text_of(link)) for link in links)
    return linked >= _MIN_LINKED_SHARE * document.source_chars
