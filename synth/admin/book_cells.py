"""Write what the admin's pages show of a book: cover, badge, bar, words, voices, file."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any

from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.safestring import SafeString

from synth.admin.job_cells import BADGES
from synth.api.books.serializers import BookSerializer, Progress, with_progress
from synth.api.jobs.serializers import progress_of
from synth.bookshelf.metadata import authors_of, title_of
from synth.jobs.eta import WITHOUT_ETA, hours
from synth.models import BookSource
from ttsweb.counted import counted
from voices.models import Voice

COLOURS = BADGES | {"paused": "encoding"}
WORKING = ("importing", "queued", "running")  # what changes without anybody doing something


def status_of(book: BookSource) -> str:
    """Return the state of a book as the API tells it."""
    return BookSerializer().get_status(book)


def progressed(book: Any) -> Any:
    """Return a book that knows how far it is."""
    return book if hasattr(book, "progress") else with_progress([book])[0]


def words_of(book: BookSource) -> list[str]:
    """Return how far a book is."""
    status = status_of(book)
    expected = float(book.figures.get("expected_seconds", 0.0))
    if status == "importing":
        return ["waiting to be read" if book.claim_token is None else "being read"]
    if book.job is None:
        if not book.figures:
            return []
        included, total = book.figures.get("included", 0), book.figures.get("chapters", 0)
        return [f"{included} of {counted(total, 'chapter')}", f"about {hours(expected)}"]
    told: Progress = progressed(book).progress
    words = [f"{told.chapters_done} of {counted(told.chapters_total, 'chapter')}"]
    if status in ("succeeded", "partial"):
        return [*words, hours(book.job.audio_seconds or told.audio_seconds)]
    words.append(f"{hours(told.audio_seconds)} of about {hours(expected)}")
    if told.eta_seconds is not None:
        words.append(f"about {hours(told.eta_seconds)} left")
    elif status == "running":
        words.append(WITHOUT_ETA)
    return words


def row_cell(template: str, book: BookSource) -> SafeString:
    """Return a cell of the list that the page's script keeps up to date."""
    return SafeString(render_to_string(f"synth/{template}.html", cell_context(book)))


def cell_context(book: BookSource) -> dict[str, Any]:
    """Return what the templates of the cells and of the page's head need."""
    status = status_of(book)
    share = progress_of(book.job) if book.job is not None else 0.0
    told = BookSerializer()
    return {
        "book": book,
        "title": title_of(book),
        "authors": authors_of(book),
        "status": status,
        "is_open": status in WORKING,
        "colour": COLOURS.get(status, "pending"),
        "words": " · ".join(words_of(book)),
        "progress": f"{share:.3f}",
        "percent": round(100 * share),
        "audio_url": told.get_audio_url(book),
        "error_code": told.get_error_code(book),
        "error_message": told.get_error_message(book),
        "cover_url": reverse("book-cover", args=[book.pk]) if book.cover_key else "",
    }


def voices_of(book: Any) -> str:
    """Return who speaks: the voices of its job, else those that were asked for."""
    if book.job is not None:
        pinned = [row.version.voice for row in book.job.voices.all()]
        return ", ".join(voice.name if voice else "deleted voice" for voice in pinned)
    names: dict[str, str] = getattr(book, "voice_names", None) or voice_names([book])
    return ", ".join(names.get(text, text) for text in _asked(book)) or "no voice yet"


def voice_names(books: Sequence[BookSource]) -> dict[str, str]:
    """Return the names of voices that books ask for by their ids, in one query for all."""
    ids = {text: found for book in books for text in _asked(book) if (found := _uuid(text))}
    names = dict(Voice.objects.filter(pk__in=ids.values()).values_list("pk", "name"))
    return {text: names[pk] for text, pk in ids.items() if pk in names}


def _asked(book: BookSource) -> list[str]:
    voices: Iterable[Any] = book.options.get("voices", {}).values()
    return [str(one) for one in (book.options.get("voice"), *voices) if one]


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
