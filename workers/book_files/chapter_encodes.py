"""Encode a book's chapters one by one, measured on what was written; what is known is reused."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import time
import uuid
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import numpy.typing as npt

from synth.audio.filters import WaveformPeaks
from synth.audio.writers import open_writer, read_blocks
from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS
from ttsweb.storage import TEMPORARY_SUFFIX
from workers.book_files.book_audio import BookAudio, SegmentSpan
from workers.book_files.chapter_mastering import (
    FRAME_SAMPLES,
    Level,
    Levels,
    MasteredChapter,
    Mastering,
    adjusted,
    first_level,
    measure_levels,
)

PRIMING_FRAMES = 1  # the encoder's first frame holds what comes before the first sample


@dataclass(frozen=True, slots=True)
class AacFrames:
    """Say what a file of bare frames holds: their sizes in bytes, the codec's configuration.

    The first frame is the priming; the others hold `FRAME_SAMPLES` samples each.
    """

    config: bytes
    sizes: npt.NDArray[np.uint16]

    def to_json(self) -> dict[str, Any]:
        sizes = base64.b64encode(self.sizes.astype("<u2").tobytes()).decode()
        return {"config": self.config.hex(), "sizes": sizes}

    @staticmethod
    def from_json(values: dict[str, Any]) -> AacFrames:
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
        for frame in chain(_frames(blocks, sample_rate), (None,)):
            for packet in encoder.encode(frame):
                sizes.append(packet.size)
                file.write(bytes(packet))
    return AacFrames(bytes(encoder.extradata), np.frombuffer(sizes, dtype=np.uint16))


def read_aac(path: Path, frames: AacFrames, sample_rate: int) -> Iterator[AudioArray]:
    """Yield the samples that players hear, float32 [n], about a second at a time."""
    decoder: Any = av.CodecContext.create("aac", "r")
    decoder.extradata = frames.config
    decoder.sample_rate, decoder.layout = sample_rate, "mono"
    decoder.open()
    held: list[AudioArray] = []
    is_priming = True
    with path.open("rb") as file:
        for size in frames.sizes:
            for frame in decoder.decode(av.Packet(file.read(int(size)))):
                if not is_priming:
                    held.append(frame.to_ndarray()[0].astype(np.float32))
                is_priming = False
            if len(held) >= 64:
                yield np.concatenate(held)
                held.clear()
    if held:
        yield np.concatenate(held)


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


@contextmanager
def publish_file(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`, which gets the file if nothing went wrong.

    Raises:
        OSError: there is no room for it; what was at `path` before is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


_KEY = re.compile(r"[0-9a-f]{64}")
_UNFINISHED_SECONDS = 86_400
_MAX_CACHE_BYTES = 20 * 2**30


class EncodeCache:
    """Keep files and their facts in a folder, least recently used out first.

    Entries appear whole: the facts are written last, and an entry without them does not count.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
        oldest = time.time() - _UNFINISHED_SECONDS
        rows = []
        for path in self._folder.glob("*/*"):
            facts = path.with_suffix(".json")
            with suppress(FileNotFoundError):  # somebody else removes it in this moment
                if path == facts:
                    file = path.with_suffix("")
                    size = file.stat().st_size if file.exists() else 0
                    rows.append((path.stat().st_mtime_ns, size, path))
                elif not (path.suffix or facts.exists()) and path.stat().st_mtime < oldest:
                    path.unlink()
        total = sum(size for _, size, _ in rows)
        for _, size, facts in sorted(rows):
            if total <= _MAX_CACHE_BYTES:
                return
            if facts.stem not in self._in_use:
                facts.unlink(missing_ok=True)
                facts.with_suffix("").unlink(missing_ok=True)
                total -= size


_VERSION = 2  # of what is done to a chapter: a change makes all kept encodes stale
_MAX_WRITES = 4
MAX_PEAKS = 1000  # of a chapter, for a waveform


@dataclass(frozen=True, slots=True)
class Encoding:
    """Say how chapters are encoded; None takes the format's usual rates.

    `bit_rate` in bits per second, `sample_rate` in Hz.
    """

    format: str
    bit_rate: int | None = None
    sample_rate: int | None = None


