"""An M4B is read by FFmpeg and by the letter: joins, marks, tags, cover, and what is reused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.workers.book_files.made_books import (
    FACTS,
    RATE,
    book,
    chapter,
    decoded,
    encoder,
    make_m4b,
    probe,
)
from tests.workers.book_files.mp4_walk import boxes, nero_chapters
from workers.book_files.book_audio import BookAudio, BookFileError, ChapterAudio
from workers.book_files.chapter_encodes import Encoder
from workers.book_files.m4b import marks_of

ENDS = ("start", "end")


def chapters_of(path: Path) -> list[tuple[str, int, int]]:
    """Return title, first and last sample of each chapter, as FFmpeg reads them."""
    with probe(path) as opened:
        return [
            (one["metadata"]["title"], *(RATE * one[end] * one["time_base"] for end in ENDS))
            for one in opened.chapters()
        ]


def test_chapters_join_to_the_sample_and_as_quietly_as_room_tone(
    work: Encoder, tmp_path: Path
) -> None:
    made = make_m4b(tmp_path / "book.m4b", book(4), work)

    whole, marks = decoded(tmp_path / "book.m4b"), marks_of(made)
    assert len(whole) == marks[-1].end == sum(one.num_samples for one in made)
    for index, mark in enumerate(marks):
        alone = tmp_path / f"{index}.m4b"
        make_m4b(alone, dataclasses.replace(book(4), chapters=(book(4).chapters[index],)), work)
        inner = slice(2048, -2048)  # frames at a join lean on the neighbour's room tone
        joined = whole[mark.start : mark.end]
        # Decoders fill noisy bands at random; a shift by one sample would differ by far more.
        assert np.abs(joined[inner] - decoded(alone)[inner]).max() < 3e-3
        assert np.abs(joined[inner][1:] - decoded(alone)[inner][:-1]).max() > 5e-3
    for mark in marks[1:]:
        around = whole[mark.start - 2048 : mark.start + 2048]
        assert 20 * np.log10(np.abs(around).max()) < -55
        assert -85 < 10 * np.log10(np.mean(around**2)) < -68


def test_marks_of_300_chapters_are_exact(tmp_path: Path) -> None:
    short = [chapter(f"№ {index}", sentences=1, pitch=150 + index) for index in range(3)]
    keyed = [
        dataclasses.replace(short[index % 3], title=f"№ {index}", content_key=f"{index % 3}")
        for index in range(300)
    ]
    one = dataclasses.replace(book(1), chapters=tuple(keyed))
    work = encoder(tmp_path)

    marks = marks_of(make_m4b(tmp_path / "book.m4b", one, work))

    found = chapters_of(tmp_path / "book.m4b")
    assert (work.encoded, work.reused) == (3, 297)
    assert found == [(f"№ {n}", mark.start, mark.end) for n, mark in enumerate(marks)]
    whole = decoded(tmp_path / "book.m4b")
    assert len(whole) == marks[-1].end
    # The speech of the last chapter begins where its mark and head say, within 10 ms.
    last = np.abs(whole[marks[-1].start :].astype(np.float64)) > 0.01
    assert np.argmax(last) / RATE == pytest.approx(0.75, abs=0.01)
    listed = nero_chapters((tmp_path / "book.m4b").read_bytes())
    assert len(listed) == 255
    assert listed[254][0] == pytest.approx(marks[254].start / RATE, abs=1e-6)


def test_tags_are_those_that_audiobookshelf_reads(work: Encoder, tmp_path: Path) -> None:
    make_m4b(tmp_path / "book.m4b", book(1), work)

    with probe(tmp_path / "book.m4b") as opened:
        tags = {name.lower(): value for name, value in opened.metadata.items()}
        pictures = [one for one in opened.streams.video]
        assert pictures[0].disposition == av.stream.Disposition.attached_pic
    expected = dict.fromkeys(("title", "album"), FACTS.title)
    expected |= dict.fromkeys(("artist", "album_artist"), "H. G. Wells, Another Author")
    expected |= dict.fromkeys(("show", "series"), "Scientific Romances")
    expected |= dict.fromkeys(("episode_id", "series-part", "media_type"), "2")
    expected |= {
        "composer": "A Narrator", "genre": "Science fiction, Classics", "date": "1895-05-07",
        "description": FACTS.description, "grouping": "Scientific Romances #2",
        "publisher": "A Publisher", "language": "en-GB", "major_brand": "M4B ",
        "subtitle": "An Invention",
    }  # fmt: skip
    assert {name: tags.get(name) for name in expected} == expected
    content = (tmp_path / "book.m4b").read_bytes()
    top = [path for path, _, _ in boxes(content) if path.count("/") == 1]
    assert top == ["/ftyp", "/moov", "/mdat"]  # players need not look behind the media


def test_new_tags_encode_nothing_and_read_no_audio(tmp_path: Path) -> None:
    def unread() -> Any:
        raise AssertionError("audio was read")

    first, work = book(3), encoder(tmp_path)
    keyed = tuple(dataclasses.replace(one, content_key=one.title) for one in first.chapters)
    make_m4b(tmp_path / "book.m4b", dataclasses.replace(first, chapters=keyed), work)
    audio = decoded(tmp_path / "book.m4b")
    renamed = tuple(
        ChapterAudio(f"New {one.title}", unread, one.segments, one.title) for one in keyed
    )
    facts = dataclasses.replace(FACTS, title="Another title")
    make_m4b(tmp_path / "book.m4b", dataclasses.replace(first, chapters=renamed, facts=facts), work)
    assert (work.encoded, work.reused) == (3, 3)
    assert np.array_equal(decoded(tmp_path / "book.m4b"), audio)
    assert chapters_of(tmp_path / "book.m4b")[0][0] == "New Chapter 1"


def test_an_edit_or_a_damaged_entry_of_the_cache_encodes_its_chapter_anew(tmp_path: Path) -> None:
    first, work = book(2), encoder(tmp_path)
    make_m4b(tmp_path / "book.m4b", first, work)
    edited = (first.chapters[0], chapter("Chapter 2", sentences=3, pitch=333.0))
    make_m4b(tmp_path / "edited.m4b", dataclasses.replace(first, chapters=edited), work)
    assert (work.encoded, work.reused) == (3, 1)
    for file in (tmp_path / "cache").glob("*/*"):
        if file.suffix != ".json":
            file.write_bytes(file.read_bytes()[:-10])
    make_m4b(tmp_path / "again.m4b", first, work)
    assert work.encoded == 5
    assert (tmp_path / "again.m4b").read_bytes() == (tmp_path / "book.m4b").read_bytes()


@pytest.mark.parametrize("rate", [24_000, 20_480])
def test_takes_of_other_rates_keep_their_length(rate: int, work: Encoder, tmp_path: Path) -> None:
    other = dataclasses.replace(book(2), sample_rate=rate)
    made = make_m4b(tmp_path / "book.m4b", other, work)
    marks = marks_of(made)
    seconds = 4.0 * RATE / rate
    assert len(decoded(tmp_path / "book.m4b")) == marks[-1].end
    for one in made:
        assert one.num_samples / one.sample_rate == pytest.approx(seconds + 2.75, abs=0.05)
        assert one.spans[1].start / one.sample_rate == pytest.approx(0.75 + seconds / 2, abs=1e-4)


def test_a_book_without_chapters_is_refused(work: Encoder, tmp_path: Path) -> None:
    with pytest.raises(BookFileError) as caught:
        make_m4b(tmp_path / "book.m4b", BookAudio(FACTS, (), RATE), work)
    assert caught.value.code == "no_chapters"
    assert not (tmp_path / "book.m4b").exists()
