"""Ask for files of a book beside its job's, name them, and let them go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.files.storage import default_storage
from django.db import transaction

from synth.accounts.limits import check_room
from synth.api.books.file_options import Kind, audio_format, digest_of, full_options
from synth.bookshelf.files.content import BookContent, content_of
from synth.bookshelf.files.keys import Asking, made_before, note_key
from synth.bookshelf.files.names import numbered_name, safe_name
from synth.bookshelf.metadata import title_of
from synth.formats import BOOK_FORMATS
from synth.jobs.rejections import SubmitRejectedError
from synth.jobs.removal import drop_book_files, lock_jobs
from synth.models import ApiKey, BookFile, BookSource, RenderJob
from synth.transitions import UNFINISHED
from synth.transitions.book_files import MOST_FILES, TooManyFilesError, ask_for_file
from ttsweb.counted import counted

POLL_SECONDS = 2
_NO_KEY = Asking()
ZIP = "application/zip"
_ENDINGS: dict[str, tuple[str, str]] = {
    Kind.READ_ALONG: (" - read along.epub", "application/epub+zip"),
    Kind.SAMPLE: (" - sample.mp3", BOOK_FORMATS["mp3"].content_type),
    Kind.REPORT: (" - report.json", "application/json"),
    Kind.SRT: (".srt", "application/x-subrip"),
    Kind.VTT: (".vtt", "text/vtt"),
    Kind.SHELF: (" - shelf.zip", ZIP),
}


class FileName(NamedTuple):
    """Say what an answer calls a file."""

    name: str
    content_type: str


def request_file(
    book: BookSource,
    kind: str,
    asked: dict[str, Any],
    *,
    partial: bool = False,
    api_key: ApiKey | None = None,
    asking: Asking = _NO_KEY,
) -> tuple[BookFile, bool]:
    """Return a file of a started book; it is made unless it is there and of the takes of now.

    Args:
        asked: options that the kind takes; the others are as the book has them.
        partial: take the chapters that are complete, while others are not.
        api_key: the key that asks for it, whose limits hold.
        asking: the request's Idempotency-Key; what it has asked for is returned as it is by now.

    Returns:
        The file, and whether this key had asked for it before.

    Raises:
        SubmitRejectedError: book_not_started, book_not_found, book_not_finished,
            book_without_audio, chapter_unknown, too_many_book_files, idempotency_key_reused, and
            those of `full_options`.
        KeyLimitError: the user of the API key has no room left for one more file.
    """
    job = book.job
    if job is None:
        raise SubmitRejectedError(
            409, "book_not_started", "The book was not started yet; start it first."
        )
    if (known := made_before(job.pk, asking)) is not None:
        return known, True
    options = full_options(kind, asked, book)
    content = content_of(book, job)
    check_content(content, job, options.get("chapter"), partial=partial)
    digest = digest_of(options)
    if not BookFile.objects.filter(job=job, kind=kind, options_digest=digest).exists():
        with transaction.atomic():
            check_room(api_key)
    try:
        with transaction.atomic():
            lock_jobs(RenderJob.objects.filter(pk=job.pk))  # of two with one key the other waits
            if (known := made_before(job.pk, asking)) is not None:
                return known, True
            row = ask_for_file(
                job.pk,
                kind,
                options,
                options_digest=digest,
                content_digest=content.digest(options.get("chapter")),
                is_partial=partial,
                gone=_gone(job, kind, digest),
            )
            if row is not None:
                note_key(row, asking)
    except TooManyFilesError as error:
        raise SubmitRejectedError(
            409,
            "too_many_book_files",
            f"The book has {MOST_FILES} files already; delete those that you do not need.",
        ) from error
    if row is None:
        raise SubmitRejectedError(404, "book_not_found", "No book that you may see has this id.")
    return row, False


def check_content(
    content: BookContent, job: RenderJob, chapter: int | None, *, partial: bool
) -> None:
    """Refuse a file of which not enough is there.

    Raises:
        SubmitRejectedError: chapter_unknown, book_not_finished, book_without_audio.
    """
    if chapter is not None and not content.of(chapter):
        raise SubmitRejectedError(
            400,
            "chapter_unknown",
            f"The book has {counted(len(content.chapters), 'chapter')}, counted from 0; "
            f"chapter {chapter} does not exist.",
            attr="chapter",
        )
    is_there = bool(content.there(chapter))
    if is_there and (partial or content.is_whole(chapter)):
        return
    if content.is_whole(chapter):
        raise SubmitRejectedError(
            404,
            "book_without_audio",
            "None of these chapters could be spoken; the book's proof gives the reasons.",
        )
    if job.status not in UNFINISHED:
        raise SubmitRejectedError(
            409,
            "book_not_finished",
            f"The book is {job.status} and some of its text was not spoken. Retry the book, "
            "or send `partial` to use the chapters that are complete.",
        )
    hint = " Send `partial` to use the chapters that are complete." if is_there else ""
    raise SubmitRejectedError(
        409,
        "book_not_finished",
        f"Some of the text is not rendered yet.{hint}",
        retry_after=POLL_SECONDS,
    )


def _gone(job: RenderJob, kind: str, digest: str) -> Any:
    """Return the id of a file whose object the storage has lost; None of any other."""
    row = BookFile.objects.filter(job=job.pk, kind=kind, options_digest=digest).first()
    if row is None or row.status != BookFile.Status.DONE or default_storage.exists(row.key):
        return None
    return row.pk


def delete_file(row: BookFile) -> None:
    """Delete a file in whatever state; a worker that makes it throws away what comes of it."""
    with transaction.atomic():
        drop_book_files(BookFile.objects.filter(pk=row.pk))


def with_currency(files: Sequence[BookFile], book: BookSource) -> list[BookFile]:
    """Set `is_current` on files of a book: whether each is of the takes and metadata of now."""
    content: BookContent | None = None
    for row in files:
        row.is_current = True  # type: ignore[attr-defined]  # as an annotation would be
        if row.status == BookFile.Status.DONE and book.job is not None:
            content = content or content_of(book, book.job)
            now = content.digest(row.options.get("chapter"))
            row.is_current = row.content_digest == now  # type: ignore[attr-defined]
    return list(files)


def name_of(row: BookFile, book: BookSource) -> FileName:
    """Return the name and the media type of a file."""
    title = safe_name(title_of(book), f"book-{str(book.pk)[:8]}")
    if row.kind in _ENDINGS:
        ending, content_type = _ENDINGS[row.kind]
        return FileName(f"{_with_chapter(title, row, book)}{ending}", content_type)
    form = audio_format(row.kind, row.options.get("format"))
    if row.kind == Kind.CHAPTERS and row.options.get("chapter") is None:
        return FileName(f"{title} - chapters.{form}.zip", ZIP)
    named = BOOK_FORMATS[form]
    return FileName(f"{_with_chapter(title, row, book)}.{named.extension}", named.content_type)


def _with_chapter(title: str, row: BookFile, book: BookSource) -> str:
    """Return the book's name, with the chapter's where the file is one chapter's."""
    chapter = row.options.get("chapter")
    told = book.started.get("chapters", [])
    if chapter is None or row.kind == Kind.SAMPLE or chapter >= len(told):
        return title
    return f"{title} - {numbered_name(chapter, len(told), told[chapter]['title'])}"
