"""Make books of tones that pulse as speech does: known samples, known words, known times."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np

from synth.contract import AudioArray
from workers.book_files.book_audio import BookAudio, BookFacts, ChapterAudio, SegmentSpan
from workers.book_files.chapter_encodes import ChapterFile, EncodeCache, Encoder, Encoding
from workers.book_files.chapter_files import make_one_file
from workers.book_files.chapter_mastering import STANDARD, Mastering

RATE = 44_100
AAC = Encoding("aac")
FACTS = BookFacts(
    title="The Time Machine: Ünïcode & <more>",
    subtitle="An Invention",
    authors=("H. G. Wells", "Another Author"),
    narrators=("A Narrator",),
    language="en-GB",
    publisher="A Publisher",
    date="1895-05-07",
    description="A traveller tells of the year 802,701.",
    series="Scientific Romances",
    series_index="2",
    genres=("Science fiction", "Classics"),
    rights="Public domain",
)


def pulses(seconds: float, *, pitch: float = 180.0, level: float = 0.1) -> AudioArray:
    """Return a tone that comes in syllables, at RATE."""
    time = np.arange(round(seconds * RATE)) / RATE
    syllables = np.clip(np.sin(2 * np.pi * 3 * time) + 0.4, 0, 1)
    wave = np.sin(2 * np.pi * pitch * time) + 0.3 * np.sin(2 * np.pi * 3.1 * pitch * time)
    return (level * syllables * wave).astype(np.float32)


def in_blocks(audio: AudioArray, size: int = 10_007) -> Callable[[], Iterator[AudioArray]]:
    """Return what reads audio in blocks, as often as it is called."""
    return lambda: (audio[at : at + size] for at in range(0, len(audio), size))


def spoken(
    title: str, audio: AudioArray, spans: Sequence[SegmentSpan] = (), *, index: int = 0
) -> ChapterAudio:
    """Return a chapter of this audio."""
    key = hashlib.sha256(audio.tobytes()).hexdigest()
    return ChapterAudio(title, in_blocks(audio), tuple(spans), key, index)


def chapter(
    title: str = "Chapter",
    *,
    sentences: int = 2,
    pitch: float = 180.0,
    level: float = 0.1,
    index: int = 0,
) -> ChapterAudio:
    """Return a chapter of sentences of 1.5 s with half a second of silence after each."""
    pause = np.zeros(RATE // 2, np.float32)
    parts, spans, position = [], [], 0
    for number in range(sentences):
        said = pulses(1.5, pitch=pitch + number, level=level)
        text = title if number == 0 else f"Sentence {number} of “{title}” & so on."
        spans.append(SegmentSpan(text, position, position + len(said)))
        parts += [said, pause]
        position += len(said) + len(pause)
    return spoken(title, np.concatenate(parts), spans, index=index)


def book(num_chapters: int = 3, **changes: object) -> BookAudio:
    """Return a book whose chapters differ in pitch and level."""
    chapters = tuple(
        chapter(
            f"Chapter {index + 1}", pitch=150.0 + 40 * index, level=0.05 * (index + 1), index=index
        )
        for index in range(num_chapters)
    )
    values = {"facts": FACTS, "chapters": chapters, "sample_rate": RATE} | changes
    return BookAudio(**values)  # type: ignore[arg-type]  # each is a field of it


def probe(file: Any) -> Any:
    """Open a path or a stream with FFmpeg, which knows nothing of how the file was made."""
    return av.open(str(file) if isinstance(file, Path) else file)


def decoded(path: Path) -> np.ndarray:
    """Return the samples of the first channel, float32."""
    with probe(path) as opened:
        audio = np.concatenate([frame.to_ndarray()[0] for frame in opened.decode(audio=0)])
    return audio / 2**15 if audio.dtype == np.int16 else audio


def encoder(folder: Path, mastering: Mastering = STANDARD) -> Encoder:
    """Return an encoder that keeps its work in a folder."""
    return Encoder(EncodeCache(folder / "cache"), mastering, is_unwanted=lambda: False)


def make_m4b(path: Path, made_of: BookAudio, work: Encoder) -> list[ChapterFile]:
    """Write an M4B; return its chapters."""
    return make_one_file(path, made_of, work, AAC)
