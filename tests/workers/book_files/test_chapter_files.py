"""Files per chapter and of the whole book: rates, tags, covers, marks; one edit, one encode."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import soundfile

from synth.formats import BOOK_FILES, CHAPTER_FORMATS
from tests.workers.book_files.made_books import FACTS, RATE, book, chapter, encoder, probe
from workers.book_files import chapter_files
from workers.book_files.chapter_encodes import Encoding
from workers.book_files.chapter_files import (
    FADE_SECONDS,
    make_chapter_files,
    make_one_file,
    make_sample,
)
from workers.book_files.m4b import marks_of


def decoded(path: Path) -> np.ndarray:
    with probe(path) as opened:
        frames = [frame.to_ndarray() for frame in opened.decode(audio=0)]
    audio = np.concatenate([frame[0] for frame in frames])
    return audio / 2**15 if audio.dtype == np.int16 else audio


@pytest.mark.parametrize("form", CHAPTER_FORMATS)
def test_each_chapter_has_a_file_with_its_tags(form: str, tmp_path: Path) -> None:
    made = make_chapter_files(tmp_path / "out", book(3), encoder(tmp_path), Encoding(form))

    assert [path.name for path in made] == [
        f"{number:02d} - Chapter {number}{path.suffix}" for number, path in enumerate(made, start=1)
    ]
    assert sorted((tmp_path / "out").iterdir()) == list(made)
    for number, (path, one) in enumerate(made.items(), start=1):
        with probe(path) as opened:
            tags = {**opened.metadata, **opened.streams.audio[0].metadata}
            seconds = opened.duration / 1e6
            has_cover = bool(opened.streams.video)
        assert seconds == pytest.approx(one.num_samples / one.sample_rate, abs=0.03)
        assert has_cover == (form in ("mp3", "flac"))
        if form != "wav":
            assert (tags["title"], tags["track"]) == (f"Chapter {number}", f"{number}/3")
            assert (tags["album"], tags["artist"]) == (FACTS.title, ", ".join(FACTS.authors))


def test_mp3_has_a_constant_192_kilobits(tmp_path: Path) -> None:
    made = make_chapter_files(tmp_path / "out", book(1), encoder(tmp_path), Encoding("mp3"))

    with probe(next(iter(made))) as opened:
        stream = opened.streams.audio[0]
        assert (stream.bit_rate, stream.sample_rate, stream.channels) == (192_000, RATE, 1)
        sizes = [packet.size for packet in opened.demux(stream) if packet.size]
    assert max(sizes) - min(sizes) <= 1  # but for the padding of 44.1 kHz


def test_tags_of_mp3_are_id3(tmp_path: Path) -> None:
    made = make_chapter_files(tmp_path / "out", book(2), encoder(tmp_path), Encoding("mp3"))

    content = list(made)[1].read_bytes()
    assert content[:3] == b"ID3"
    for frame in (b"TIT2", b"TPE1", b"TALB", b"TRCK", b"APIC"):
        assert frame in content[:200_000]


@pytest.mark.parametrize("form", CHAPTER_FORMATS)
def test_one_edit_encodes_one_chapter(form: str, tmp_path: Path) -> None:
    first, work = book(3), encoder(tmp_path)
    make_chapter_files(tmp_path / "out", first, work, Encoding(form))
    edited = (first.chapters[0], chapter("Chapter 2", pitch=300.0), first.chapters[2])

    make_chapter_files(
        tmp_path / "again", dataclasses.replace(first, chapters=edited), work, Encoding(form)
    )

    assert (work.encoded, work.reused) == (4, 2)


@pytest.mark.parametrize("form", CHAPTER_FORMATS)
def test_one_file_holds_all_chapters_with_their_marks(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"book.{form}"

    chapters = make_one_file(path, book(3), encoder(tmp_path), Encoding(form))
    marks = marks_of(chapters)

    seconds = marks[-1].end / RATE
    audio = decoded(path)
    rate = 48_000 if form == "opus" else RATE
    assert len(audio) / rate == pytest.approx(seconds, abs=0.03)
    assert marks[-1].end == sum(one.num_samples for one in chapters)
    with probe(path) as opened:
        found = opened.chapters()
        tags = {**opened.metadata, **opened.streams.audio[0].metadata}
    if form != "wav":
        assert tags["title"] == FACTS.title
        assert [one["metadata"]["title"] for one in found] == [mark.title for mark in marks]
        for one, mark in zip(found, marks, strict=True):
            assert one["start"] * one["time_base"] == pytest.approx(mark.start / RATE, abs=0.002)
    if form in ("flac", "wav"):
        for made, mark in zip(chapters, marks, strict=True):
            alone, _ = soundfile.read(made.path, dtype="float32")
            assert np.abs(audio[mark.start : mark.end] - alone).max() < 2**-14


def test_a_wav_beyond_32_bits_is_an_rf64(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chapter_files, "WAV_BYTES", 100_000)

    made = make_one_file(tmp_path / "b.wav", book(2), encoder(tmp_path), Encoding("wav"))
    num_samples = sum(one.num_samples for one in made)

    assert (tmp_path / "b.wav").read_bytes()[:4] == b"RF64"
    assert soundfile.info(tmp_path / "b.wav").frames == num_samples
    assert len(decoded(tmp_path / "b.wav")) == num_samples


def test_sample_ends_after_a_sentence_and_fades(tmp_path: Path) -> None:
    long = dataclasses.replace(book(1), chapters=(chapter("Long", sentences=12),))

    made = make_sample(tmp_path / "s.mp3", long, encoder(tmp_path), minutes=0.2)
    seconds = made.num_samples / RATE

    # Sentence n ends at 0.75 + 2 n - 0.5 s; with the fade, the fourth is the last within 12 s.
    assert seconds == pytest.approx(0.75 + 2 * 4 - 0.5 + FADE_SECONDS, abs=0.01)
    audio = decoded(tmp_path / "s.mp3")
    assert len(audio) / RATE == pytest.approx(seconds, abs=0.06)
    assert np.abs(audio[-RATE // 20 :]).max() < 0.01


def test_sample_of_a_short_chapter_is_all_of_it(tmp_path: Path) -> None:
    made = make_sample(tmp_path / "s.mp3", book(1), encoder(tmp_path), minutes=5.0)

    assert made.num_samples / RATE == pytest.approx(4 + 2.75, abs=0.03)


@pytest.mark.parametrize("form", [*CHAPTER_FORMATS, "m4b"])
def test_titles_with_characters_that_no_tag_holds_break_nothing(form: str, tmp_path: Path) -> None:
    odd = "Ha\0lf \ud800 and / = ;\n" + "long " * 400
    facts = dataclasses.replace(FACTS, title=odd, authors=(odd,), description=odd, series=odd)
    one = dataclasses.replace(book(1), facts=facts, chapters=(chapter(odd, sentences=1),))

    path = tmp_path / f"book.{form}"
    make_one_file(path, one, encoder(tmp_path), Encoding(BOOK_FILES[form].chapters_as))
    if form != "m4b":
        make_chapter_files(tmp_path / "out", one, encoder(tmp_path), Encoding(form))

    with probe(path) as opened:
        tags = {**opened.metadata, **opened.streams.audio[0].metadata}
    assert form == "wav" or tags["title"].startswith("Half ? and / = ;")
