"""Make the audio files of a book: one per chapter, or one for all, with tags, marks and cover."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator, Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np
import soundfile

from synth.audio.writers import open_writer, read_blocks
from synth.books.book import Cover
from synth.formats import BOOK_FORMATS, CHAPTER_FORMATS, WAV_BYTES, AudioFormat, numbered_name
from workers.book_files.book_audio import BookAudio, BookFileError, book_tags, tag_text
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.cover import book_cover
from workers.book_files.m4b import Mark, marks_of, write_mp4


def make_chapter_files(
    folder: Path, book: BookAudio, encoder: Encoder, encoding: Encoding
) -> dict[Path, ChapterFile]:
    """Write one file per chapter into a new folder, and return the chapters by their files.

    Raises:
        OSError: the disk is full.
        BookFileError: the cover cannot be used.
    """
    form = BOOK_FORMATS[encoding.format]
    cover = book_cover(book.cover, book.facts)
    count = book.num_chapters or len(book.chapters)
    folder.mkdir()
    made = {}
    for chapter in encoder.chapters(book, encoding):
        name = f"{numbered_name(chapter.place, count, chapter.title)}.{form.extension}"
        tags = book_tags(book.facts) | {
            "title": tag_text(chapter.title),
            "track": f"{chapter.place + 1}/{count}",
        }
        _copy_with_tags(folder / name, chapter, form, tags, cover)
        made[folder / name] = chapter
    return made


def make_one_file(
    path: Path, book: BookAudio, encoder: Encoder, encoding: Encoding
) -> list[ChapterFile]:
    """Write all chapters into one file with chapter marks; they lie in it as `marks_of` says.

    An M4B is spliced of its chapters' encodes: new tags, another cover or title encode nothing.
    Chapters of lossless formats are joined as they are decoded, which loses nothing. Frames of
    other lossy ones lean on those before them: the joined sound is encoded anew from FLAC.

    Raises:
        OSError: the disk is full.
        BookFileError: the cover cannot be used, or there is no chapter.
        EncodeUnwantedError: nobody waits for it any more.
    """
    if not book.chapters:
        raise BookFileError("no_chapters", "The book has no chapter to make a file from.")
    cover = book_cover(book.cover, book.facts)
    if encoding.format not in CHAPTER_FORMATS:
        chapters = list(encoder.chapters(book, encoding))
        with path.open("wb") as file:
            write_mp4(file, chapters, book.facts, cover)
        return chapters
    chapters = list(encoder.chapters(book, Encoding("flac", sample_rate=encoding.sample_rate)))
    if BOOK_FORMATS[encoding.format].codec:
        _encode_joined(path, chapters, encoding, book_tags(book.facts), cover)
    else:
        _write_wav(path, chapters)
    return chapters


def _copy_with_tags(
    path: Path, chapter: ChapterFile, form: AudioFormat, tags: dict[str, str], cover: Cover
) -> None:
    """Copy an encode's frames into a new file with tags: nothing is encoded."""
    if not form.codec:
        shutil.copyfile(chapter.path, path)
        return
    with (
        path.open("wb") as file,
        av.open(str(chapter.path)) as source,
        _open_target(file, form, tags, ()) as target,
    ):
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
    cover: Cover,
) -> None:
    form, rate = BOOK_FORMATS[encoding.format], chapters[0].sample_rate
    marks = marks_of(chapters)
    if form.marks == "tags":
        tags = tags | _chapter_comments(marks, rate)
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
        for frame in _joined_frames(chapters):
            for ready in fit.resample(frame):
                target.mux(stream.encode(ready))
        target.mux(stream.encode(None))


def _joined_frames(chapters: Sequence[ChapterFile]) -> Iterator[av.AudioFrame | None]:
    """Yield the lossless chapters one after the other in frames that every encoder takes; None."""
    position = 0
    for chapter in chapters:
        for block in read_blocks(chapter.path, "flac", chapter.sample_rate):
            for start in range(0, len(block), 1 << 15):
                samples = block[None, start : start + (1 << 15)]
                frame = av.AudioFrame.from_ndarray(samples, "fltp", "mono")
                frame.sample_rate, frame.pts = chapter.sample_rate, position
                position += samples.shape[1]
                yield frame
    yield None


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
    file: Any, form: AudioFormat, tags: dict[str, str], marks: Sequence[Mark], rate: int = 1
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


def _add_cover(target: Any, form: AudioFormat, cover: Cover) -> None:
    """Add the cover where the container has a place for pictures."""
    if not form.has_cover:
        return
    name = {"image/jpeg": "jpeg_pipe", "image/png": "png_pipe"}[cover.media_type]
    # A picture may have comments in any encoding; nobody reads them.
    opened: Any = av.open(BytesIO(cover.content), format=name, metadata_errors="replace")
    with opened as picture:
        source = picture.streams.video[0]
        stream = target.add_stream_from_template(source)
        stream.disposition = av.stream.Disposition.attached_pic
        packet = next(one for one in picture.demux(source) if one.size)
        packet.stream = stream
        target.mux(packet)


FADE_SECONDS = 2.0
_SAMPLE_BIT_RATE = 192_000


def make_sample(path: Path, book: BookAudio, encoder: Encoder, *, minutes: float) -> ChapterFile:
    """Write the beginning of the book's chapter as MP3; return it with the samples that it has.

    Args:
        minutes: at most so many; it ends after the last segment that fits, so that no word is
            cut, or within one that alone is longer.

    Raises:
        OSError: the disk is full.
    """
    rate = book.sample_rate if book.sample_rate in (32_000, 44_100, 48_000) else 44_100
    chapter = encoder.chapter(book, 0, Encoding("flac", sample_rate=rate))
    length, most = chapter.num_samples, round(60 * minutes * rate)
    fade = round(FADE_SECONDS * rate)
    if length > most:  # up to a segment's end, with room to fade
        ends = [span.end for span in chapter.spans if span.end + fade <= most]
        length = ends[-1] + fade if ends else most
    fade, position = min(length, fade), 0
    with open_writer(path, "mp3", rate, _SAMPLE_BIT_RATE) as out:
        for block in read_blocks(chapter.path, "flac", rate):
            kept = block[: length - position]
            left = length - (position + np.arange(len(kept), dtype=np.float64))
            out.write((kept * np.minimum(1.0, left / fade)).astype(np.float32))
            position += len(kept)
            if position >= length:
                break
    return chapter._replace(num_samples=length)
