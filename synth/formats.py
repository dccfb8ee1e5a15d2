"""Name the formats that a job's file may have."""

from __future__ import annotations

from dataclasses import dataclass

MIN_SPEED, MAX_SPEED = 0.25, 4.0  # pace of a file against that of its takes


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Say what an HTTP answer calls a format, and how its files end."""

    content_type: str
    extension: str


FORMATS = {
    "wav": AudioFormat("audio/wav", "wav"),
    "flac": AudioFormat("audio/flac", "flac"),
    "mp3": AudioFormat("audio/mpeg", "mp3"),
    "aac": AudioFormat("audio/aac", "aac"),  # ADTS: frames that need no container
    "pcm": AudioFormat("audio/pcm", "pcm"),  # bare s16le samples, mono, 24 kHz
    "opus": AudioFormat("audio/ogg", "opus"),  # Opus in Ogg: players go by the outer container
}
# What a book may have besides; a file has one of these.
BOOK_FORMATS = {**FORMATS, "m4b": AudioFormat("audio/mp4", "m4b")}
