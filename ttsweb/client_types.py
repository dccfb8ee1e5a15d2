"""Describe what the REST API answers, as plain dictionaries; fields may join, none will leave."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

JobStatus = Literal["queued", "running", "succeeded", "partial", "failed", "cancelled"]
JOB_FINAL: frozenset[str] = frozenset({"succeeded", "partial", "failed", "cancelled"})
JOB_WITH_AUDIO: frozenset[str] = frozenset({"succeeded", "partial"})


class JobVoice(TypedDict):
    """The voice that speaks in a job; id and name are None for a clip that came with it."""

    speaker: int
    id: str | None
    name: str | None
    version: int


class Job(TypedDict):
    """A job and how far it is; `text` is there where one job was asked for, not in lists."""

    id: str
    kind: str
    status: JobStatus
    progress: float
    queue_position: int | None
    segments_total: int
    segments_done: int
    segments_failed: int
    segments_cancelled: int
    audio_url: str | None
    audio_seconds: float
    error_code: str
    error_message: str
    cancel_requested: bool
    text_start: str
    voices: list[JobVoice]
    format: str
    speed: float
    priority: str
    seed: int
    temperature: float
    top_p: float
    top_k: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    updated_at: str


class JobOptions(TypedDict, total=False):
    """What a job may be told beside its text and voice; the server's defaults hold otherwise."""

    format: str
    speed: float
    seed: int
    temperature: float
    top_p: float
    top_k: int
    priority: Literal["interactive", "bulk"]


class Segment(TypedDict):
    """One segment of a job; frames, audio_seconds and finish_reason are None until rendered."""

    index: int
    chapter: int
    text: str
    speaker: int
    status: str
    seed: int
    attempts: int
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
    consent_statement: str
    consent_by: str
    consent_at: str
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
