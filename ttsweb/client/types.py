"""Describe what the REST API answers, as plain dictionaries; fields may join, none will leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

JobStatus = Literal["queued", "running", "succeeded", "partial", "failed", "cancelled"]
JOB_FINAL: frozenset[str] = frozenset({"succeeded", "partial", "failed", "cancelled"})
VOICE_FINAL: frozenset[str] = frozenset({"ready", "failed"})
JOB_WITH_AUDIO: frozenset[str] = frozenset({"succeeded", "partial"})


class _Failing(TypedDict):
    error_code: str
    error_message: str


class _Encoding(_Failing):
    warnings: list[VoiceWarning]
    frames: int
    codec_fingerprint: str
    created_at: str


class JobVoice(TypedDict):
    """The voice that speaks in a job; id and name are None for a clip that came with it."""

    speaker: int
    role: str
    id: str | None
    name: str | None
    version: int


class JobFile(TypedDict):
    """The values measured in a finished file, and how its loudness was changed."""

    seconds: float
    sample_rate: int
    channels: int
    bit_rate: int | None
    loudness_lufs: float | None
    true_peak_dbtp: float
    target_lufs: float | None
    target_reached: bool | None
    gain_db: float
    limiter_db: float
    note: str


class LexiconEntry(TypedDict):
    """How something is spoken: `say` where the text has `find`."""

    find: str
    say: str
    kind: NotRequired[Literal["literal", "word", "regex"]]
    case_sensitive: NotRequired[bool]
    language: NotRequired[str]


class Job(_Failing):
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
    history: int
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
    file: NotRequired[JobFile | None]
    text: NotRequired[str]
    lexicon: NotRequired[list[LexiconEntry]]


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
    history: int
    seed: int
    temperature: float
    top_p: float
    top_k: int
    priority: Literal["interactive", "bulk"]
    deadline: str | float
    retention: int | Literal["forever"]
    webhook: str
    live: bool


class TakeMeasure(TypedDict):
    name: str
    value: float
    limit: float


class TakeQuality(TypedDict):
    score: float | None
    flags: list[str]
    measures: list[TakeMeasure]


class Candidate(TakeQuality):
    """One of several takes of a segment, and the result of its quality check."""

    take: str
    seed: int
    seconds: float


class Segment(_Failing):
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
    quality: TakeQuality | None
    candidates: list[Candidate]
    frames: int | None
    audio_seconds: float | None
    finish_reason: str | None
    pause_after_ms: int
    history: int | None
    history_expected: int
    followers: int
    finished_at: str | None


class VoiceWarning(TypedDict):
    code: str
    message: str


class VoiceClip(TypedDict):
    """One clip of a voice: the upload, and the values measured in it."""

    index: int
    filename: str
    transcript: str
    container: str
    size_bytes: int
    measures: dict[str, Any]


class VoiceVersion(_Encoding):
    """One version of a voice, and the state of its encoding."""

    id: str
    number: int
    status: str
    encoded_at: str | None


class Voice(_Encoding):
    """A voice; status, errors, warnings, frames and clips are those of its newest version."""

    id: str
    name: str
    description: str
    language: str
    owner: str | None
    shared: bool
    status: Literal["pending", "encoding", "ready", "failed"]
    version: int
    clips: list[VoiceClip]
    audio_url: str
    cache_codes: bool
    archived: bool
    consent_statement: str
    consent_by: str
    consent_at: str
    consent_withdrawn_at: str | None
    versions: list[VoiceVersion]
    updated_at: str
    last_used_at: str | None


class Batch(_Failing):
    """A batch and how far it is; `counts` has the number of items in each state."""

    id: str
    status: JobStatus
    progress: float
    items_total: int
    counts: dict[str, int]
    audio_seconds: float
    eta_seconds: float | None
    results_url: str | None
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


class ReviewFlag(TypedDict):
    name: str
    sentence: str


class ReviewTake(Candidate):
    """One take of a segment; `heard` is what a transcriber heard, None where none listened."""

    is_kept: bool
    heard: str | None
    audio_url: str


class ReviewChapter(TypedDict):
    index: int
    title: str


class ReviewNeighbour(TypedDict):
    id: int
    index: int
    text: str
    audio_url: str | None


class ReviewItem(_Failing):
    """A segment to be judged; `take` is the one that it keeps, None where it failed."""

    id: int
    job: str
    book: str | None
    title: str
    chapter: ReviewChapter
    index: int
    text: str
    spoken_text: str
    speaker: int
    status: str
    reason: Literal["failed", "flagged", "short"] | None
    score: float | None
    flags: list[ReviewFlag]
    approved: bool
    take: str | None
    takes: list[ReviewTake]
    before: list[ReviewNeighbour]
    after: list[ReviewNeighbour]


class RefusedApproval(TypedDict):
    segment: int
    code: str
    detail: str


class Approvals(TypedDict):
    approved: list[int]
    refused: list[RefusedApproval]


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
