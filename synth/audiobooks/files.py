"""Say which files of a book there may be, with which options; ask for them, name, drop them."""

from __future__ import annotations

import hashlib
import itertools
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.core.files.storage import default_storage
from django.db import transaction

from synth.accounts.limits import check_room
from synth.audiobooks.plans import title_of
from synth.formats import BOOK_FILES, BOOK_FORMATS, CHAPTER_FORMATS, numbered_name, safe_name
from synth.jobs.orders import check_file_options
from synth.jobs.removal import drop_book_files, lock_jobs
from synth.jobs.submit import Sender, check_digest
from synth.models import BookFile, BookSource, JobVoice, RenderJob, Segment
from synth.transitions.files import MOST_FILES, TooManyFilesError, ask_for_file
from synth.transitions.jobs import UNFINISHED
from ttsweb.refusals import POLL_SECONDS, SubmitRejectedError, counted

Kind = BookFile.Kind
PRESETS = ("standard", "acx")
SAMPLE_MINUTES = 5.0  # what shops take at most
LEAST_MINUTES = 0.1
MAX_CHAPTER = 100_000
ONE_FILE = tuple(BOOK_FILES)
OWN, MADE = "own", "made"  # the text of a read-along EPUB: that of the book's file, or a plain one

_SOUND = ("preset", "loudness", "sample_rate")
_CODED = (*_SOUND, "bit_rate")
# What each kind takes beside `partial`, in the order in which it is shown.
TAKES: dict[str, tuple[str, ...]] = {
    **{name: _CODED if one.bit_rates else _SOUND for name, one in BOOK_FILES.items()},
    Kind.CHAPTERS: ("format", *_CODED, "chapter"),
    Kind.SHELF: ("format", *_CODED),
    Kind.READ_ALONG: ("format", *_CODED),
    Kind.SAMPLE: ("preset", "loudness", "minutes", "chapter"),
    Kind.SRT: ("chapter",),
    Kind.VTT: ("chapter",),
    Kind.REPORT: ("format", *_CODED),
}
FORMATS: dict[str, tuple[str, ...]] = {
    Kind.CHAPTERS: CHAPTER_FORMATS,
    Kind.SHELF: ONE_FILE,
    Kind.READ_ALONG: (OWN, MADE),
    Kind.REPORT: ONE_FILE,
}


def full_options(kind: str, asked: dict[str, Any], book: BookSource) -> dict[str, Any]:
    """Return all options that a kind takes; what was not asked for is as the book has it.

    Bit rate and sample rate of the job hold for files of the job's own format.

    Raises:
        SubmitRejectedError: loudness_unfit, sample_rate_unfit, bit_rate_unfit.
    """
    job = book.job
    assert job is not None
    preset = asked.get("preset") or preset_of(book)
    form = asked.get("format") or _usual_format(kind, preset, book)
    loudness = asked.get("loudness", job.loudness if "preset" not in asked else None)
    if preset == "acx":
        check_loudness(preset, asked.get("loudness"))
        loudness = None
    is_own_form = audio_format(kind, form) == job.format
    usual: dict[str, Any] = {
        "format": form,
        "preset": preset,
        "loudness": None if loudness is None else float(loudness),
        "bit_rate": asked.get("bit_rate", job.bit_rate if is_own_form else None),
        "sample_rate": asked.get("sample_rate", job.sample_rate if is_own_form else None),
        "minutes": float(asked.get("minutes", SAMPLE_MINUTES)),
        "chapter": asked.get("chapter", first_chapter(book) if kind == Kind.SAMPLE else None),
    }
    found = {name: usual[name] for name in TAKES[kind]}
    check_file_options(audio_format(kind, form), found.get("sample_rate"), found.get("bit_rate"))
    return found


def digest_of(value: Any) -> str:
    """Return what tells options, or what a file is made of, apart."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def preset_of(book: BookSource) -> str:
    """Return how a book is mastered unless a file is asked for otherwise."""
    return str(book.production.get("preset") or PRESETS[0])


def audio_format(kind: str, form: str | None) -> str:
    """Return the audio format that a file of a kind is made in."""
    if kind in ONE_FILE:
        return kind
    if kind == Kind.SAMPLE:
        return "mp3"
    return form if form is not None and form in ONE_FILE else "m4b"


def first_chapter(book: BookSource) -> int:
    """Return the index of the first chapter that is the book's own, and no credits."""
    chapters = book.started.get("chapters", [])
    return next((index for index, one in enumerate(chapters) if one["source_chars"]), 0)


