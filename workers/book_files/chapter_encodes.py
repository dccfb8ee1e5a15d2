"""Encode a book's chapters one by one, measured on what was written; what is known is reused."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import re
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import numpy.typing as npt

from synth.contract import AudioArray
from synth.formats import BOOK_FILES, BOOK_FORMATS
from workers.audio.clips import WaveformPeaks
from workers.audio.writers import open_writer, read_blocks
from workers.book_files.book_audio import BookAudio, SegmentSpan
from workers.book_files.chapter_mastering import (
    FRAME_SAMPLES,
    Level,
    Levels,
    MasteredChapter,
    Mastering,
    Survey,
    adjusted,
    first_level,
    measure_levels,
)
from workers.book_files.publishing import publish_file

PRIMING_FRAMES = 1  # the encoder's first frame holds what comes before the first sample


@dataclass(frozen=True, slots=True)
class AacFrames:
    """Say what a file of bare frames holds: their sizes in bytes, the codec's configuration.

    The first frame is the priming; the others hold `FRAME_SAMPLES` samples each.
    """

    config: bytes
    sizes: npt.NDArray[np.uint16]

    def to_json(self) -> dict[str, Any]:
        """Return this as values that JSON can hold."""
        sizes = base64.b64encode(self.sizes.astype("<u2").tobytes()).decode()
        return {"config": self.config.hex(), "sizes": sizes}

    @staticmethod
    def from_json(values: dict[str, Any]) -> AacFrames:
        """Return what `to_json` was made of."""
        sizes = np.frombuffer(base64.b64decode(values["sizes"]), dtype="<u2")
        return AacFrames(bytes.fromhex(values["config"]), sizes.astype(np.uint16))


def write_aac(
    path: Path, blocks: Iterable[AudioArray], sample_rate: int, *, bit_rate: int
) -> AacFrames:
    """Encode mono audio of whole frames into a new file.

    Args:
        bit_rate: bits per second.

    Raises:
        OSError: the disk is full.
    """
    encoder: Any = av.CodecContext.create("aac", "w")
    encoder.sample_rate, encoder.layout, encoder.format = sample_rate, "mono", "fltp"
    encoder.bit_rate = bit_rate
    # Without a global header every frame would stand alone as ADTS-less data without its setup.
    encoder.flags |= av.codec.context.Flags.global_header
    # Four times as fast as FFmpeg's usual search and, for one voice at 48 kbit/s or more, nearer
    # to what was said: by 6 dB at 64 kbit/s (docs/benchmarks.md).
    encoder.options = {"aac_coder": "fast"}
    encoder.open()
    sizes = array("H")  # a list would take thirty bytes for each
    with path.open("wb") as file:
        for frame in _frames(blocks, sample_rate):
            _append(file, sizes, encoder.encode(frame))
        _append(file, sizes, encoder.encode(None))
    return AacFrames(bytes(encoder.extradata), np.frombuffer(sizes, dtype=np.uint16))


def read_aac(path: Path, frames: AacFrames, sample_rate: int) -> Iterator[AudioArray]:
    """Yield the samples that players hear, float32 [n], about a second at a time."""
    decoder: Any = av.CodecContext.create("aac", "r")
    decoder.extradata = frames.config
    decoder.sample_rate, decoder.layout = sample_rate, "mono"
    decoder.open()
    held: list[AudioArray] = []
    skipped = PRIMING_FRAMES
    with path.open("rb") as file:
        for size in frames.sizes:
            for frame in decoder.decode(av.Packet(file.read(int(size)))):
                if skipped:
                    skipped -= 1
                    continue
                held.append(frame.to_ndarray()[0].astype(np.float32))
                if len(held) == 64:
                    yield np.concatenate(held)
                    held.clear()
    if held:
        yield np.concatenate(held)


def _append(file: Any, sizes: array[int], packets: Iterable[Any]) -> None:
    for packet in packets:
        sizes.append(packet.size)
        file.write(bytes(packet))


def _frames(blocks: Iterable[AudioArray], sample_rate: int) -> Iterator[av.AudioFrame]:
    """Yield frames of exactly `FRAME_SAMPLES`, cut to full scale."""
    rest: AudioArray = np.empty(0, np.float32)
    position = 0
    for block in blocks:
        held = np.clip(np.concatenate((rest, block)), -1.0, 1.0).astype(np.float32)
        count = len(held) // FRAME_SAMPLES
        for row in held[: count * FRAME_SAMPLES].reshape(count, 1, FRAME_SAMPLES):
            frame = av.AudioFrame.from_ndarray(row, "fltp", "mono")
            frame.sample_rate, frame.pts = sample_rate, position
            position += FRAME_SAMPLES
            yield frame
        rest = held[count * FRAME_SAMPLES :]
    assert not len(rest), "a chapter is whole frames"


_KEY = re.compile(r"[0-9a-f]{64}")
_UNFINISHED_SECONDS = 86_400


class EncodeCache:
    """Keep files and their facts in a folder, least recently used out first.

    Entries appear whole: the facts are written last, and an entry without them does not count.
    """

    def __init__(self, folder: Path, *, max_bytes: int = 20 * 2**30) -> None:
        """Prepare; `trim` brings the folder below `max_bytes`."""
        self._folder, self._max_bytes = folder, max_bytes
        self._in_use: set[str] = set()

    def path(self, key: str) -> Path:
        """Return where the file of a key lies, or is to be published.

        Raises:
            ValueError: the key is no sha256 in hex.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"no key of an encode: {key!r}")
        return self._folder / key[:2] / key

    def facts(self, key: str) -> dict[str, Any] | None:
        """Return the facts of a finished encode; None where there is none, or it is damaged."""
        path = self.path(key)
        try:
            facts: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
            if path.stat().st_size != facts["size_bytes"]:
                return None
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        path.with_suffix(".json").touch()
        self._in_use.add(key)
        return facts

    def finish(self, key: str, facts: dict[str, Any]) -> dict[str, Any]:
        """Complete an entry whose file was published, and return its facts.

        Raises:
            OSError: the disk is full.
        """
        path = self.path(key)
        facts = {**facts, "size_bytes": path.stat().st_size}
        with publish_file(path.with_suffix(".json")) as temporary:
            temporary.write_text(json.dumps(facts))
        self._in_use.add(key)
        return facts

    def trim(self) -> None:
        """Remove the entries used longest ago, but none that this object has handed out.

        Files that a killed process left without facts go after a day.
        """
        rows = []
        oldest = time.time() - _UNFINISHED_SECONDS
        for path in self._folder.glob("*/*"):
            is_finished = path.suffix or path.with_suffix(".json").exists()
            with suppress(FileNotFoundError):  # somebody else removes it in this moment
                if not is_finished and path.stat().st_mtime < oldest:
                    path.unlink()
        for facts in self._folder.glob("*/*.json"):
            size = facts.with_suffix("").stat().st_size if facts.with_suffix("").exists() else 0
            rows.append((facts.stat().st_mtime_ns, size, facts))
        total = sum(size for _, size, _ in rows)
        for _, size, facts in sorted(rows):
            if total <= self._max_bytes:
                return
            if facts.stem not in self._in_use:
                facts.unlink(missing_ok=True)
                facts.with_suffix("").unlink(missing_ok=True)
                total -= size