class ChapterFile(NamedTuple):
    """Hold a finished encode: `levels` were measured on it, `spans` lie in its samples.

    `aac` is of that format alone; `gain_db` and `limiter_db` say what mastering did; `peaks` are
    at most `MAX_PEAKS` levels of equal parts, 0 to 255; `place` is the chapter's in its book.
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
    peaks: Sequence[int]
    place: int


class EncodeUnwantedError(Exception):
    """The file was deleted or taken over while it was made."""


class Encoder:
    """Encode chapters with one mastering; `encoded` and `reused` count what was done.

    `is_unwanted` is asked while audio is read; true stops the work with `EncodeUnwantedError`.
    """

    def __init__(
        self, cache: EncodeCache, mastering: Mastering, *, is_unwanted: Callable[[], bool]
    ) -> None:
        self.encoded = self.reused = 0
        self.cache, self.mastering, self._is_unwanted = cache, mastering, is_unwanted

    def chapters(self, book: BookAudio, encoding: Encoding) -> Iterator[ChapterFile]:
        """Yield a book's chapters in order, encoded where that was not done before.

        Raises:
            OSError: the disk is full; nothing half made is left.
            EncodeUnwantedError: nobody waits for it any more.
        """
        for number in range(len(book.chapters)):
            yield self.chapter(book, number, encoding)

    def chapter(self, book: BookAudio, number: int, encoding: Encoding) -> ChapterFile:
        """Return one chapter; see `chapters`."""
        chapter = book.chapters[number]
        rate = encoding.sample_rate or BOOK_FORMATS[encoding.format].book_rate(book.sample_rate)
        mastered = MasteredChapter(book, chapter, self.mastering, rate)
        # All that decides how the file comes out.
        parts = (
            _VERSION,
            av.library_versions,
            chapter.content_key,
            mastered.gains_db,
            asdict(self.mastering),
            asdict(encoding),
            (book.sample_rate, rate),
        )
        key = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        facts = self.cache.facts(key)
        if facts is None:
            facts = self._encode(key, mastered, encoding)
            self.encoded += 1
        else:
            self.reused += 1
        return ChapterFile(
            title=chapter.title,
            path=self.cache.path(key),
            sample_rate=rate,
            num_samples=facts["num_samples"],
            levels=Levels(**facts["levels"]),
            gain_db=facts["gain_db"],
            limiter_db=facts["limiter_db"],
            spans=mastered.spans(),
            aac=AacFrames.from_json(facts["aac"]) if "aac" in facts else None,
            peaks=facts["peaks"],
            place=chapter.index,
        )

    def _encode(self, key: str, mastered: MasteredChapter, encoding: Encoding) -> dict[str, Any]:
        """Write a chapter until its file measures as asked, or cannot; return its facts."""
        survey = mastered.survey()
        length = mastered.num_samples(survey.num_samples)
        level = first_level(survey, mastered)
        with publish_file(self.cache.path(key)) as path:
            for _ in range(_MAX_WRITES):
                facts = self._write(path, mastered, length, level, encoding)
                written = Levels(**facts["levels"])
                # FFmpeg may not say that a disk is full: what was read back does.
                if written.num_samples < length - FRAME_SAMPLES:
                    raise OSError(errno.ENOSPC, "the encode was cut short")
                better = adjusted(level, self.mastering, written)
                if better is None or survey.loudness_lufs is None:
                    break
                level = better
        facts |= {"gain_db": round(level.gain_db, 2), "limiter_db": level.limiter_db}
        return self.cache.finish(key, facts)

    def _write(
        self, path: Path, mastered: MasteredChapter, length: int, level: Level, encoding: Encoding
    ) -> dict[str, Any]:
        """Write a chapter once; return what can be read back, with its levels and waveform."""
        rate, form = mastered.file_rate, encoding.format
        blocks = self.stop_if_unwanted(mastered.blocks(length, level))
        bit_rate, known = encoding.bit_rate, BOOK_FORMATS[form].bit_rates
        if known is not None:
            bit_rate = min(bit_rate or known.of_books, known.most(rate))
        path.unlink(missing_ok=True)
        facts: dict[str, Any] = {"num_samples": length}
        if form == "aac":
            assert bit_rate is not None
            aac = write_aac(path, blocks, rate, bit_rate=bit_rate)
            facts["aac"] = aac.to_json()
            read = read_aac(path, aac, rate)
        else:
            with open_writer(path, form, rate, bit_rate) as writer:
                for block in blocks:
                    writer.write(block)
            read = read_blocks(path, form, rate)
        wave = WaveformPeaks(length, most=MAX_PEAKS)
        levels = measure_levels(self.stop_if_unwanted(read, wave), rate)
        return facts | {"levels": asdict(levels), "peaks": wave.values()}

    def stop_if_unwanted(
        self, blocks: Iterable[AudioArray], wave: WaveformPeaks | None = None
    ) -> Iterator[AudioArray]:
        """Yield the blocks, and note their waveform.

        Raises:
            EncodeUnwantedError: nobody waits for the file any more.
        """
        for block in blocks:
            if self._is_unwanted():
                raise EncodeUnwantedError
            if wave is not None:
                wave.push(block)
            yield block
