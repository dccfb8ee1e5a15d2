"""Make a retail sample: the first minutes of a chapter, faded out where a sentence ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from synth.contract import AudioArray
from workers.audio.writers import open_writer
from workers.audio.written_audio import read_blocks
from workers.book_files.book_audio import BookAudio
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.publishing import published

MAX_MINUTES = 5.0  # what shops take
FADE_SECONDS = 2.0
_BIT_RATE = 192_000


def make_sample(
    path: Path, book: BookAudio, index: int, encoder: Encoder, *, minutes: float = MAX_MINUTES
) -> float:
    """Write the beginning of chapter `index` as MP3, and return how many seconds it has.

    Args:
        minutes: at most so many, above 0 and up to `MAX_MINUTES`; it ends after the last segment
            that fits, so that no word is cut, or within one that alone is longer.

    Raises:
        ValueError: `minutes` is out of range.
        IndexError: there is no such chapter.
        OSError: the disk is full; no file appears.
    """
    if not 0 < minutes <= MAX_MINUTES:
        raise ValueError(f"a sample has more than 0 and at most {MAX_MINUTES:g} minutes")
    chapter = encoder.chapter(book, index, sample_encoding(book))
    mp3_rate = chapter.sample_rate
    length = _length(chapter, round(60 * minutes * mp3_rate))
    with published(path) as temporary, open_writer(temporary, "mp3", mp3_rate, _BIT_RATE) as out:
        for block in _faded(chapter, length):
            out.write(block)
    return length / mp3_rate


def sample_encoding(book: BookAudio) -> Encoding:
    """Return how the chapter is encoded that a sample is cut from."""
    rate = book.sample_rate if book.sample_rate in (32_000, 44_100, 48_000) else 44_100
    return Encoding("flac", sample_rate=rate)


def _length(chapter: ChapterFile, most: int) -> int:
    """Return how many samples the sample has: up to a segment's end, with room to fade."""
    if chapter.num_samples <= most:
        return chapter.num_samples
    fade = round(FADE_SECONDS * chapter.sample_rate)
    ends = [span.end for span in chapter.spans if span.end + fade <= most]
    return ends[-1] + fade if ends else most


def _faded(chapter: ChapterFile, length: int) -> Iterator[AudioArray]:
    fade = min(length, round(FADE_SECONDS * chapter.sample_rate))
    position = 0
    for block in read_blocks(chapter.path, "flac", chapter.sample_rate):
        kept = block[: length - position]
        left = length - (position + np.arange(len(kept), dtype=np.float64))
        yield (kept * np.minimum(1.0, left / fade)).astype(np.float32)
        position += len(kept)
        if position >= length:
            return