_VERSION = 2  # of what is done to a chapter: a change makes all kept encodes stale
_MAX_WRITES = 4
MAX_PEAKS = 1000  # of a chapter, for a waveform
_FORMATS = {one.chapters_as for one in BOOK_FILES.values()}


@dataclass(frozen=True, slots=True)
class Encoding:
    """Say how chapters are encoded; None takes the format's usual rates.

    `bit_rate` in bits per second, `sample_rate` in Hz.
    """

    format: str
    bit_rate: int | None = None
    sample_rate: int | None = None

    def __post_init__(self) -> None:
        """Check the format.

        Raises:
            ValueError: there is no such format.
        """
        if self.format not in _FORMATS:
            raise ValueError(f"no such format of chapters: {self.format!r}")


class ChapterFile(NamedTuple):
    """Hold a finished encode: `levels` were measured on it, `spans` lie in its samples.

    `aac` is of that format alone; `gain_db` and `limiter_db` say what mastering did; `peaks` are
    at most `MAX_PEAKS` levels of equal parts, 0 to 255.
    """

    title: str
    path: Path
    sample_rate: int
    num_samples: int
    levels: Levels
    gain_db: float
    limiter_db: float
    spans: list[SegmentSpan]
    aac: AacFrames | None
    peaks: Sequence[int] = ()


