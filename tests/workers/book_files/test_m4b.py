"""An M4B is read by FFmpeg and by the letter: joins, marks, tags, cover, and what is reused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from tests.workers.book_files.made_books import FACTS, RATE, book, chapter, encoder, make_m4b, probe
from tests.workers.book_files.mp4_walk import boxes, itunes_texts, nero_chapters
from workers.book_files.book_audio import BookAudio, BookFileError, ChapterAudio
from workers.book_files.m4b import marks_of


def decoded(path: Path) -> np.ndarray:
    with probe(path) as opened:
        return np.concatenate([frame.to_ndarray()[0] for frame in opened.decode(audio=0)])


def chapters_of(path: Path) -> list[dict[str, Any]]:
    with probe(path) as opened:
        return [
            {
                "title": one["metadata"]["title"],
                "start": one["start"] * one["time_base"],
                "end": one["end"] * one["time_base"],
            }
            for one in opened.chapters()
        ]


def test_chapters_join_to_the_sample(tmp_path: Path) -> None:
    made = make_m4b(tmp_path / "book.m4b", book(4), encoder(tmp_path))

    whole = decoded(tmp_path / "book.m4b")
    marks = marks_of(made)
    assert len(whole) == marks[-1].end == sum(one.num_samples for one in made)
    for index, mark in enumerate(marks):
        alone = tmp_path / f"{index}.m4b"
        make_m4b(alone, dataclasses.replace(book(4), chapters=(book(4).chapters[index],)),
                 encoder(tmp_path))  # fmt: skip
        inner = slice(2048, -2048)  # frames at a join lean on the neighbour's room tone
        joined = whole[mark.start : mark.end]
        # Decoders fill noisy bands at random; a shift by one sample would differ by far more.
        assert np.abs(joined[inner] - decoded(alone)[inner]).max() < 3e-3
        assert np.abs(joined[inner][1:] - decoded(alone)[inner][:-1]).max() > 5e-3


def test_a_join_is_as_quiet_as_room_tone(tmp_path: Path) -> None:
    made = make_m4b(tmp_path / "book.m4b", book(4), encoder(tmp_path))

    whole = decoded(tmp_path / "book.m4b")
    for mark in marks_of(made)[1:]:
        around = whole[mark.start - 2048 : mark.start + 2048]
        assert 20 * np.log10(np.abs(around).max()) < -55
        assert -85 < 10 * np.log10(np.mean(around**2)) < -68


def test_marks_of_600_chapters_are_exact(tmp_path: Path) -> None:
    short = [chapter(f"№ {index}", sentences=1, pitch=150 + index) for index in range(3)]
    keyed = [
        dataclasses.replace(short[index % 3], title=f"№ {index}", content_key=f"{index % 3}")
        for index in range(600)
    ]
    one = dataclasses.replace(book(1), chapters=tuple(keyed))
    work = encoder(tmp_path)

    marks = marks_of(make_m4b(tmp_path / "book.m4b", one, work))

    found = chapters_of(tmp_path / "book.m4b")
    assert (work.encoded, work.reused) == (3, 597)
    assert [row["title"] for row in found] == [f"№ {index}" for index in range(600)]
    whole = decoded(tmp_path / "book.m4b")
    assert len(whole) == marks[-1].end
    for row, mark in zip(found, marks, strict=True):
        assert row["start"] * RATE == mark.start
        assert row["end"] * RATE == mark.end
    # The speech of the last chapter begins where its mark and head say, within 10 ms.
    last = np.abs(whole[int(found[-1]["start"] * RATE) :].astype(np.float64)) > 0.01
    assert np.argmax(last) / RATE == pytest.approx(0.75, abs=0.01)
    listed = nero_chapters((tmp_path / "book.m4b").read_bytes())
    assert len(listed) == 255
    assert listed[254][0] == pytest.approx(marks[254].start / RATE, abs=1e-6)


def test_tags_are_those_that_audiobookshelf_reads(tmp_path: Path) -> None:
    make_m4b(tmp_path / "book.m4b", book(1), encoder(tmp_path))

    with probe(tmp_path / "book.m4b") as opened:
        tags = {name.lower(): value for name, value in opened.metadata.items()}
        pictures = [one for one in opened.streams.video]
        assert pictures[0].disposition == av.stream.Disposition.attached_pic
    assert tags["title"] == tags["album"] == FACTS.title
    assert tags["artist"] == tags["album_artist"] == "H. G. Wells, Another Author"
    assert tags["composer"] == "A Narrator"
    assert tags["genre"] == "Science fiction, Classics"
    assert tags["date"] == "1895-05-07"
    assert tags["description"] == FACTS.description
    assert (tags["show"], tags["episode_id"]) == ("Scientific Romances", "2")
    assert tags["grouping"] == "Scientific Romances #2"
    assert (tags["series"], tags["series-part"]) == ("Scientific Romances", "2")
    assert (tags["publisher"], tags["isbn"], tags["language"], tags["asin"]) == (
        "A Publisher", "9780000000002", "en-GB", "B000000000"
    )  # fmt: skip
    assert (tags["media_type"], tags["major_brand"]) == ("2", "M4B ")
    texts = itunes_texts((tmp_path / "book.m4b").read_bytes())
    assert texts["\xa9nam"] == FACTS.title
    assert texts["SUBTITLE"] == "An Invention"


def test_index_comes_before_the_media(tmp_path: Path) -> None:
    make_m4b(tmp_path / "book.m4b", book(2), encoder(tmp_path))

    content = (tmp_path / "book.m4b").read_bytes()
    found = [(path, at) for path, at, _ in boxes(content)]
    assert [path for path, _ in found if path.count("/") == 1] == ["/ftyp", "/moov", "/mdat"]


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
    assert chapters_of(tmp_path / "book.m4b")[0]["title"] == "New Chapter 1"


def test_an_edit_of_one_chapter_encodes_one_chapter(tmp_path: Path) -> None:
    first, work = book(5), encoder(tmp_path)
    make_m4b(tmp_path / "book.m4b", first, work)
    edited = list(first.chapters)
    edited[2] = chapter("Chapter 3", sentences=3, pitch=333.0)

    make_m4b(tmp_path / "book.m4b", dataclasses.replace(first, chapters=tuple(edited)), work)

    assert (work.encoded, work.reused) == (6, 4)


def test_a_damaged_entry_of_the_cache_is_encoded_again(tmp_path: Path) -> None:
    work = encoder(tmp_path)
    make_m4b(tmp_path / "book.m4b", book(2), work)
    for file in (tmp_path / "cache").glob("*/*"):
        if file.suffix != ".json":
            file.write_bytes(file.read_bytes()[:-10])

    make_m4b(tmp_path / "again.m4b", book(2), work)

    assert work.encoded == 4
    assert (tmp_path / "again.m4b").read_bytes() == (tmp_path / "book.m4b").read_bytes()


@pytest.mark.parametrize("rate", [24_000, 20_480])
def test_takes_of_other_rates_keep_their_length(rate: int, tmp_path: Path) -> None:
    other = dataclasses.replace(book(2), sample_rate=rate)

    made = make_m4b(tmp_path / "book.m4b", other, encoder(tmp_path))
    marks = marks_of(made)

    seconds = 4.0 * RATE / rate
    assert len(decoded(tmp_path / "book.m4b")) == marks[-1].end
    for one in made:
        assert one.num_samples / one.sample_rate == pytest.approx(seconds + 2.75, abs=0.05)
        assert one.spans[1].start / one.sample_rate == pytest.approx(0.75 + seconds / 2, abs=1e-4)


def test_a_book_without_chapters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BookFileError) as caught:
        make_m4b(tmp_path / "book.m4b", BookAudio(FACTS, (), RATE), encoder(tmp_path))

    assert caught.value.code == "no_chapters"
    assert not (tmp_path / "book.m4b").exists()
