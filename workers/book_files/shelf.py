"""Lay a book out as Audiobookshelf reads it: Author/Series/Title with `metadata.json` and cover."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from synth.bookshelf.files.names import safe_name
from workers.book_files.book_audio import BookFacts
from workers.book_files.cover import CoverImage
from workers.book_files.publishing import published_folder
from workers.mp4.file import Mark

_YEAR = re.compile(r"\d{4}")


def shelf_folder(facts: BookFacts) -> PurePosixPath:
    """Return a book's folder below a library: `Author/Series/2 - 1895 - Title {Narrator}`."""
    author = safe_name(", ".join(facts.authors), "Unknown author")
    title = safe_name(facts.title, "Untitled")
    year = _year(facts)
    name = f"{year} - {title}" if year else title
    if facts.narrators:
        name = f"{name} {{{safe_name(', '.join(facts.narrators), 'Narrator')}}}"
    if not facts.series:
        return PurePosixPath(author, name)
    if facts.series_index:
        name = f"{safe_name(facts.series_index, '0')} - {name}"
    return PurePosixPath(author, safe_name(facts.series, "Series"), name)


def metadata_json(facts: BookFacts, marks: Sequence[Mark], sample_rate: int) -> dict[str, Any]:
    """Return the sidecar: facts that no tag can hold, and chapters in seconds."""
    series = f"{facts.series} #{facts.series_index}" if facts.series_index else facts.series
    return {
        "tags": [],
        "chapters": [
            {
                "id": index,
                "start": round(mark.start / sample_rate, 6),
                "end": round(mark.end / sample_rate, 6),
                "title": mark.title,
            }
            for index, mark in enumerate(marks)
        ],
        "title": facts.title,
        "subtitle": facts.subtitle or None,
        "authors": list(facts.authors),
        "narrators": list(facts.narrators),
        "series": [series] if facts.series else [],
        "genres": list(facts.genres),
        "publishedYear": _year(facts),
        "publishedDate": facts.date or None,
        "publisher": facts.publisher or None,
        "description": facts.description or None,
        "isbn": facts.isbn or None,
        "asin": facts.asin or None,
        "language": facts.language or None,
        "explicit": False,
        "abridged": False,
    }


def put_on_shelf(
    library: Path,
    facts: BookFacts,
    files: Sequence[Path],
    cover: CoverImage,
    marks: Sequence[Mark],
    sample_rate: int,
) -> Path:
    """Copy a book's files with cover and sidecar below `library`, and return its folder.

    Raises:
        OSError: the disk is full; none of the files appears.
    """
    folder = library / shelf_folder(facts)
    with published_folder(folder) as temporary:
        for file in files:
            shutil.copyfile(file, temporary / file.name)
        (temporary / f"cover{cover.suffix}").write_bytes(cover.content)
        sidecar = json.dumps(metadata_json(facts, marks, sample_rate), ensure_ascii=False, indent=2)
        (temporary / "metadata.json").write_text(sidecar, encoding="utf-8", errors="replace")
    return folder


def _year(facts: BookFacts) -> str | None:
    found = _YEAR.search(facts.date)
    return found.group() if found else None
