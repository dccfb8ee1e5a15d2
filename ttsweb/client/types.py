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