def _usual_format(kind: str, preset: str, book: BookSource) -> str | None:
    if kind == Kind.CHAPTERS:
        return "mp3"
    if kind == Kind.READ_ALONG:
        return OWN if book.filename.lower().endswith(".epub") else MADE
    if kind == Kind.REPORT and preset == "acx":
        return "mp3"  # what that shop takes
    return "m4b" if kind in FORMATS else None


def check_loudness(preset: str | None, loudness: float | None) -> None:
    """Refuse a loudness beside a preset that has another target.

    Raises:
        SubmitRejectedError: loudness_unfit.
    """
    if preset == "acx" and loudness is not None:
        raise SubmitRejectedError(
            "loudness_unfit",
            "The preset acx sets an RMS of -20 dBFS, so loudness cannot be chosen. Leave "
            "`loudness` out, or choose the preset standard.",
            attr="loudness",
        )


# A cancelled segment is one that a retry brings: its chapter is not complete.
_NOT_THERE = (Segment.Status.QUEUED, Segment.Status.CLAIMED, Segment.Status.CANCELLED)


@dataclass(frozen=True, slots=True)
class ChapterContent:
    """Say of a chapter whether anything of it is still to come, and what it is made of so far.

    `digest` is that of its takes and pauses in their order; it is empty where it has none.
    `is_levelled` says that others than the narrator speak in it, whose gains files apply.
    """

    index: int
    title: str
    is_open: bool
    digest: str
    is_levelled: bool = False

    @property
    def is_there(self) -> bool:
        """Return whether the chapter can go into a file: what could be spoken of it is."""
        return bool(self.digest) and not self.is_open


@dataclass(frozen=True, slots=True)
class BookContent:
    """Hold what the files of a book are made of; `base` is a digest of all but its chapters."""

    base: str
    chapters: Sequence[ChapterContent]

    def of(self, chapter: int | None) -> list[ChapterContent]:
        """Return the chapters that a file of one chapter, or of all, is about."""
        return [one for one in self.chapters if chapter in (None, one.index)]

    def there(self, chapter: int | None = None) -> list[ChapterContent]:
        """Return those of them that can go into a file now."""
        return [one for one in self.of(chapter) if one.is_there]

    def is_whole(self, chapter: int | None = None) -> bool:
        """Return whether nothing of it is still to come."""
        return not any(one.is_open for one in self.of(chapter))

    def digest(self, chapter: int | None = None) -> str:
        """Return what a file that is made now is made of."""
        chapters = self.there(chapter)
        parts: list[object] = [self.base, [(one.index, one.title, one.digest) for one in chapters]]
        if chapter is not None and any(one.is_levelled for one in chapters):
            # The gain of a voice is measured over all chapters that are there, so that a take of
            # another chapter may make this one's file sound otherwise.
            parts.append([(one.index, one.digest) for one in self.there()])
        return digest_of(parts)


def content_of(book: BookSource, job: RenderJob) -> BookContent:
    """Return what the files of a started book would be made of now, by three queries."""
    voices = JobVoice.objects.filter(job=job.pk).order_by("speaker")
    spoken_by = list(voices.values_list("speaker", "version_id", "version__voice__name", "role"))
    base = digest_of([job.speed, book.book_key, book.cover_key, book.metadata, spoken_by])
    versions = {speaker: version for speaker, version, *_ in spoken_by}
    narrating = {speaker for speaker, one in versions.items() if one == versions.get(0)}
    titles = dict(job.chapters.values_list("index", "title"))
    rows = Segment.objects.filter(job=job.pk).order_by("chapter__index", "index")
    names = ("chapter__index", "status", "take_id", "pause_after_ms", "speaker")
    values = rows.values_list(*names)
    chapters = []
    for index, some in itertools.groupby(values.iterator(chunk_size=2000), key=lambda row: row[0]):
        digest, speakers, is_open = hashlib.sha256(), set(), False
        for _, status, take, pause, speaker in some:
            is_open = is_open or status in _NOT_THERE
            if status == Segment.Status.DONE:
                digest.update(f"{take} {pause}\n".encode())
                speakers.add(speaker)
        made_of = digest.hexdigest() if speakers else ""
        is_levelled = bool(speakers - narrating)
        chapters.append(ChapterContent(index, titles.get(index, ""), is_open, made_of, is_levelled))
    return BookContent(base, chapters)


