"""Make files of a book in other formats: one per chapter, or one for all, with tags and cover."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import soundfile

from synth.books.file_names import numbered_name
from synth.contract import AudioArray
from synth.formats import BOOK_FORMATS, CHAPTER_FORMATS, WAV_BYTES, AudioFormat
from workers.audio.writers import open_writer, read_blocks
from workers.book_files.book_audio import BookAudio, BookFacts, BookFileError, tag_text
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.cover import CoverImage, book_cover
from workers.book_files.m4b import Mark, marks_of
from workers.book_files.publishing import publish_file, publish_folder


class MadeChapters(NamedTuple):
    """Hold what became of a book: a file for each of the chapters."""

    paths: list[Path]
    chapters: list[ChapterFile]


def make_chapter_files(
    folder: Path,
    book: BookAudio,
    encoder: Encoder,
    encoding: Encoding,
    *,
    places: Sequence[int] | None = None,
    count: int | None = None,
) -> MadeChapters:
    """Write one file per chapter into `folder`; none of them appears before all are complete.

    Args:
        places: where each chapter is in the whole book, from 0, if `book` is some of it.
        count: how many chapters the whole book has.

    Raises:
        OSError: the disk is full.
        BookFileError: the cover cannot be used.
        ValueError: the format is none of `CHAPTER_FORMATS`.
    """
    form = _format_of(encoding)
    cover = book_cover(book.cover, book.facts)
    numbers = range(len(book.chapters)) if places is None else places
    count = len(book.chapters) if count is None else count
    chapters, names = [], []
    with publish_folder(folder) as temporary:
        for index, chapter in zip(numbers, encoder.chapters(book, encoding), strict=True):
            name = numbered_name(index, count, chapter.title) + f".{form.extension}"
            tags = chapter_tags(book.facts, chapter.title, index + 1, count)
            _tagged_copy(temporary / name, [chapter], form, tags, cover, ())
            chapters.append(chapter)
            names.append(name)
    return MadeChapters([folder / name for name in names], chapters)


def make_one_file(
    path: Path, book: BookAudio, encoder: Encoder, encoding: Encoding
) -> tuple[list[ChapterFile], list[Mark]]:
    """Write all chapters into one file with chapter marks, and return where they lie.

    Chapters of lossless formats are joined as they are decoded, which loses nothing. Frames of
    lossy ones lean on those before them: the joined sound is encoded anew from FLAC.

    Raises:
        OSError: the disk is full; what was at `path` before is still there.
        BookFileError: the cover cannot be used, or there is no chapter.
        ValueError: the format is none of `CHAPTER_FORMATS`.
    """
    form = _format_of(encoding)
    if not book.chapters:
        raise BookFileError("no_chapters", "The book has no chapter to make a file from.")
    cover = book_cover(book.cover, book.facts)
    rate = encoding.sample_rate
    lossless = Encoding("flac", sample_rate=rate)
    chapters = list(encoder.chapters(book, lossless))
    marks = marks_of(chapters)
    tags = book_tags(book.facts)
    if form.marks == "tags":
        tags.update(_chapter_comments(marks, chapters[0].sample_rate))
    with publish_file(path) as temporary:
        if not form.codec:
            _write_wav(temporary, chapters)
        else:
            _encode_joined(temporary, chapters, encoding, tags, cover, marks)
    return chapters, marks


def book_tags(facts: BookFacts) -> dict[str, str]:
    """Return a book's tags by the names that FFmpeg gives them; empty ones are left out."""
    found = {
        "title": facts.title,
        "album": facts.title,
        "artist": ", ".join(facts.authors),
        "album_artist": ", ".join(facts.authors),
        "composer": ", ".join(facts.narrators),
        "genre": ", ".join(facts.genres) or "Audiobook",
        "date": facts.date,
        "publisher": facts.publisher,
        "language": facts.language,
        "copyright": facts.rights,
        "comment": facts.description,
        "subtitle": facts.subtitle,
        "series": facts.series,
        "series-part": facts.series_index if facts.series else "",
        "isbn": facts.isbn,
        "asin": facts.asin,
    }
    return {name: tag_text(text) for name, text in found.items() if text}


def chapter_tags(facts: BookFacts, title: str, number: int, count: int) -> dict[str, str]:
    """Return the tags of one chapter's file: track `number` of `count`."""
    return {**book_tags(facts), "title": tag_text(title), "track": f"{number}/{count}"}


def _format_of(encoding: Encoding) -> AudioFormat:
    if encoding.format not in CHAPTER_FORMATS:
        raise ValueError(f"no such format of files: {encoding.format!r}")
    return BOOK_FORMATS[encoding.format]


def _tagged_copy(
    path: Path,
    chapters: Sequence[ChapterFile],
    form: AudioFormat,
    tags: dict[str, str],
    cover: CoverImage | None,
    marks: Sequence[Mark],
) -> None:
    """Copy an encode's frames into a new file with tags: nothing is encoded."""
    if not form.codec:
        _write_wav(path, chapters)
        return
    with path.open("wb") as file, av.open(str(chapters[0].path)) as source:
        target = _open_target(file, form, tags, marks, chapters[0].sample_rate)
        with target:
            stream = target.add_stream_from_template(source.streams.audio[0])
            if form.tags_on_stream:
                stream.metadata.update(tags)
            _add_cover(target, form, cover)
            for packet in source.demux(source.streams.audio[0]):
                if packet.dts is not None:
                    packet.stream = stream
                    target.mux(packet)


