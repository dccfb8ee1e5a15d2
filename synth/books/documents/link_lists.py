"""Find contents lists in the middle of a document: lines that are nothing but links."""

from __future__ import annotations

from dataclasses import dataclass

from synth.books.book import count_chars
from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.rules import SkipReason, title_reason

LINK_LIST = "link-list"
_LINES = frozenset({"p", "div", "li", "tr", "dt", "dd", "h1", "h2", "h3", "h4", "h5", "h6"})
_MIN_LINKS = 5  # that stand together; fewer are choices or cross-references
_MIN_TITLED = 2  # below a title such as "Contents"
_MIN_SHARE = 0.8  # of a line's characters, where no title says what it is
_MAX_TITLE = 40
_MAX_ENTRY = 200


@dataclass(slots=True)
class _Line:
    """Hold a line of text: its characters, those of them in links, and how many links."""

    element: Element
    chars: int
    linked: int
    links: int

    @property
    def is_linked(self) -> bool:
        """Say whether it is nothing but links; a heading may lead back to its entry."""
        return self.linked >= _MIN_SHARE * self.chars and self.links > 0 and not self.is_heading

    @property
    def is_heading(self) -> bool:
        """Say whether it is a heading by its name."""
        return markup.heading_level(self.element, markup.name_of(self.element)) > 0

    @property
    def is_title(self) -> bool:
        """Say whether it is the title of a contents list."""
        text = markup.squeeze(markup.text_of(self.element)) if self.chars <= _MAX_TITLE else ""
        return title_reason(text) is SkipReason.CONTENTS


def mark_link_lists(body: Element, path: str) -> None:
    """Give lines of links to places in the book, and their title, the role `link-list`, in place.

    Args:
        path: where the document is in its book.
    """
    lines = _lines(body, path)
    at = 0
    while at < len(lines):
        titled = _titled_end(lines, at)
        end = titled if titled > at else _end_of_links(lines, at)
        if titled > at or sum(line.links for line in lines[at:end]) >= _MIN_LINKS:
            for line in lines[at:end]:
                _mark(line.element)
        at = max(end, at + 1)


def _mark(element: Element) -> None:
    """Mark a line, and the items of lists that it is in: of a part with its chapters."""
    items = [one for one in element.iterancestors() if markup.name_of(one) == "li"]
    for one in (element, *items):
        one.set("role", LINK_LIST)


def _lines(body: Element, path: str) -> list[_Line]:
    """Return the innermost lines that hold text, in order; none where there are too few links."""
    links = [link for link in body.iter() if markup.name_of(link) == "a" and _leads(link, path)]
    if len(links) < _MIN_TITLED:
        return []
    found: dict[Element, _Line] = {}
    outer = {one for line in body.iter() if markup.name_of(line) in _LINES for one in _above(line)}
    for element in body.iter():
        if markup.name_of(element) in _LINES and element not in outer:
            chars = count_chars(markup.text_of(element))
            if chars:
                found[element] = _Line(element, chars, 0, 0)
    for link in links:
        line = next((found[one] for one in link.iterancestors() if one in found), None)
        if line is not None:
            line.links += 1
            line.linked += count_chars(markup.text_of(link))
    return list(found.values())


def _above(element: Element) -> list[Element]:
    """Return the nearest line that an element is in; the others above are above that one."""
    near = (one for one in element.iterancestors() if markup.name_of(one) in _LINES)
    return [one for one in [next(near, None)] if one is not None]


def _leads(link: Element, path: str) -> bool:
    target = markup.resolve(path, link.get("href") or "")
    return target is not None and target != (path, "")


def _end_of_links(lines: list[_Line], start: int) -> int:
    end = start
    while end < len(lines) and lines[end].is_linked:
        end += 1
    return end


def _titled_end(lines: list[_Line], start: int) -> int:
    """Return where the list below a title ends, or `start` if there is no title or no list."""
    if not lines[start].is_title:
        return start
    end, num_links = start + 1, 0
    while end < len(lines):
        line = lines[end]
        following = lines[end + 1].links if end + 1 < len(lines) else 0
        is_entry = line.links > 0 and line.chars <= _MAX_ENTRY
        # "Chapter, page" above the entries, or the name of a part between them.
        is_label = line.chars <= _MAX_TITLE and following > 0 and not line.is_title
        if line.is_heading or not (is_entry or is_label):
            break
        num_links += line.links
        end += 1
    return end if num_links >= _MIN_TITLED else start
