"""Make an M4B: one file with chapter marks, cover and tags, spliced from encoded chapters.

The boxes (ISO/IEC 14496-12) are written here: FFmpeg's muxer keeps about seventy bytes for each
frame, 400 MB for a book of forty hours, and cannot write all tags; here a frame costs four bytes.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workers.book_files.book_audio import BookAudio, BookFacts, BookFileError, tag_text
from workers.book_files.chapter_encodes import (
    PRIMING_FRAMES,
    AacFrames,
    ChapterFile,
    Encoder,
    Encoding,
)
from workers.book_files.chapter_mastering import FRAME_SAMPLES
from workers.book_files.cover import CoverImage, book_cover
from workers.book_files.publishing import publish_file

_UTF8, _JPEG, _PNG, _INTEGER = 1, 13, 14, 21
_AUDIOBOOK = 2
_MAX_NERO_CHAPTERS = 255  # the list has one byte for their number; the text track has them all
_MAX_NERO_TITLE = 255


def tag_texts(facts: BookFacts) -> dict[bytes, str]:
    """Return the texts of a book by the four bytes of their box; empty ones are left out."""
    author, narrator = ", ".join(facts.authors), ", ".join(facts.narrators)
    found = {
        b"\xa9nam": facts.title,
        b"\xa9alb": facts.title,
        b"\xa9ART": author,
        b"aART": author,
        b"\xa9wrt": narrator,  # players for audiobooks look for the narrator in the composer
        b"\xa9nrt": narrator,
        b"\xa9gen": ", ".join(facts.genres) or "Audiobook",
        b"\xa9day": facts.date,
        b"desc": facts.description,
        b"ldes": facts.description,
        b"\xa9cmt": facts.description,
        b"tvsh": facts.series,
        b"tven": facts.series_index if facts.series else "",
        b"\xa9grp": _series_line(facts),
        b"\xa9pub": facts.publisher,
        b"cprt": facts.rights,
    }
    return {name: tag_text(text) for name, text in found.items() if text}


def free_texts(facts: BookFacts) -> dict[str, str]:
    """Return what has no box of its own, by the names that Audiobookshelf looks for."""
    found = {
        "SUBTITLE": facts.subtitle,
        "SERIES": facts.series,
        "SERIES-PART": facts.series_index if facts.series else "",
        "PUBLISHER": facts.publisher,
        "LANGUAGE": facts.language,
        "ISBN": facts.isbn,
        "ASIN": facts.asin,
    }
    return {name: tag_text(text) for name, text in found.items() if text}


def user_data(
    facts: BookFacts, cover: CoverImage | None, marks: Sequence[tuple[float, str]]
) -> Pieces:
    """Return the `udta` box: tags, cover, and chapters as (seconds, title) for old players."""
    items = [box(name, _data(_UTF8, text.encode())) for name, text in tag_texts(facts).items()]
    items += [_free(name, text) for name, text in free_texts(facts).items()]
    items.append(box(b"stik", _data(_INTEGER, bytes([_AUDIOBOOK]))))
    items.append(box(b"pgap", _data(_INTEGER, b"\1")))
    if cover is not None:
        kind = _PNG if cover.media_type == "image/png" else _JPEG
        items.append(box(b"covr", _data(kind, cover.content)))
    handler = full_box(b"hdlr", bytes(4), b"mdirappl", bytes(9))
    meta = full_box(b"meta", handler, box(b"ilst", *items))
    return box(b"udta", meta, _nero_chapters(marks))


def _series_line(facts: BookFacts) -> str:
    if facts.series and facts.series_index:
        return f"{facts.series} #{facts.series_index}"
    return facts.series


def _data(kind: int, content: bytes) -> Pieces:
    return box(b"data", struct.pack(">II", kind, 0), content)


def _free(name: str, text: str) -> Pieces:
    mean = full_box(b"mean", b"com.apple.iTunes")
    return box(b"----", mean, full_box(b"name", name.encode()), _data(_UTF8, text.encode()))


def _nero_chapters(marks: Sequence[tuple[float, str]]) -> Pieces:
    listed = marks[:_MAX_NERO_CHAPTERS]
    rows = []
    for seconds, title in listed:
        name = tag_text(title).encode()[:_MAX_NERO_TITLE].decode(errors="ignore").encode()
        rows.append(struct.pack(">QB", round(seconds * 10_000_000), len(name)) + name)
    head = struct.pack(">4xB", len(listed))
    return full_box(b"chpl", head, *rows, version=1)


_CHUNK_FRAMES = 64  # about 1.5 s: what a player reads at once
_TITLE_ENCODING = bytes.fromhex("0000000c656e636400000100")  # says that a title is in UTF-8
_MAX_TITLE_BYTES = 2**15  # with what follows it, its size still has 16 bits


class Mark(NamedTuple):
    """Hold a chapter's place in a file, in samples."""

    title: str
    start: int
    end: int