MOST_KEYS = 20  # of one file; the oldest is forgotten
_ASKED_BY = "asked_by"


def made_before(job_id: uuid.UUID, sender: Sender) -> BookFile | None:
    """Return the file of a book that this key has asked for.

    Raises:
        SubmitRejectedError: idempotency_key_reused, the key came with another body.
    """
    if not sender.idempotency_key:
        return None
    name = _digest_of_key(sender.idempotency_key)
    rows = BookFile.objects.filter(job=job_id, options__has_key=_ASKED_BY).order_by()
    for pk, pairs in rows.values_list("pk", f"options__{_ASKED_BY}"):
        known = dict(pairs).get(name)
        if known is None:
            continue
        check_digest(known, sender.body_digest, noun="file", pk=pk)
        return BookFile.objects.filter(pk=pk).first()
    return None


def note_key(row: BookFile, sender: Sender) -> None:
    """Keep that a request with a key has asked for a file; call it with the job's row locked."""
    if not sender.idempotency_key:
        return
    pair = [_digest_of_key(sender.idempotency_key), sender.body_digest]
    pairs = [one for one in row.options.get(_ASKED_BY, []) if one[0] != pair[0]]
    row.options = {**row.options, _ASKED_BY: [*pairs, pair][-MOST_KEYS:]}
    BookFile.objects.filter(pk=row.pk).update(options=row.options)


def shown_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a file without what is kept beside them."""
    return {name: value for name, value in options.items() if name != _ASKED_BY}


def _digest_of_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


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
    sender: Sender,
    *,
    partial: bool = False,
) -> tuple[BookFile, bool]:
    """Return a file of a started book; it is made unless it is there and of the takes of now.

    Args:
        asked: options that the kind takes; the others are as the book has them.
        sender: what its Idempotency-Key has asked for is returned as it is by now.
        partial: take the chapters that are complete, while others are not.

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
            "book_not_started", "The book was not started yet; start it first."
        )
    if (known := made_before(job.pk, sender)) is not None:
        return known, True
    options = full_options(kind, asked, book)
    content = content_of(book, job)
    check_content(content, job, options.get("chapter"), partial=partial)
    digest = digest_of(options)
    same = BookFile.objects.filter(job=job, kind=kind, options_digest=digest)
    done = same.filter(status=BookFile.Status.DONE).values_list("pk", "key")
    # Before rows are locked, as a storage may take its time.
    gone = next((pk for pk, key in done if not default_storage.exists(key)), None)
    if not same.exists():
        with transaction.atomic():
            check_room(sender.api_key)
    try:
        with transaction.atomic():
            lock_jobs(RenderJob.objects.filter(pk=job.pk))  # of two with one key the other waits
            if (known := made_before(job.pk, sender)) is not None:
                return known, True
            row = ask_for_file(
                job.pk,
                kind,
                options,
                options_digest=digest,
                content_digest=content.digest(options.get("chapter")),
                is_partial=partial,
                gone=gone,
            )
            if row is not None:
                note_key(row, sender)
    except TooManyFilesError as error:
        raise SubmitRejectedError(
            "too_many_book_files",
            f"The book has {MOST_FILES} files already; delete those that you do not need.",
        ) from error
    if row is None:
        raise SubmitRejectedError("book_not_found", "No book that you may see has this id.")
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
            "book_without_audio",
            "None of these chapters could be spoken; the book's proof gives the reasons.",
        )
    if job.status not in UNFINISHED:
        raise SubmitRejectedError(
            "book_not_finished",
            f"The book is {job.status} and some of its text was not spoken. Retry the book, "
            "or send `partial` to use the chapters that are complete.",
        )
    hint = " Send `partial` to use the chapters that are complete." if is_there else ""
    raise SubmitRejectedError(
        "book_not_finished",
        f"Some of the text is not rendered yet.{hint}",
        retry_after=POLL_SECONDS,
    )


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
    chapters = book.started.get("chapters", [])
    if chapter is None or row.kind == Kind.SAMPLE or chapter >= len(chapters):
        return title
    return f"{title} - {numbered_name(chapter, len(chapters), chapters[chapter]['title'])}"
