"""Describe what the REST API answers, as plain dictionaries; fields may join, none will leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from synth.formats import BookFileFormat

JobStatus = Literal["queued", "running", "succeeded", "partial", "failed", "cancelled"]
JOB_FINAL: frozenset[str] = frozenset({"succeeded", "partial", "failed", "cancelled"})
VOICE_FINAL: frozenset[str] = frozenset({"ready", "failed"})
JOB_WITH_AUDIO: frozenset[str] = frozenset({"succeeded", "partial"})
FILE_FINAL: frozenset[str] = frozenset({"done", "failed"})
BookFileKind = Literal[
    BookFileFormat, "chapters", "shelf", "read_along", "sample", "srt", "vtt", "report"
]


class JobVoice(TypedDict):
    """The voice that speaks in a job; id and name are None for a clip that came with it."""

    speaker: int
    role: str
    id: str | None
    name: str | None
    version: int


class Job(TypedDict):
    """A job and how far it is.

    `file`, `text` and `lexicon` are there where one job was asked for, not in lists.
    """

    id: str
    kind: str
    batch: str | None
    custom_id: str
    status: JobStatus
    progress: float
    queue_position: int | None
    eta_seconds: int | None
    real_time_factor: float | None
    segments_total: int
    segments_done: int
    segments_failed: int
    segments_cancelled: int
    takes_rendered: int
    takes_reused: int
    audio_url: str | None
    audio_seconds: float
    error_code: str
    error_message: str
    cancel_requested: bool
    text_start: str
    voices: list[JobVoice]
    language: str
    format: str
    sample_rate: int | None
    bit_rate: int | None
    loudness: float | None
    speed: float
    pauses: dict[str, int]
    normalise: bool
    lexicons: list[str]
    max_retakes: int | None
    priority: str
    deadline: str | None
    retention: int | Literal["forever"] | None
    webhook: str
    live: bool
    seed: int
    temperature: float
    top_p: float
    top_k: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    expires_at: str | None
    updated_at: str
    file: NotRequired[dict[str, Any] | None]
    text: NotRequired[str]
    lexicon: NotRequired[list[dict[str, Any]]]


class LexiconEntry(TypedDict):
    """How something is spoken: `say` where the text has `find`."""

    find: str
    say: str
    kind: NotRequired[Literal["literal", "word", "regex"]]
    case_sensitive: NotRequired[bool]
    language: NotRequired[str]


class JobChanges(TypedDict, total=False):
    """What can be changed of a job; None takes a deadline or a retention away.

    `deadline` is a moment with its zone, in ISO 8601, or seconds from now; `retention` seconds
    after the job's end, or "forever".
    """

    priority: Literal["interactive", "bulk"]
    deadline: str | float | None
    retention: int | Literal["forever"] | None


class JobOptions(TypedDict, total=False):
    """What a job may be told beside its text and voices; the server's defaults hold otherwise.

    `sample_rate` is in Hz, `bit_rate` in bits per second, `loudness` in LUFS, `pauses` in ms by
    name; `lexicons` are ids or names. `deadline` and `retention` are as in `JobChanges`.
    """

    language: str
    format: str
    sample_rate: int
    bit_rate: int
    loudness: float
    speed: float
    pauses: Mapping[str, int]
    normalise: bool
    lexicons: Sequence[str]
    lexicon: Sequence[LexiconEntry]
    max_retakes: int
    seed: int
    temperature: float
    top_p: float
    top_k: int
    priority: Literal["interactive", "bulk"]
    deadline: str | float
    retention: int | Literal["forever"]
    webhook: str
    live: bool


class Segment(TypedDict):
    """One segment of a job; frames, audio_seconds and finish_reason are None until rendered."""

    id: int
    index: int
    chapter: int
    text: str
    spoken_text: str
    speaker: int
    status: str
    seed: int
    attempts: int
    retakes: int
    quality: dict[str, Any] | None
    candidates: list[dict[str, Any]]
    error_code: str
    error_message: str
    frames: int | None
    audio_seconds: float | None
    finish_reason: str | None
    pause_after_ms: int
    finished_at: str | None


class Voice(TypedDict):
    """A voice; status, errors, warnings, frames and clips are those of its newest version."""

    id: str
    name: str
    description: str
    language: str
    owner: str | None
    shared: bool
    status: Literal["pending", "encoding", "ready", "failed"]
    error_code: str
    error_message: str
    warnings: list[dict[str, str]]
    frames: int
    codec_fingerprint: str
    version: int
    clips: list[dict[str, Any]]
    audio_url: str
    cache_codes: bool
    archived: bool
    consent_statement: str
    consent_by: str
    consent_at: str
    consent_withdrawn_at: str | None
    versions: list[dict[str, Any]]
    created_at: str
    updated_at: str
    last_used_at: str | None


class Batch(TypedDict):
    """A batch and how far it is; `counts` has the number of items in each state."""

    id: str
    status: JobStatus
    progress: float
    items_total: int
    counts: dict[str, int]
    audio_seconds: float
    eta_seconds: float | None
    results_url: str | None
    error_code: str
    error_message: str
    cancel_requested: bool
    priority: str
    webhook: str
    deadline: str | None
    retention: int | str | None
    expires_at: str | None
    created_at: str
    started_at: str | None
    finished_at: str | None
    updated_at: str


class BatchOptions(TypedDict, total=False):
    """What holds for a batch as a whole; the server's defaults hold otherwise."""

    on_error: Literal["reject", "skip"]
    priority: Literal["interactive", "bulk"]
    webhook: str
    retention: int | str
    deadline: float | str


