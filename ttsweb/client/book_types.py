"""Describe what the REST API answers of books, as `types` does of jobs."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from synth.formats import BookFileFormat
from ttsweb.client.types import JobVoice

FILE_FINAL: frozenset[str] = frozenset({"done", "failed"})
BookFileKind = Literal[
    BookFileFormat, "chapters", "shelf", "read_along", "sample", "srt", "vtt", "report"
]


class _Failing(TypedDict):
    error_code: str
    error_message: str


class _Rendering(TypedDict):
    share: float
    segments_total: int
    segments_done: int
    segments_failed: int
    takes_rendered: int
    takes_reused: int
    audio_seconds: float
    real_time_factor: float | None
    eta_seconds: int | None


class _Proven(TypedDict):
    spoken_chars: int
    failed_chars: int
    open_chars: int
    short_segments: list[int]
    is_balanced: bool


class Casting(TypedDict, total=False):
    """Who speaks beside the narrator; voices are ids or names."""

    dialogue: str  # off, or detect with `dialogue_voice`
    dialogue_voice: str
    characters: dict[str, str]
    languages: dict[str, str]


class Metadata(TypedDict, total=False):
    """What is said of a book, as far as anything is."""

    title: str | None
    subtitle: str | None
    authors: list[str] | None
    narrators: list[str] | None
    series: str | None
    series_index: str | None
    publisher: str | None
    date: str | None
    description: str | None
    genres: list[str] | None
    language: str | None
    rights: str | None


class BookMetadata(TypedDict):
    file: Metadata
    set: Metadata
    shown: Metadata


class BookFigures(TypedDict):
    chapters: int
    included: int
    spine_chars: int
    spoken_chars: int
    expected_seconds: float
    warnings: int


class PlanChapter(TypedDict):
    index: int
    id: str
    title: str
    level: int
    parts: list[str]
    included: bool
    reason: str | None
    language: str
    voice: str
    characters: int
    seconds: float
    source_chars: int
    blocks: int
    beginning: str
    speakers: list[str]


class PlanTotals(TypedDict):
    chapters: int
    characters: int
    seconds: float
    hours: float


class PlanLoss(TypedDict):
    """A part of the book that could not be read."""

    path: str
    why: str
    source_chars: int
    text: str


class PlanCompleteness(TypedDict):
    source_chars: int
    spoken: int
    skipped: dict[str, int]
    missing: list[PlanLoss]
    is_complete: bool


class SkippedBlock(TypedDict):
    """A part of an included chapter that is not spoken unless somebody includes it."""

    chapter: str
    block: int
    included: bool
    can_be_included: bool
    reason: str
    kind: str
    source_chars: int
    text: str


class PlanCharacter(TypedDict):
    """A character of a play, or one that a tag in the text names."""

    name: str
    voice: str
    speeches: int
    characters: int
    example: str


class PlanDialogue(TypedDict):
    """How much of the spoken text was recognised as dialogue."""

    characters: int
    share: float


class PlanLanguage(PlanDialogue):
    language: str
    voice: str


class Plan(TypedDict):
    """The plan of a book: what is spoken, and what is skipped and why."""

    plan_number: int
    title: str
    authors: list[str]
    language: str
    rules: dict[str, str]
    chapters: list[PlanChapter]
    totals: PlanTotals
    completeness: PlanCompleteness
    skipped: list[SkippedBlock]
    reasons: dict[str, str]
    warnings: list[str]
    edits: list[dict[str, Any]]
    casting: Casting
    characters: list[PlanCharacter]
    languages: list[PlanLanguage]
    dialogue: PlanDialogue | None
    opening_credits: str
    closing_credits: str
    credits: dict[str, str]
    chars_per_second: float
    is_rate_measured: bool
    expected_seconds: float
    expected_render_seconds: int | None
    expected_finish: str | None
    expected_segments: int | None
    expected_reused: int | None


class ChapterProof(_Proven):
    """What happened to a chapter's text, in characters without blanks."""

    id: str
    index: int
    title: str
    source_chars: int
    text_chars: int
    segments: int


class Proof(_Proven):
    """What happened to each character of the book."""

    spine_chars: int
    skipped_chars: int
    skipped: dict[str, int]
    is_complete: bool
    chapters: list[ChapterProof]


class ChapterCheck(TypedDict):
    code: str
    passed: bool
    sentence: str


