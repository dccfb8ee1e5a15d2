"""Write a book's subtitles, SRT and WebVTT, for the whole book or each of its chapters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from synth.bookshelf.files.names import numbered_name
from synth.jobs.timestamps import Spoken, to_srt, to_vtt
from workers.book_files.chapter_encodes import ChapterFile
from workers.book_files.publishing import published, published_folder

_WRITERS: dict[str, Callable[[Sequence[Spoken], int], str]] = {"srt": to_srt, "vtt": to_vtt}
FORMATS = tuple(_WRITERS)


def write_book_subtitles(path: Path, chapters: Sequence[ChapterFile], form: str) -> None:
    """Write one file of a format of FORMATS, timed for all chapters one after the other.

    Raises:
        ValueError: there is no such format.
        OSError: the disk is full; no file appears.
    """
    spoken, start = [], 0
    for index, chapter in enumerate(chapters):
        spoken += _spoken(chapter, index, start)
        start += chapter.num_samples
    rate = chapters[0].sample_rate if chapters else 1
    with published(path) as temporary:
        temporary.write_text(_text(spoken, rate, form), encoding="utf-8")


def write_chapter_subtitles(folder: Path, chapters: Sequence[ChapterFile], form: str) -> list[Path]:
    """Write one file per chapter, timed from its beginning; see `write_book_subtitles`."""
    names = [
        f"{numbered_name(index, len(chapters), chapter.title)}.{form}"
        for index, chapter in enumerate(chapters)
    ]
    with published_folder(folder) as temporary:
        for index, (name, chapter) in enumerate(zip(names, chapters, strict=True)):
            text = _text(_spoken(chapter, index, 0), chapter.sample_rate, form)
            (temporary / name).write_text(text, encoding="utf-8")
    return [folder / name for name in names]


def _text(spoken: Sequence[Spoken], sample_rate: int, form: str) -> str:
    if form not in _WRITERS:
        raise ValueError(f"no such format of subtitles: {form!r}")
    return _WRITERS[form](spoken, sample_rate)


def _spoken(chapter: ChapterFile, index: int, start: int) -> list[Spoken]:
    return [
        Spoken(
            chapter=index, index=number, start=start + span.start, end=start + span.end,
            text=span.text, speaker=span.speaker, voice=span.voice or None,
        )
        for number, span in enumerate(chapter.spans)
    ]  # fmt: skip
