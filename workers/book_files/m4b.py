"""Make an M4B: one file with chapter marks, cover and tags, spliced from encoded chapters."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from workers.book_files.aac_frames import PRIMING_FRAMES, AacFrames
from workers.book_files.book_audio import BookAudio, BookFacts, BookFileError, tag_text
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.chapter_mastering import FRAME_SAMPLES
from workers.book_files.cover import CoverImage, book_cover
from workers.book_files.mp4_boxes import (
    Pieces,
    Track,
    box,
    full_box,
    mdat_header,
    movie,
    sound_track,
    text_track,
)
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
    moov = _settled(index, sum(map(len, head)))
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


def _settled(index: Callable[[int], Pieces], head: int) -> Pieces:
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
