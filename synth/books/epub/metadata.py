"""Read what an EPUB says of itself."""

from __future__ import annotations

import re

from synth.books.book import Metadata
from synth.books.documents import markup
from synth.books.documents.markup import Element

_TAG = re.compile(r"<[^<>]{0,2000}>")
_OPF = "{http://www.idpf.org/2007/opf}"
_MAX_CHARS = 10_000


def read_metadata(root: Element) -> Metadata:
    """Return the metadata of a package's root; what is not there is empty."""
    found = _Statements(root)
    title, subtitle = _titles(found)
    series, series_index = _series(found)
    return Metadata(
        title=title,
        subtitle=subtitle,
        authors=_authors(found),
        language=next(iter(found.texts("language")), "").replace("_", "-"),
        publisher=next(iter(found.texts("publisher")), ""),
        date=_date(found),
        description=markup.squeeze(_TAG.sub(" ", next(iter(found.texts("description")), ""))),
        identifier=_identifier(root, found),
        series=series,
        series_index=series_index,
        rights=next(iter(found.texts("rights")), ""),
        subjects=tuple(dict.fromkeys(found.texts("subject"))),
    )


class _Statements:
    """Index the elements of the metadata by name, and what refines them by id."""

    def __init__(self, root: Element) -> None:
        self.elements: dict[str, list[Element]] = {}
        self.refined: dict[tuple[str, str], list[str]] = {}
        self.metas: list[Element] = []
        metadata = next((e for e in root.iter() if markup.name_of(e) == "metadata"), None)
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

    def named(self, name: str) -> str:
        """Return the content of EPUB 2's `<meta name content>`."""
        metas = (meta for meta in self.metas if meta.get("name") == name)
        return next((meta.get("content") or "" for meta in metas), "").strip()


def _text(element: Element) -> str:
    return markup.squeeze(markup.text_of(element))[:_MAX_CHARS]


def _titles(found: _Statements) -> tuple[str, str]:
    titles = [
        (found.refinements(e, "title-type"), _text(e)) for e in found.elements.get("title", [])
    ]
    titles = [(types, text) for types, text in titles if text]
    main = [text for types, text in titles if "main" in types]
    plain = [text for types, text in titles if not types or "main" in types]
    subtitles = [text for types, text in titles if "subtitle" in types]
    title = next(iter([*main, *plain, *(text for _, text in titles)]), "")
    return title, next((text for text in subtitles if text != title), "")


def _authors(found: _Statements) -> tuple[str, ...]:
    """Return who wrote the book: creators with that role, else those without any, else all."""
    creators = [(found.refinements(e, "role"), _text(e)) for e in found.elements.get("creator", [])]
    authors = [text for roles, text in creators if "aut" in roles]
    authors += [text for roles, text in creators if not roles]
    chosen = authors or [text for _, text in creators]
    return tuple(dict.fromkeys(text for text in chosen if text))


def _date(found: _Statements) -> str:
    dates = [(found.refinements(e, "event"), _text(e)) for e in found.elements.get("date", [])]
    published = [text for events, text in dates if "publication" in events and text]
    plain = [text for events, text in dates if not events and text]
    return next(iter([*published, *plain, *(text for _, text in dates)]), "")


def _identifier(root: Element, found: _Statements) -> str:
    identifiers = found.elements.get("identifier", [])
    unique = root.get("unique-identifier")
    chosen = [e for e in identifiers if unique and e.get("id") == unique] or identifiers
    return _text(chosen[0]) if chosen else ""


def _series(found: _Statements) -> tuple[str, str]:
    """Return (name, number) of the series: EPUB 3's collection, or what Calibre writes."""
    for meta in found.metas:
        if meta.get("property") == "belongs-to-collection" and not meta.get("refines"):
            kinds = found.refinements(meta, "collection-type")
            if not kinds or "series" in kinds:
                positions = found.refinements(meta, "group-position")
                return _text(meta), next(iter(positions), "")
    return found.named("calibre:series"), found.named("calibre:series_index")
