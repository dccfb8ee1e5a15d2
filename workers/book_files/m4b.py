"""Write an M4B: one file with chapter marks, cover and tags, spliced from encoded chapters.

The boxes (ISO/IEC 14496-12) are written here: FFmpeg's muxer keeps about seventy bytes for each
frame, 400 MB for a book of forty hours, and cannot write all tags; here a frame costs four bytes.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from typing import IO, NamedTuple

import numpy as np
import numpy.typing as npt

from synth.books.book import Cover
from workers.book_files.book_audio import BookFacts, BookFileError, book_tags, tag_text
from workers.book_files.chapter_encodes import PRIMING_FRAMES, ChapterFile
from workers.book_files.chapter_mastering import FRAME_SAMPLES

_UTF8, _JPEG, _PNG, _INTEGER = 1, 13, 14, 21
_AUDIOBOOK = 2
_MAX_NERO_CHAPTERS = 255  # the list has one byte for their number; the text track has them all
_MAX_NERO_TITLE = 255
_CHUNK_FRAMES = 64  # about 1.5 s: what a player reads at once
_TITLE_ENCODING = bytes.fromhex("0000000c656e636400000100")  # says that a title is in UTF-8
_MAX_TITLE_BYTES = 2**15  # with what follows it, its size still has 16 bits
_LANGUAGE_UNDEFINED = 0x55C4  # "und"
_MATRIX = struct.pack(">9i", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
SOUND_TRACK, TEXT_TRACK = 1, 2

Pieces = list[bytes | memoryview]
Content = bytes | Pieces


class Mark(NamedTuple):
    """Hold a chapter's place in a file, in samples."""

    title: str
    start: int
    end: int


def marks_of(chapters: Sequence[ChapterFile]) -> list[Mark]:
    """Return where chapters lie that follow each other."""
    marks, start = [], 0
    for chapter in chapters:
        marks.append(Mark(chapter.title, start, start + chapter.num_samples))
        start += chapter.num_samples
    return marks


class Track(NamedTuple):
    """Say how a track's samples lie in the file; `steps` are in units of the sample rate.

    `steps` are runs of (samples, units of each); `chunks` runs of (first chunk, samples in each).
    `offsets` are the chunks' first bytes, from the first byte of the track's media.
    """

    steps: Sequence[tuple[int, int]]
    sizes: npt.NDArray[np.uint16]
    chunks: Sequence[tuple[int, int]]
    offsets: npt.NDArray[np.int64]


def write_mp4(
    file: IO[bytes],
    chapters: Sequence[ChapterFile],
    facts: BookFacts,
    cover: Cover | None,
    *,
    brand: bytes = b"M4B ",
) -> None:
    """Write the chapters, one after the other, to an empty file; they lie in it as `marks_of` says.

    Each chapter's priming is left out but the first's: what it would hold are the last samples of
    the chapter before it, which are room tone.

    Raises:
        OSError: the disk is full.
        BookFileError: `mixed_encodes`, the chapters cannot share one track.
    """
    sizes = _frame_sizes(chapters)
    rate, marks = chapters[0].sample_rate, marks_of(chapters)
    texts = [_cut_utf8(mark.title, _MAX_TITLE_BYTES) for mark in marks]
    titles = [struct.pack(">H", len(text)) + text + _TITLE_ENCODING for text in texts]
    title_bytes = sum(map(len, titles))
    sound, text = _sound(sizes), _text(titles, marks)
    tags = user_data(facts, cover, [(mark.start / rate, mark.title) for mark in marks])

    def index(start: int) -> Pieces:
        """Return the index of a file whose media begins at byte `start`."""
        audio = sound._replace(offsets=sound.offsets + start + title_bytes)
        return _movie(chapters[0], audio, text._replace(offsets=text.offsets + start), marks, tags)

    media_bytes = title_bytes + int(sizes.sum(dtype=np.int64))
    # Always the long form, so that its size is known.
    media_head = struct.pack(">I4sQ", 1, b"mdat", 16 + media_bytes)
    head = box(b"ftyp", brand, struct.pack(">I", 0x200), brand, b"M4A mp42isom")
    moov = _settle_index(index, sum(map(len, head)) + len(media_head))
    for pieces in (head, moov, [media_head], titles):
        file.writelines(pieces)
    for number, chapter in enumerate(chapters):
        with chapter.path.open("rb") as frames:
            if number and chapter.aac is not None:
                frames.seek(int(chapter.aac.sizes[:PRIMING_FRAMES].sum(dtype=np.int64)))
            shutil.copyfileobj(frames, file, 1 << 20)


def _settle_index(index: Callable[[int], Pieces], around: int) -> Pieces:
    """Return the index for where the media begins, which depends on the index's own length."""
    start = 0
    for _ in range(4):  # its length changes once at most: where offsets begin to need 64 bits
        moov = index(start)
        start, before = around + sum(map(len, moov)), start
        if start == before:
            return moov
    raise AssertionError("the length of an index never settled")