def write_mp4(
    path: Path,
    chapters: Sequence[ChapterFile],
    facts: BookFacts,
    cover: CoverImage | None,
    *,
    brand: bytes = b"M4B ",
) -> list[Mark]:
    """Write the chapters, one after the other, to a new file, and return where they lie.

    Each chapter's priming is left out but the first's: what it would hold are the last samples of
    the chapter before it, which are room tone.

    Raises:
        OSError: the disk is full.
        BookFileError: `no_chapters`, or `mixed_encodes` where chapters cannot share one track.
    """
    rate, config = _one_setup(chapters)
    marks = marks_of(chapters)
    sizes = np.concatenate([_kept_sizes(chapter, index) for index, chapter in enumerate(chapters)])
    presented = marks[-1].end
    titles = [_title_sample(mark.title) for mark in marks]
    media_bytes = sum(map(len, titles)) + int(sizes.sum(dtype=np.int64))
    sound = _sound(sizes, rate)
    text = _text(titles, marks, rate)
    bit_rate = int(8 * int(sizes.sum(dtype=np.int64)) * rate // max(1, presented))
    tags = user_data(facts, cover, [(mark.start / rate, mark.title) for mark in marks])

    def index(start: int) -> Pieces:
        """Return the index of a file whose media begins at byte `start`."""
        first = start + sum(map(len, titles))
        return movie(
            rate,
            presented,
            sound_track(
                sound._replace(offsets=sound.offsets + first),
                config=config,
                bit_rate=bit_rate,
                priming=PRIMING_FRAMES * FRAME_SAMPLES,
                presented=presented,
                chapters=True,
            ),
            text_track(text._replace(offsets=text.offsets + start)),
            tags=tags,
        )

    head = box(b"ftyp", brand, struct.pack(">I", 0x200), brand, b"M4A mp42isom")
    moov = _settle_index(index, sum(map(len, head)))
    with path.open("wb") as file:
        file.writelines(head)
        file.writelines(moov)
        file.write(mdat_header(media_bytes))
        file.writelines(titles)
        for number, chapter in enumerate(chapters):
            with chapter.path.open("rb") as frames:
                frames.seek(_skipped_bytes(chapter, number))
                shutil.copyfileobj(frames, file, 1 << 20)
    return marks


def _settle_index(index: Callable[[int], Pieces], head: int) -> Pieces:
    """Return the index for where the media begins, which depends on the index's own length."""
    start = 0
    for _ in range(4):  # its length changes once at most: where offsets begin to need 64 bits
        moov = index(start)
        start, before = head + sum(map(len, moov)) + len(mdat_header(0)), start
        if start == before:
            return moov
    raise AssertionError("the length of an index never settled")


def _one_setup(chapters: Sequence[ChapterFile]) -> tuple[int, bytes]:
    """Return the rate and the codec's configuration that all chapters share."""
    if not chapters:
        raise BookFileError("no_chapters", "The book has no chapter to make a file from.")
    setups = {(one.sample_rate, one.aac.config if one.aac else b"") for one in chapters}
    if len(setups) != 1:
        raise BookFileError(
            "mixed_encodes", "The chapters were encoded in different ways: encode them again."
        )
    return setups.pop()


def marks_of(chapters: Sequence[ChapterFile]) -> list[Mark]:
    """Return where chapters lie that follow each other."""
    marks, start = [], 0
    for chapter in chapters:
        end = start + chapter.num_samples
        marks.append(Mark(chapter.title, start, end))
        start = end
    return marks


def _frames_of(chapter: ChapterFile) -> AacFrames:
    assert chapter.aac is not None
    return chapter.aac


def _kept_sizes(chapter: ChapterFile, index: int) -> npt.NDArray[np.uint16]:
    sizes = _frames_of(chapter).sizes
    expected = PRIMING_FRAMES + chapter.num_samples // FRAME_SAMPLES
    if len(sizes) != expected:
        raise BookFileError(
            "mixed_encodes", f"The encode of chapter {index + 1} is damaged: encode it again."
        )
    return sizes if index == 0 else sizes[PRIMING_FRAMES:]


def _skipped_bytes(chapter: ChapterFile, index: int) -> int:
    sizes = _frames_of(chapter).sizes[:PRIMING_FRAMES]
    return 0 if index == 0 else int(sizes.sum(dtype=np.int64))


def _sound(sizes: npt.NDArray[np.uint16], rate: int) -> Track:
    """Return the sound's layout; offsets count from its first byte."""
    count = len(sizes)
    whole, rest = divmod(count, _CHUNK_FRAMES)
    chunks = [(1, _CHUNK_FRAMES)] if whole else []
    if rest:
        chunks.append((whole + 1, rest))
    lengths = np.add.reduceat(sizes, np.arange(0, count, _CHUNK_FRAMES), dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return Track(rate, count * FRAME_SAMPLES, [(count, FRAME_SAMPLES)], sizes, chunks, starts)


def _text(titles: Sequence[bytes], marks: Sequence[Mark], rate: int) -> Track:
    """Return the layout of the titles, each a chunk of its own at the file's first bytes."""
    sizes = np.array([len(title) for title in titles], np.uint16)
    starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)[:-1]))
    steps = [(1, mark.end - mark.start) for mark in marks]
    return Track(rate, marks[-1].end, steps, sizes, [(1, 1)], starts)


def _title_sample(title: str) -> bytes:
    text = tag_text(title).encode()[:_MAX_TITLE_BYTES].decode(errors="ignore").encode()
    return struct.pack(">H", len(text)) + text + _TITLE_ENCODING


class MadeBook(NamedTuple):
    """Hold what became of a book: its chapters as encoded, and where they lie in the file."""

    path: Path
    chapters: list[ChapterFile]
    marks: list[Mark]
    sample_rate: int


def make_m4b(
    path: Path, book: BookAudio, encoder: Encoder, encoding: Encoding | None = None
) -> MadeBook:
    """Encode what was not encoded before, then write the book to `path` at once.

    New tags, another cover or title encode nothing: only the file is written.

    Raises:
        OSError: the disk is full; what was at `path` before is still there.
        BookFileError: the cover cannot be used, or there is no chapter.
        EncodeUnwantedError: nobody waits for it any more.
    """
    cover = book_cover(book.cover, book.facts)
    chapters = list(encoder.chapters(book, encoding or Encoding("aac")))
    with publish_file(path) as temporary:
        marks = write_mp4(temporary, chapters, book.facts, cover)
    return MadeBook(path, chapters, marks, chapters[0].sample_rate)


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
