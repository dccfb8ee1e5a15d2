"""Build the boxes of an MP4 file (ISO/IEC 14496-12) that describe one AAC track and its chapters.

FFmpeg's muxer keeps about seventy bytes for each frame, which is 400 MB for a book of forty hours,
and cannot write all tags; here a frame costs four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Pieces = list[bytes | memoryview]
Content = bytes | Pieces

_LANGUAGE_UNDEFINED = 0x55C4  # "und"
_MATRIX = struct.pack(">9i", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
SOUND_TRACK, TEXT_TRACK = 1, 2


class Track(NamedTuple):
    """Say how a track's samples lie in the file; `duration` and `steps` in units of `timescale`.

    `steps` are runs of (samples, units of each); `chunks` runs of (first chunk, samples in each).
    """

    timescale: int
    duration: int
    steps: Sequence[tuple[int, int]]
    sizes: npt.NDArray[np.uint16]
    chunks: Sequence[tuple[int, int]]
    offsets: npt.NDArray[np.int64]


def box(kind: bytes, *content: Content) -> Pieces:
    """Return a box as pieces to write one after the other; its size has 32 bits.

    Pieces are not joined: the largest has 25 MB for a long book, and boxes lie six deep.
    """
    inner: Pieces = []
    for part in content:
        inner += [part] if isinstance(part, bytes) else part
    return [struct.pack(">I4s", 8 + sum(map(len, inner)), kind), *inner]


def full_box(kind: bytes, *content: Content, version: int = 0, flags: int = 0) -> Pieces:
    """Return a box with a version and flags."""
    return box(kind, struct.pack(">I", version << 24 | flags), *content)


def mdat_header(num_bytes: int) -> bytes:
    """Return what stands before the media: always the long form, so that its size is known."""
    return struct.pack(">I4sQ", 1, b"mdat", 16 + num_bytes)


def movie(timescale: int, duration: int, *tracks: Pieces, tags: Pieces) -> Pieces:
    """Return the `moov` box; `duration` in units of `timescale`."""
    head = _times(timescale, duration)
    version = 1 if len(head) > 16 else 0
    rest = struct.pack(">IHH8x", 0x10000, 0x100, 0) + _MATRIX + bytes(24)
    header = full_box(b"mvhd", head, rest, struct.pack(">I", TEXT_TRACK + 1), version=version)
    return box(b"moov", header, *tracks, tags)


def sound_track(
    track: Track, *, config: bytes, bit_rate: int, priming: int, presented: int, chapters: bool
) -> Pieces:
    """Return the `trak` box of mono AAC.

    Args:
        config: the codec's AudioSpecificConfig.
        priming: samples before the first that is to be heard.
        presented: samples that are to be heard.
        chapters: whether the text track names this one's chapters.
    """
    edits = box(b"edts", _edit_list(presented, priming))
    reference = box(b"tref", box(b"chap", struct.pack(">I", TEXT_TRACK))) if chapters else []
    esds = full_box(b"esds", _stream_descriptor(config, bit_rate, int(track.sizes.max(initial=0))))
    rate = track.timescale << 16 if track.timescale < 1 << 16 else 0
    entry = box(
        b"mp4a", struct.pack(">6xH8xHHHHI", 1, 1, 16, 0, 0, rate), esds
    )  # one channel of 16 bits
    media = _media(track, b"soun", b"Sound", full_box(b"smhd", bytes(4)), entry)
    header = _track_header(SOUND_TRACK, presented, volume=0x100, flags=7)
    return box(b"trak", header, edits, reference, media)


def text_track(track: Track) -> Pieces:
    """Return the `trak` box of chapter titles, which players list and do not show."""
    entry = box(b"text", struct.pack(">6xH", 1), bytes(43))
    info = box(b"gmhd", full_box(b"gmin", struct.pack(">HHHHhH", 64, 0x8000, 0x8000, 0x8000, 0, 0)),
               box(b"text", _MATRIX))  # fmt: skip
    media = _media(track, b"text", b"Chapters", info, entry)
    return box(b"trak", _track_header(TEXT_TRACK, track.duration, volume=0, flags=2), media)


def _times(timescale: int, duration: int) -> bytes:
    """Return the four times of a header; the long form only where the duration needs it."""
    if duration < 1 << 32:
        return struct.pack(">4I", 0, 0, timescale, duration)
    return struct.pack(">2QIQ", 0, 0, timescale, duration)


def _track_header(number: int, duration: int, *, volume: int, flags: int) -> Pieces:
    version = int(duration >= 1 << 32)
    times = struct.pack(">2QI4xQ" if version else ">2II4xI", 0, 0, number, duration)
    rest = struct.pack(">8xHHHH", 0, 0, volume, 0) + _MATRIX + bytes(8)
    return full_box(b"tkhd", times, rest, version=version, flags=flags)


def _edit_list(presented: int, priming: int) -> Pieces:
    version = int(presented >= 1 << 32)
    entry = struct.pack(">QqI" if version else ">IiI", presented, priming, 0x10000)
    return full_box(b"elst", struct.pack(">I", 1), entry, version=version)


def _media(track: Track, handler: bytes, name: bytes, info: Pieces, entry: Pieces) -> Pieces:
    times = _times(track.timescale, track.duration)
    version = int(len(times) > 16)
    header = full_box(b"mdhd", times, struct.pack(">HH", _LANGUAGE_UNDEFINED, 0), version=version)
    kind = full_box(b"hdlr", bytes(4), handler, bytes(12), name + b"\0")
    data = box(b"dinf", full_box(b"dref", struct.pack(">I", 1), full_box(b"url ", flags=1)))
    return box(b"mdia", header, kind, box(b"minf", info, data, _sample_table(track, entry)))


def _sample_table(track: Track, entry: Pieces) -> Pieces:
    steps = b"".join(struct.pack(">II", *step) for step in track.steps)
    chunks = b"".join(struct.pack(">III", first, count, 1) for first, count in track.chunks)
    count = len(track.offsets)
    sizes: Pieces = [track.sizes.astype(">u4").view(np.uint8).data]
    is_long = bool(count) and int(track.offsets[-1]) >= 1 << 32
    offsets = track.offsets.astype(">u8" if is_long else ">u4").tobytes()
    return box(
        b"stbl",
        full_box(b"stsd", struct.pack(">I", 1), entry),
        full_box(b"stts", struct.pack(">I", len(track.steps)), steps),
        full_box(b"stsc", struct.pack(">I", len(track.chunks)), chunks),
        full_box(b"stsz", struct.pack(">II", 0, len(track.sizes)), sizes),
        full_box(b"co64" if is_long else b"stco", struct.pack(">I", count), offsets),
    )  # fmt: skip


def _stream_descriptor(config: bytes, bit_rate: int, largest: int) -> bytes:
    """Return the ES descriptor of ISO/IEC 14496-1 for AAC."""
    decoder = struct.pack(">BB", 0x40, 0x15) + largest.to_bytes(3, "big")
    decoder += struct.pack(">II", bit_rate, bit_rate) + _descriptor(5, config)
    stream = struct.pack(">HB", SOUND_TRACK, 0)
    return _descriptor(3, stream + _descriptor(4, decoder) + _descriptor(6, b"\x02"))


def _descriptor(tag: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([tag, 0x80, 0x80, 0x80 | size >> 7, size & 0x7F]) + content
