"""Write a book's facts as the tags of iTunes, which players and Audiobookshelf read."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from workers.book_files.book_audio import BookFacts, tag_text
from workers.book_files.cover import CoverImage
from workers.mp4.boxes import Pieces, box, full_box

_UTF8, _JPEG, _PNG, _INTEGER = 1, 13, 14, 21
_AUDIOBOOK = 2
_MAX_NERO_CHAPTERS = 255  # the list has one byte for their number; the text track has them all
_MAX_NERO_TITLE = 255


def tag_texts(facts: BookFacts) -> dict[bytes, str]:
    """Return the texts of a book by the four bytes of their box; empty ones are left out."""
    author, narrator = ", ".join(facts.authors), ", ".join(facts.narrators)
    found = {
        b"\xa9nam": facts.title,
        b"\xa9alb": facts.title,
        b"\xa9ART": author,
        b"aART": author,
        b"\xa9wrt": narrator,  # players for audiobooks look for the narrator in the composer
        b"\xa9nrt": narrator,
        b"\xa9gen": ", ".join(facts.genres) or "Audiobook",
        b"\xa9day": facts.date,
        b"desc": facts.description,
        b"ldes": facts.description,
        b"\xa9cmt": facts.description,
        b"tvsh": facts.series,
        b"tven": facts.series_index if facts.series else "",
        b"\xa9grp": _series_line(facts),
        b"\xa9pub": facts.publisher,
        b"cprt": facts.rights,
    }
    return {name: tag_text(text) for name, text in found.items() if text}


def free_texts(facts: BookFacts) -> dict[str, str]:
    """Return what has no box of its own, by the names that Audiobookshelf looks for."""
    found = {
        "SUBTITLE": facts.subtitle,
        "SERIES": facts.series,
        "SERIES-PART": facts.series_index if facts.series else "",
        "PUBLISHER": facts.publisher,
        "LANGUAGE": facts.language,
        "ISBN": facts.isbn,
        "ASIN": facts.asin,
    }
    return {name: tag_text(text) for name, text in found.items() if text}


def user_data(
    facts: BookFacts, cover: CoverImage | None, marks: Sequence[tuple[float, str]]
) -> Pieces:
    """Return the `udta` box: tags, cover, and chapters as (seconds, title) for old players."""
    items = [box(name, _data(_UTF8, text.encode())) for name, text in tag_texts(facts).items()]
    items += [_free(name, text) for name, text in free_texts(facts).items()]
    items.append(box(b"stik", _data(_INTEGER, bytes([_AUDIOBOOK]))))
    items.append(box(b"pgap", _data(_INTEGER, b"\1")))
    if cover is not None:
        kind = _PNG if cover.media_type == "image/png" else _JPEG
        items.append(box(b"covr", _data(kind, cover.content)))
    handler = full_box(b"hdlr", bytes(4), b"mdirappl", bytes(9))
    meta = full_box(b"meta", handler, box(b"ilst", *items))
    return box(b"udta", meta, _nero_chapters(marks))


def _series_line(facts: BookFacts) -> str:
    if facts.series and facts.series_index:
        return f"{facts.series} #{facts.series_index}"
    return facts.series


def _data(kind: int, content: bytes) -> Pieces:
    return box(b"data", struct.pack(">II", kind, 0), content)


def _free(name: str, text: str) -> Pieces:
    mean = full_box(b"mean", b"com.apple.iTunes")
    return box(b"----", mean, full_box(b"name", name.encode()), _data(_UTF8, text.encode()))


def _nero_chapters(marks: Sequence[tuple[float, str]]) -> Pieces:
    listed = marks[:_MAX_NERO_CHAPTERS]
    rows = []
    for seconds, title in listed:
        name = tag_text(title).encode()[:_MAX_NERO_TITLE].decode(errors="ignore").encode()
        rows.append(struct.pack(">QB", round(seconds * 10_000_000), len(name)) + name)
    head = struct.pack(">4xB", len(listed))
    return full_box(b"chpl", head, *rows, version=1)
