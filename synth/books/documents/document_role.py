"""Say what a whole document of a book is for: by roles, classes and ids of its outer elements."""

from __future__ import annotations

from collections.abc import Iterator

from synth.books.book import count_chars
from synth.books.documents import markup
from synth.books.documents.markup import Element

_MAX_DEPTH = 3
# What makers of books call such pages where they give them no role; and the most characters that
# such a page has, for a class is less sure than a role.
_NAMED = {
    "titlepage": ("titlepage", 1_000),
    "halftitlepage": ("halftitlepage", 1_000),
    "halftitle": ("halftitlepage", 1_000),
    "copyright": ("copyright-page", 10_000),
    "copyrightpage": ("copyright-page", 10_000),
    "dedication": ("dedication", 2_000),
    "epigraph": ("epigraph", 2_000),
}


def document_role(root: Element, body: Element) -> str:
    """Return the role of the body, or the closer one of the only element in it, or by a name."""
    role = markup.role_of(body) or markup.role_of(root)
    outer = list(_outer(body))
    for inner in outer:
        found = markup.role_of(inner)
        if found and found not in markup.MATTER and markup.name_of(inner) != "nav":
            return found
    return role if role and role not in markup.MATTER else _named_role(body, outer) or role


def _outer(body: Element) -> Iterator[Element]:
    """Yield the elements that hold all of the body's text, outer first."""
    inner = body
    for _ in range(_MAX_DEPTH):
        children = [child for child in inner if markup.name_of(child)]
        if len(children) != 1 or (inner.text or "").strip():
            return
        inner = children[0]
        yield inner


def _named_role(body: Element, outer: list[Element]) -> str:
    for element in (body, *outer):
        for word in ((element.get("id") or "").lower(), *sorted(markup.classes_of(element))):
            name = word.removeprefix("element-type-").replace("-", "").replace("_", "")
            role, most = _NAMED.get(name, ("", 0))
            if role and count_chars(markup.text_of(body)) <= most:
                return role
    return ""