def _frame_sizes(chapters: Sequence[ChapterFile]) -> npt.NDArray[np.uint16]:
    """Return the sizes of all frames that go into one track, in bytes."""
    setups = {(one.sample_rate, one.aac.config if one.aac else b"") for one in chapters}
    if len(setups) != 1:
        raise BookFileError(
            "mixed_encodes", "The chapters were encoded in different ways: encode them again."
        )
    kept = []
    for number, chapter in enumerate(chapters):
        assert chapter.aac is not None
        sizes = chapter.aac.sizes
        if len(sizes) != PRIMING_FRAMES + chapter.num_samples // FRAME_SAMPLES:
            raise BookFileError(
                "mixed_encodes", f"The encode of chapter {number + 1} is damaged: encode it again."
            )
        kept.append(sizes[PRIMING_FRAMES if number else 0 :])
    return np.concatenate(kept)


def _sound(sizes: npt.NDArray[np.uint16]) -> Track:
    count = len(sizes)
    whole, rest = divmod(count, _CHUNK_FRAMES)
    chunks = [(1, _CHUNK_FRAMES)] if whole else []
    if rest:
        chunks.append((whole + 1, rest))
    lengths = np.add.reduceat(sizes, np.arange(0, count, _CHUNK_FRAMES), dtype=np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    return Track([(count, FRAME_SAMPLES)], sizes, chunks, starts)


def _text(titles: Sequence[bytes], marks: Sequence[Mark]) -> Track:
    """Return the layout of the titles, each a chunk of its own."""
    sizes = np.array([len(title) for title in titles], np.uint16)
    starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)[:-1]))
    return Track([(1, mark.end - mark.start) for mark in marks], sizes, [(1, 1)], starts)


def _cut_utf8(text: str, most: int) -> bytes:
    """Return a text as at most so many bytes, cut between characters."""
    return tag_text(text).encode()[:most].decode(errors="ignore").encode()


# The boxes of texts, by the names that FFmpeg gives to tags.
_TEXT_BOXES = {
    b"\xa9nam": "title",
    b"\xa9alb": "album",
    b"\xa9ART": "artist",
    b"aART": "album_artist",
    b"\xa9wrt": "composer",  # players for audiobooks look for the narrator there
    b"\xa9nrt": "composer",
    b"\xa9gen": "genre",
    b"\xa9day": "date",
    b"desc": "comment",
    b"ldes": "comment",
    b"\xa9cmt": "comment",
    b"tvsh": "series",
    b"tven": "series-part",
    b"\xa9grp": "grouping",
    b"\xa9pub": "publisher",
    b"cprt": "copyright",
}
# Those that have no box of their own have these names, which Audiobookshelf looks for.
_FREE_TEXTS = ("subtitle", "series", "series-part", "publisher", "language")


def user_data(facts: BookFacts, cover: Cover | None, marks: Sequence[tuple[float, str]]) -> Pieces:
    """Return the `udta` box: tags, cover, and chapters as (seconds, title) for old players."""
    tags = book_tags(facts)
    if facts.series:
        number = f" #{facts.series_index}" if facts.series_index else ""
        tags["grouping"] = tag_text(f"{facts.series}{number}")
    texts = {name: _data(_UTF8, text.encode()) for name, text in tags.items()}
    items = [box(kind, texts[name]) for kind, name in _TEXT_BOXES.items() if name in texts]
    mean = full_box(b"mean", b"com.apple.iTunes")
    items += [
        box(b"----", mean, full_box(b"name", name.upper().encode()), texts[name])
        for name in _FREE_TEXTS
        if name in texts
    ]
    items.append(box(b"stik", _data(_INTEGER, bytes([_AUDIOBOOK]))))
    items.append(box(b"pgap", _data(_INTEGER, b"\1")))
    if cover is not None:
        kind = _PNG if cover.media_type == "image/png" else _JPEG
        items.append(box(b"covr", _data(kind, cover.content)))
    handler = full_box(b"hdlr", bytes(4), b"mdirappl", bytes(9))
    meta = full_box(b"meta", handler, box(b"ilst", *items))
    nero = struct.pack(">4xB", len(marks[:_MAX_NERO_CHAPTERS]))
    for seconds, title in marks[:_MAX_NERO_CHAPTERS]:
        name = _cut_utf8(title, _MAX_NERO_TITLE)
        nero += struct.pack(">QB", round(seconds * 10_000_000), len(name)) + name
    return box(b"udta", meta, full_box(b"chpl", nero, version=1))


def _data(kind: int, content: bytes) -> Pieces:
    return box(b"data", struct.pack(">II", kind, 0), content)


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


