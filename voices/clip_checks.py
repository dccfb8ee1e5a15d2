"""Look at an upload without decoding it: its size, its container's signature, its transcript.

A name or a declared media type proves nothing, so neither is read. What the sound is like is
measured by a worker, in a child process.
"""

from __future__ import annotations

import re

from django.conf import settings

from ttsweb.http.body_limit import LimitHandler
from ttsweb.refusals import RefusedError

# Seconds of a reference clip: less tells no voice, more makes the prompt longer than it helps.
MIN_REFERENCE_SECONDS = 1.0
MAX_REFERENCE_SECONDS = 60.0

MAX_TRANSCRIPT_CHARS = 5000
CONTAINERS = ("wav", "flac", "mp3", "ogg", "m4a", "webm")

# ISO base media files that hold sound; pictures (avif, heic) begin with `ftyp` as well.
_MP4_BRAND = re.compile(rb"M4[ABVP] |mp4[12]|iso[m2-9]|dash|msdh|3g[p2][0-9a-z]|qt  |avc1|MSNV")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffd-\uffff]")
_EBML_HEAD_BYTES = 4096
_BITRATES_MPEG1 = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0)  # kbit/s
_BITRATES_MPEG2 = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0)
_SAMPLE_RATES_MPEG1 = (44100, 48000, 32000, 0)  # MPEG 2 has half of each, MPEG 2.5 a quarter


class ClipRejectedError(RefusedError):
    """A clip or a transcript is not taken."""

    field = "audio"


def check_clip(content: bytes) -> str:
    """Return the container's name, one of CONTAINERS, told by the first bytes of an upload.

    Raises:
        ClipRejectedError: clip_empty, clip_too_large (413) or clip_not_audio.
    """
    if not content:
        raise ClipRejectedError("clip_empty", "The clip is an empty file; send a recording.")
    if len(content) > settings.MAX_CLIP_BYTES:
        raise too_large()
    container = _container_of(content)
    if container is None:
        raise ClipRejectedError(
            "clip_not_audio",
            "The clip is not an audio file in a supported format: wav, flac, mp3, ogg, m4a "
            "or webm. The content decides, not the file's name.",
        )
    return container


def too_large() -> ClipRejectedError:
    """Return the error for a clip above MAX_CLIP_BYTES."""
    megabytes = settings.MAX_CLIP_BYTES / 1_000_000
    return ClipRejectedError(
        "clip_too_large",
        f"The clip is larger than {megabytes:g} MB; cut it to 3 to 30 seconds of speech.",
    )


def check_transcript(text: str) -> str:
    """Return a transcript without blanks around it and with plain line ends.

    Spellings of special tokens, such as `<|im_end|>`, are text like any other: the engine
    neutralises them.

    Raises:
        ClipRejectedError: transcript_required, transcript_too_long or transcript_not_text.
    """
    cleaned = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").strip()
    if _CONTROL.search(text):  # before what strip() takes for a blank: U+0085 is one to it
        raise ClipRejectedError(
            "transcript_not_text",
            "The transcript contains control characters or bytes that are not UTF-8; send "
            "plain text.",
        )
    if not cleaned:
        sentence = "Each clip needs a transcript: the words that are spoken in it."
        if settings.TRANSCRIBER:
            sentence += " The transcriber can propose them: POST /api/v1/transcripts."
        raise ClipRejectedError("transcript_required", sentence)
    if len(cleaned) > MAX_TRANSCRIPT_CHARS:
        raise ClipRejectedError(
            "transcript_too_long",
            f"The transcript has {len(cleaned)} characters; at most {MAX_TRANSCRIPT_CHARS} "
            "are allowed.",
        )
    return cleaned


def _container_of(content: bytes) -> str | None:
    """Return which container the bytes begin with, or None."""
    if content[:4] in (b"RIFF", b"RF64", b"BW64") and content[8:12] == b"WAVE":
        return "wav"
    if content[:4] == b"OggS" and content[4:5] == b"\0":
        return "ogg"
    if _is_mp4(content):
        return "m4a"
    if _is_webm(content):
        return "webm"
    start = _end_of_id3(content)
    if content[start : start + 4] == b"fLaC":
        return "flac"
    return "mp3" if _is_mp3(content, start) else None


def _is_mp4(content: bytes) -> bool:
    """Whether the file type box names a brand that can hold sound."""
    if content[4:8] != b"ftyp":
        return False
    size = int.from_bytes(content[:4], "big")
    if not 16 <= size <= min(len(content), 1024):
        return False
    brands = [content[8:12]] + [content[at : at + 4] for at in range(16, size, 4)]
    return any(_MP4_BRAND.fullmatch(brand) for brand in brands)


def _is_webm(content: bytes) -> bool:
    """Whether an EBML header names WebM or Matroska as its document type."""
    if not content.startswith(b"\x1a\x45\xdf\xa3"):
        return False
    head = content[:_EBML_HEAD_BYTES]
    return b"\x42\x82\x84webm" in head or b"\x42\x82\x88matroska" in head


def _end_of_id3(content: bytes) -> int:
    """Return where the sound begins behind ID3v2 tags and their padding; 0 where there is none."""
    at = 0
    while content[at : at + 3] == b"ID3" and len(content) >= at + 10:
        sizes = content[at + 6 : at + 10]
        if max(sizes) > 0x7F:  # each byte of an ID3 size has 7 bits
            return 0
        size = sum(byte << shift for byte, shift in zip(sizes, (21, 14, 7, 0), strict=True))
        has_footer = bool(content[at + 5] & 0x10)
        at += 10 + size + (10 if has_footer else 0)
    if at == 0:
        return 0
    padding = content[at : at + 4096]
    return at + len(padding) - len(padding.lstrip(b"\0"))


def _is_mp3(content: bytes, start: int) -> bool:
    """Whether two MPEG layer III frames of one stream follow each other at `start`."""
    first = _frame_at(content, start)
    if first is None:
        return False
    second = _frame_at(content, start + first[0])
    return second is not None and second[1:] == first[1:]


def _frame_at(content: bytes, at: int) -> tuple[int, int, int] | None:
    """Return (bytes, version bits, sample rate) of the layer III frame at `at`, or None."""
    head = content[at : at + 4]
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer = (head[1] >> 3) & 3, (head[1] >> 1) & 3
    if version == 1 or layer != 1:  # reserved; not layer III
        return None
    is_mpeg1 = version == 3
    kilobits = (_BITRATES_MPEG1 if is_mpeg1 else _BITRATES_MPEG2)[head[2] >> 4]
    sample_rate = _SAMPLE_RATES_MPEG1[(head[2] >> 2) & 3] >> {3: 0, 2: 1, 0: 2}[version]
    if not kilobits or not sample_rate:
        return None
    padding = (head[2] >> 1) & 1
    size = (144 if is_mpeg1 else 72) * kilobits * 1000 // sample_rate + padding
    return size, version, sample_rate


class ClipLimitHandler(LimitHandler):
    """Refuse files above MAX_CLIP_BYTES, wherever an upload has no limit of its own."""

    code = "clip_too_large"

    def max_bytes(self) -> int:
        limit: int = settings.MAX_CLIP_BYTES
        return limit

    def sentence(self) -> str:
        return str(too_large())