class MissingChapter(TypedDict):
    index: int
    title: str


class ChapterReport(MissingChapter):
    """The values measured in a chapter after encoding; levels in dBFS, dBTP and LUFS."""

    seconds: float
    rms_dbfs: float
    peak_dbfs: float
    true_peak_dbtp: float
    floor_dbfs: float
    loudness_lufs: float | None
    num_samples: int
    sample_rate: int
    size_bytes: int
    gain_db: float
    limiter_db: float
    passed: bool
    checks: list[ChapterCheck]


class VoiceLevel(TypedDict):
    """The gain that brings one voice to the narrator's level."""

    voice: str
    speakers: list[int]
    loudness_lufs: float | None
    gain_db: float
    is_bounded: bool


class BookFileReport(TypedDict):
    mastering: dict[str, Any]
    passed: bool
    failed_chapters: list[int]
    seconds: float
    chapters: list[ChapterReport]
    chapters_missing: list[MissingChapter]
    voices: list[VoiceLevel]
    chapters_encoded: int
    chapters_reused: int
    assembly_realtime: float | None
    cover_note: str
    unplaced_segments: NotRequired[int]


class BookSample(_Failing):
    job: str | None
    status: str
    chapter: str
    audio_url: str | None


class SkippedEntry(TypedDict):
    index: int
    line: int | None
    attr: str | None
    code: str
    detail: str


class _Reported(TypedDict):
    audio_seconds: float
    segments: int
    segments_failed: int
    takes_rendered: int
    takes_reused: int
    retakes: int
    files: int
    bytes: dict[str, int]


class BookBatchTotals(_Reported):
    """The totals of a batch that has ended; `states` counts its books by what became of them."""

    books: int
    states: dict[str, int]


class ReportedBook(_Reported, _Failing):
    index: int
    file: str
    book: str | None
    title: str
    status: str
    real_time_factor: float | None


class BookBatchReport(TypedDict):
    totals: BookBatchTotals
    books: list[ReportedBook]
    skipped: NotRequired[list[SkippedEntry]]


class BookProgress(_Rendering):
    chapters_total: int
    chapters_done: int
    segments_cancelled: int


class Book(_Failing):
    """A book and how far it is; `status` is importing, planned, paused, or that of its job."""

    id: str
    status: str
    job: str | None
    title: str
    authors: list[str]
    language: str
    filename: str
    size_bytes: int
    sha256: str
    plan_number: int
    plan: BookFigures | None
    progress: BookProgress | None
    options: dict[str, Any]
    policies: dict[str, str]
    casting: Casting
    opening_credits: str
    closing_credits: str
    voices: list[JobVoice]
    metadata: Metadata
    cover_url: str | None
    start_wanted: bool
    audio_url: str | None
    created_at: str
    updated_at: str


class BookFile(_Failing):
    """A file of a book; `status` is queued, claimed, done or failed.

    `report` is None until it is done, and not there in lists.
    """

    id: str
    kind: BookFileKind
    options: dict[str, Any]
    status: str
    is_partial: bool
    is_current: bool
    filename: str
    content_type: str
    size_bytes: int
    sha256: str
    duration_seconds: float
    content_url: str | None
    plot_url: str | None
    created_at: str
    finished_at: str | None
    report: NotRequired[BookFileReport | None]


class BatchProgress(_Rendering):
    books_total: int
    books_ended: int
    expected_seconds: float


class BookBatch(TypedDict):
    """A batch of books; `status` is open, running, paused, to_approve, cancelling, or its end."""

    id: str
    name: str
    status: str
    sample: str
    priority: str
    webhook: str
    defaults: dict[str, Any]
    counts: dict[str, int]
    progress: BatchProgress
    stored_bytes: dict[str, int]
    skipped: list[SkippedEntry]
    summary: BookBatchTotals | None
    closed_at: str | None
    approved_at: str | None
    paused_at: str | None
    cancelled_at: str | None
    ended_at: str | None
    created_at: str
    updated_at: str


class BookBatchEntry(_Failing):
    """An entry of a batch: what its manifest says, and how far its book is."""

    index: int
    file: str
    state: str
    options: dict[str, Any]
    metadata: dict[str, Any]
    book: str | None
    title: str
    sample: BookSample | None
    plan: dict[str, Any] | None
    progress: BookProgress | None
    stored_bytes: dict[str, int]
    audio_url: str | None
    waits_for: str