def _movie(
    chapter: ChapterFile, sound: Track, text: Track, marks: Sequence[Mark], tags: Pieces
) -> Pieces:
    """Return the `moov` box of mono AAC that is encoded as a chapter, with its chapters' titles.

    Headers have their long form only where a duration needs it.
    """
    assert chapter.aac is not None
    rate, presented = chapter.sample_rate, marks[-1].end
    is_long = presented >= 1 << 32
    volume = struct.pack(">IHH8x", 0x10000, 0x100, 0) + _MATRIX + bytes(24)
    header = full_box(
        b"mvhd", _times(rate, presented), volume, struct.pack(">I", TEXT_TRACK + 1),
        version=int(is_long),
    )  # fmt: skip
    edit = struct.pack(
        ">QqI" if is_long else ">IiI", presented, PRIMING_FRAMES * FRAME_SAMPLES, 0x10000
    )
    edits = box(b"edts", full_box(b"elst", struct.pack(">I", 1), edit, version=int(is_long)))
    reference = box(b"tref", box(b"chap", struct.pack(">I", TEXT_TRACK)))
    esds = full_box(b"esds", _stream_descriptor(chapter.aac.config, sound.sizes, rate, presented))
    fixed_rate = rate << 16 if rate < 1 << 16 else 0
    # One channel of 16 bits.
    entry = box(b"mp4a", struct.pack(">6xH8xHHHHI", 1, 1, 16, 0, 0, fixed_rate), esds)
    length = sound.steps[0][0] * FRAME_SAMPLES
    media = _media(sound, rate, length, b"soun", b"Sound", full_box(b"smhd", bytes(4)), entry)
    head = _track_header(SOUND_TRACK, presented, volume=0x100, flags=7)
    sound_track = box(b"trak", head, edits, reference, media)
    # Titles are for players to list, not to show.
    entry = box(b"text", struct.pack(">6xH", 1), bytes(43))
    info = box(b"gmhd", full_box(b"gmin", struct.pack(">HHHHhH", 64, 0x8000, 0x8000, 0x8000, 0, 0)),
               box(b"text", _MATRIX))  # fmt: skip
    media = _media(text, rate, presented, b"text", b"Chapters", info, entry)
    head = _track_header(TEXT_TRACK, presented, volume=0, flags=2)
    return box(b"moov", header, sound_track, box(b"trak", head, media), tags)


def _times(timescale: int, duration: int) -> bytes:
    """Return the four times of a header."""
    form = ">4I" if duration < 1 << 32 else ">2QIQ"
    return struct.pack(form, 0, 0, timescale, duration)


def _track_header(number: int, duration: int, *, volume: int, flags: int) -> Pieces:
    version = int(duration >= 1 << 32)
    times = struct.pack(">2QI4xQ" if version else ">2II4xI", 0, 0, number, duration)
    rest = struct.pack(">8xHHHH", 0, 0, volume, 0) + _MATRIX + bytes(8)
    return full_box(b"tkhd", times, rest, version=version, flags=flags)


def _media(
    track: Track, rate: int, duration: int, handler: bytes, name: bytes, info: Pieces, entry: Pieces
) -> Pieces:
    version = int(duration >= 1 << 32)
    language = struct.pack(">HH", _LANGUAGE_UNDEFINED, 0)
    header = full_box(b"mdhd", _times(rate, duration), language, version=version)
    kind = full_box(b"hdlr", bytes(4), handler, bytes(12), name + b"\0")
    data = box(b"dinf", full_box(b"dref", struct.pack(">I", 1), full_box(b"url ", flags=1)))
    steps = b"".join(struct.pack(">II", *step) for step in track.steps)
    chunks = b"".join(struct.pack(">III", first, count, 1) for first, count in track.chunks)
    sizes: Pieces = [track.sizes.astype(">u4").view(np.uint8).data]
    is_long = int(track.offsets[-1]) >= 1 << 32
    offsets = track.offsets.astype(">u8" if is_long else ">u4").tobytes()
    table = box(
        b"stbl",
        full_box(b"stsd", struct.pack(">I", 1), entry),
        full_box(b"stts", struct.pack(">I", len(track.steps)), steps),
        full_box(b"stsc", struct.pack(">I", len(track.chunks)), chunks),
        full_box(b"stsz", struct.pack(">II", 0, len(track.sizes)), sizes),
        full_box(b"co64" if is_long else b"stco", struct.pack(">I", len(track.offsets)), offsets),
    )  # fmt: skip
    return box(b"mdia", header, kind, box(b"minf", info, data, table))


def _stream_descriptor(
    config: bytes, sizes: npt.NDArray[np.uint16], rate: int, presented: int
) -> bytes:
    """Return the ES descriptor of ISO/IEC 14496-1 for AAC."""
    bit_rate = int(8 * int(sizes.sum(dtype=np.int64)) * rate // max(1, presented))
    decoder = struct.pack(">BB", 0x40, 0x15) + int(sizes.max()).to_bytes(3, "big")
    decoder += struct.pack(">II", bit_rate, bit_rate) + _descriptor(5, config)
    stream = struct.pack(">HB", SOUND_TRACK, 0)
    return _descriptor(3, stream + _descriptor(4, decoder) + _descriptor(6, b"\x02"))


def _descriptor(tag: int, content: bytes) -> bytes:
    size = len(content)
    return bytes([tag, 0x80, 0x80, 0x80 | size >> 7, size & 0x7F]) + content