class Encoder:
    """Encode chapters with one mastering; `encoded` and `reused` count what was done.

    `is_unwanted` is asked while audio is read; true stops the work with `EncodeUnwantedError`.
    """

    def __init__(
        self,
        cache: EncodeCache,
        mastering: Mastering,
        *,
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare to encode into a cache."""
        self.encoded = self.reused = 0
        self._cache, self._mastering, self._is_unwanted = cache, mastering, is_unwanted

    def chapters(self, book: BookAudio, encoding: Encoding) -> Iterator[ChapterFile]:
        """Yield a book's chapters in order, encoded where that was not done before.

        Raises:
            OSError: the disk is full; nothing half made is left.
            EncodeUnwantedError: nobody waits for it any more.
        """
        for index in range(len(book.chapters)):
            yield self.chapter(book, index, encoding)

    def chapter(self, book: BookAudio, index: int, encoding: Encoding) -> ChapterFile:
        """Return one chapter; see `chapters`."""
        rate = encoding_rate(book.sample_rate, encoding)
        mastered = self._master_chapter(book, index, rate)
        chapter, survey = book.chapters[index], None
        content = chapter.content_key
        if not content:
            survey = mastered.survey()
            content = survey.digest
        key = self._key(book, index, content, encoding, rate)
        facts = self._cache.facts(key)
        if facts is None:
            survey = survey or mastered.survey()
            facts = self._encode(key, mastered, survey, encoding)
            self.encoded += 1
        else:
            self.reused += 1
        return ChapterFile(
            title=chapter.title,
            path=self._cache.path(key),
            sample_rate=rate,
            num_samples=facts["num_samples"],
            levels=Levels(**facts["levels"]),
            gain_db=facts["gain_db"],
            limiter_db=facts["limiter_db"],
            spans=mastered.spans(),
            aac=AacFrames.from_json(facts["aac"]) if "aac" in facts else None,
            peaks=facts["peaks"],
        )

    def _master_chapter(self, book: BookAudio, index: int, rate: int) -> MasteredChapter:
        return MasteredChapter(
            book.chapters[index],
            self._mastering,
            sample_rate=book.sample_rate,
            file_rate=rate,
            voice_gains_db=book.voice_gains_db,
        )

    def _key(self, book: BookAudio, index: int, content: str, encoding: Encoding, rate: int) -> str:
        """Return the digest of all that decides how a chapter's file comes out."""
        gains = [
            (span.start, span.end, book.voice_gains_db[span.voice])
            for span in book.chapters[index].segments
            if book.voice_gains_db.get(span.voice, 0.0)
        ]
        parts = (
            _VERSION,
            av.library_versions,
            content,
            gains,
            self._mastering.to_json(),
            asdict(encoding),
            (book.sample_rate, rate),
        )
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _encode(
        self, key: str, mastered: MasteredChapter, survey: Survey, encoding: Encoding
    ) -> dict[str, Any]:
        """Write a chapter until its file measures as asked, or cannot; return its facts."""
        level = first_level(survey, mastered)
        with publish_file(self._cache.path(key)) as path:
            for _ in range(_MAX_WRITES):
                written, peaks, aac = self._write(path, mastered, survey, level, encoding)
                _check_whole(written.num_samples, mastered.num_samples(survey.num_samples))
                better = adjusted(level, self._mastering, written)
                if better is None or survey.levels.loudness_lufs is None:
                    break
                level = better
        facts: dict[str, Any] = {
            "num_samples": mastered.num_samples(survey.num_samples),
            "levels": written.to_json(),
            "gain_db": round(level.gain_db, 2),
            "limiter_db": level.limiter_db,
            "peaks": peaks,
        }
        if aac is not None:
            facts["aac"] = aac.to_json()
        return self._cache.finish(key, facts)

    def _write(
        self,
        path: Path,
        mastered: MasteredChapter,
        survey: Survey,
        level: Level,
        encoding: Encoding,
    ) -> tuple[Levels, list[int], AacFrames | None]:
        """Write a chapter once and measure what can be read back, and its waveform."""
        wave = WaveformPeaks(mastered.num_samples(survey.num_samples), most=MAX_PEAKS)
        rate, form = mastered.file_rate, encoding.format
        blocks = self._stop_if_unwanted(mastered.blocks(survey, level))
        bit_rate, known = encoding.bit_rate, BOOK_FORMATS[form].bit_rates
        if known is not None:
            bit_rate = min(bit_rate or known.of_books, known.most(rate))
        path.unlink(missing_ok=True)
        if form == "aac":
            assert bit_rate is not None
            aac = write_aac(path, blocks, rate, bit_rate=bit_rate)
            read = _note_peaks(wave, self._stop_if_unwanted(read_aac(path, aac, rate)))
            return measure_levels(read, rate), wave.values(), aac
        with open_writer(path, form, rate, bit_rate) as writer:
            for block in blocks:
                writer.write(block)
        read = _note_peaks(wave, self._stop_if_unwanted(read_blocks(path, form, rate)))
        return measure_levels(read, rate), wave.values(), None

    def _stop_if_unwanted(self, blocks: Iterable[AudioArray]) -> Iterator[AudioArray]:
        for block in blocks:
            if self._is_unwanted():
                raise EncodeUnwantedError
            yield block


def _note_peaks(wave: WaveformPeaks, blocks: Iterable[AudioArray]) -> Iterator[AudioArray]:
    for block in blocks:
        wave.push(block)
        yield block


def _check_whole(found: int, expected: int) -> None:
    """FFmpeg may not say that a disk is full: what was read back does."""
    if found < expected - FRAME_SAMPLES:
        raise OSError(errno.ENOSPC, "the encode was cut short")


class EncodeUnwantedError(Exception):
    """The file was deleted or taken over while it was made."""


def encoding_rate(sample_rate: int, encoding: Encoding) -> int:
    """Return the rate in Hz of a book's files: the audio's own where the format can hold it."""
    if encoding.sample_rate is not None:
        return encoding.sample_rate
    return BOOK_FORMATS[encoding.format].book_rate(sample_rate)