def _encode_joined(
    path: Path,
    chapters: Sequence[ChapterFile],
    encoding: Encoding,
    tags: dict[str, str],
    cover: CoverImage | None,
    marks: Sequence[Mark],
) -> None:
    form, rate = BOOK_FORMATS[encoding.format], chapters[0].sample_rate
    with path.open("wb") as file, _open_target(file, form, tags, marks, rate) as target:
        stream: Any = target.add_stream(form.codec, rate=form.rate or form.book_rate(rate))
        stream.layout = "mono"
        if form.bit_rates is None:
            stream.format = "s16"
        else:
            stream.bit_rate = encoding.bit_rate or form.bit_rates.of_books
        if form.tags_on_stream:
            stream.metadata.update(tags)
        stream.codec_context.open()
        _add_cover(target, form, cover)
        fit = av.AudioResampler(
            format=stream.codec_context.format, layout="mono",
            rate=stream.codec_context.sample_rate, frame_size=stream.codec_context.frame_size,
        )  # fmt: skip
        position = 0
        for block in _join_blocks(chapters):
            frame = av.AudioFrame.from_ndarray(block[None, :], "fltp", "mono")
            frame.sample_rate, frame.pts = rate, position
            position += len(block)
            for ready in fit.resample(frame):
                target.mux(stream.encode(ready))
        for ready in fit.resample(None):
            target.mux(stream.encode(ready))
        target.mux(stream.encode(None))


def _join_blocks(chapters: Sequence[ChapterFile]) -> Iterator[AudioArray]:
    """Yield the lossless chapters one after the other, in blocks that every encoder takes."""
    for chapter in chapters:
        for block in read_blocks(chapter.path, "flac", chapter.sample_rate):
            for start in range(0, len(block), 1 << 15):
                yield block[start : start + (1 << 15)]


def _write_wav(path: Path, chapters: Sequence[ChapterFile]) -> None:
    """Write 16-bit WAV, or RF64 where its sizes need more than 32 bits."""
    total = sum(chapter.num_samples for chapter in chapters)
    form = "RF64" if 2 * total > WAV_BYTES else "WAV"
    rate = chapters[0].sample_rate
    try:
        with soundfile.SoundFile(
            path, "w", rate, channels=1, format=form, subtype="PCM_16"
        ) as target:
            for block in _int16_blocks(chapters):
                target.write(block)
        is_whole = soundfile.info(path).frames == total
    except soundfile.LibsndfileError as error:  # it does not say why it cannot write
        raise OSError(errno.ENOSPC, "the audio file cannot be written") from error
    if not is_whole:
        raise OSError(errno.ENOSPC, "the audio file was cut short")


def _int16_blocks(chapters: Sequence[ChapterFile]) -> Iterator[Any]:
    """Yield the samples of lossless chapters, int16 [n]."""
    for chapter in chapters:
        try:
            with soundfile.SoundFile(chapter.path) as source:
                yield from source.blocks(1 << 18, dtype="int16")
        except soundfile.LibsndfileError as error:  # not to be taken for a full disk
            raise RuntimeError("the encode of a chapter cannot be read") from error


def _open_target(
    file: Any, form: AudioFormat, tags: dict[str, str], marks: Sequence[Mark], rate: int
) -> Any:
    """Open a container that writes through `file`, whose errors then reach the caller."""
    target = av.open(file, "w", format=form.container, options=form.container_options)
    if not form.tags_on_stream:
        target.metadata.update(tags)
    if form.marks == "container":
        target.set_chapters([
            {"id": index, "start": mark.start, "end": mark.end, "time_base": Fraction(1, rate),
             "metadata": {"title": tag_text(mark.title)}}
            for index, mark in enumerate(marks)
        ])  # fmt: skip
    return target


def _chapter_comments(marks: Sequence[Mark], rate: int) -> dict[str, str]:
    """Return chapters as Vorbis comments: FFmpeg's own round the second up, so they are ours."""
    found = {}
    for index, mark in enumerate(marks):
        milliseconds = round(1000 * mark.start / rate)
        seconds, rest = divmod(milliseconds, 1000)
        clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:03d}"
        found[f"CHAPTER{index:03d}"] = clock
        found[f"CHAPTER{index:03d}NAME"] = tag_text(mark.title)
    return found


def _add_cover(target: Any, form: AudioFormat, cover: CoverImage | None) -> None:
    """Add the cover where the container has a place for pictures."""
    if cover is None or not form.has_cover:
        return
    name = {"image/jpeg": "jpeg_pipe", "image/png": "png_pipe"}[cover.media_type]
    opened: Any = av.open(BytesIO(cover.content), format=name)
    with opened as picture:
        source = picture.streams.video[0]
        stream = target.add_stream_from_template(source)
        stream.disposition = av.stream.Disposition.attached_pic
        for packet in picture.demux(source):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
                break


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
    with publish_file(path) as temporary, open_writer(temporary, "mp3", mp3_rate, _BIT_RATE) as out:
        for block in _fade(chapter, length):
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


def _fade(chapter: ChapterFile, length: int) -> Iterator[AudioArray]:
    fade = min(length, round(FADE_SECONDS * chapter.sample_rate))
    position = 0
    for block in read_blocks(chapter.path, "flac", chapter.sample_rate):
        kept = block[: length - position]
        left = length - (position + np.arange(len(kept), dtype=np.float64))
        yield (kept * np.minimum(1.0, left / fade)).astype(np.float32)
        position += len(kept)
        if position >= length:
            return