class Item(Job):
    """An item of a batch: a job and its place there."""

    item_index: int


class Casting(TypedDict, total=False):
    """Who speaks beside the narrator; voices are ids or names."""

    dialogue: str  # off, or detect with `dialogue_voice`
    dialogue_voice: str
    characters: dict[str, str]
    languages: dict[str, str]


class BookProgress(TypedDict):
    """How far the job of a book is."""

    share: float
    chapters_total: int
    chapters_done: int
    segments_total: int
    segments_done: int
    segments_failed: int
    segments_cancelled: int
    takes_rendered: int
    takes_reused: int
    audio_seconds: float
    real_time_factor: float | None
    eta_seconds: int | None


class Book(TypedDict):
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
    plan: dict[str, Any] | None
    progress: BookProgress | None
    options: dict[str, Any]
    policies: dict[str, str]
    casting: Casting
    opening_credits: str
    closing_credits: str
    voices: list[JobVoice]
    metadata: dict[str, Any]
    cover_url: str | None
    start_wanted: bool
    audio_url: str | None
    error_code: str
    error_message: str
    created_at: str
    updated_at: str


class BookFile(TypedDict):
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
    error_code: str
    error_message: str
    created_at: str
    finished_at: str | None
    report: NotRequired[dict[str, Any] | None]


class BatchProgress(TypedDict):
    """How far a batch is."""

    share: float
    books_total: int
    books_ended: int
    segments_total: int
    segments_done: int
    segments_failed: int
    takes_rendered: int
    takes_reused: int
    audio_seconds: float
    expected_seconds: float
    real_time_factor: float | None
    eta_seconds: int | None


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
    skipped: list[dict[str, Any]]
    summary: dict[str, Any] | None
    closed_at: str | None
    approved_at: str | None
    paused_at: str | None
    cancelled_at: str | None
    ended_at: str | None
    created_at: str
    updated_at: str


class BookBatchEntry(TypedDict):
    """An entry of a batch: what its manifest says, and how far its book is."""

    index: int
    file: str
    state: str
    options: dict[str, Any]
    metadata: dict[str, Any]
    book: str | None
    title: str
    sample: dict[str, Any] | None
    plan: dict[str, Any] | None
    progress: BookProgress | None
    stored_bytes: dict[str, int]
    audio_url: str | None
    waits_for: str
    error_code: str
    error_message: str


class ReviewFlag(TypedDict):
    """One flag of a take, and what it means."""

    name: str
    sentence: str


class ReviewTake(TypedDict):
    """One take of a segment; `heard` is what a transcriber heard, None where none listened."""

    take: str
    seed: int
    seconds: float
    score: float | None
    flags: list[str]
    measures: list[dict[str, Any]]
    is_kept: bool
    heard: str | None
    audio_url: str


class ReviewItem(TypedDict):
    """A segment to be judged; `take` is the one that it keeps, None where it failed."""

    id: int
    job: str
    book: str | None
    title: str
    chapter: dict[str, Any]
    index: int
    text: str
    spoken_text: str
    speaker: int
    status: str
    reason: Literal["failed", "flagged", "short"] | None
    score: float | None
    flags: list[ReviewFlag]
    approved: bool
    error_code: str
    error_message: str
    take: str | None
    takes: list[ReviewTake]
    before: list[dict[str, Any]]
    after: list[dict[str, Any]]


class Approvals(TypedDict):
    """What came of many approvals; `refused` has `segment`, `code` and `detail` of each."""

    approved: list[int]
    refused: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Clip:
    """A reference clip: a file's path, or its bytes, and what is said in it."""

    audio: Path | str | bytes
    transcript: str

    def read(self) -> tuple[str, bytes]:
        """Return the file's name and its bytes.

        Raises:
            OSError: the file cannot be read.
        """
        if isinstance(self.audio, bytes):
            return "clip", self.audio
        path = Path(self.audio)
        return path.name, path.read_bytes()
