"""Name the formats that a job's file may have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Say what an HTTP answer calls a format, and how its files end."""

    content_type: str
    extension: str


FORMATS = {
    "wav": AudioFormat("audio/wav", "wav"),
    "flac": AudioFormat("audio/flac", "flac"),
    "mp3": AudioFormat("audio/mpeg", "mp3"),
    "opus": AudioFormat("audio/ogg", "opus"),  # Opus in Ogg: players go by the outer container
}
