"""Files per chapter and of the whole book: rates, tags, marks; one edit, one encode; full disks."""

from __future__ import annotations

import dataclasses
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from synth.formats import BOOK_FILES, CHAPTER_FORMATS
from tests.workers.book_files.made_books import (
    AAC,
    FACTS,
    RATE,
    book,
    chapter,
    decoded,
    encoder,
    make_m4b,
    probe,
)
from workers.book_files import chapter_files
from workers.book_files.chapter_encodes import Encoder, Encoding
from workers.book_files.chapter_files import (
    FADE_SECONDS,
    make_chapter_files,
    make_one_file,
    make_sample,
)
from workers.book_files.m4b import marks_of
from workers.book_files.read_along import make_read_along


@pytest.mark.parametrize("form", CHAPTER_FORMATS)
def test_each_chapter_has_a_file_with_its_tags_and_one_edit_encodes_one(
    form: str, tmp_path: Path
) -> None:
    first, work = book(2), encoder(tmp_path)
    made = make_chapter_files(tmp_path / "out", first, work, Encoding(form))

    assert [path.name for path in made] == [
        f"{number:02d} - Chapter {number}{path.suffix}" for number, path in enumerate(made, start=1)
    ]
    assert sorted((tmp_path / "out").iterdir()) == list(made)
    for number, (path, one) in enumerate(made.items(), start=1):
        with probe(path) as opened:
            stream = opened.streams.audio[0]
            tags = {**opened.metadata, **stream.metadata}
            seconds = opened.duration / 1e6
            assert bool(opened.streams.video) == (form in ("mp3", "flac"))
            sizes = [packet.size for packet in opened.demux(stream) if packet.size]
            if form == "mp3":  # of a constant 192 kilobits, but for the padding of 44.1 kHz
                assert (stream.bit_rate, stream.sample_rate, stream.channels) == (192_000, RATE, 1)
                assert max(sizes) - min(sizes) <= 1
        assert seconds == pytest.approx(one.num_samples / one.sample_rate, abs=0.03)
        content = path.read_bytes()[:200_000]
        assert (content[:3] == b"ID3") == (form == "mp3")
        for frame in (b"TIT2", b"TPE1", b"TALB", b"TRCK", b"APIC") if form == "mp3" else ():
            assert frame in content
        if form != "wav":
            assert (tags["title"], tags["track"]) == (f"Chapter {number}", f"{number}/2")
            assert (tags["album"], tags["artist"]) == (FACTS.title, ", ".join(FACTS.authors))
    edited = (first.chapters[0], chapter("Chapter 2", pitch=300.0))
    again = dataclasses.replace(first, chapters=edited)
    make_chapter_files(tmp_path / "again", again, work, Encoding(form))
    assert (work.encoded, work.reused) == (3, 1)


@pytest.mark.parametrize("form", CHAPTER_FORMATS)
def test_one_file_holds_all_chapters_with_their_marks(
    form: str, work: Encoder, tmp_path: Path
) -> None:
    path = tmp_path / f"book.{form}"

    chapters = make_one_file(path, book(3), work, Encoding(form))
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


def test_a_wav_beyond_32_bits_is_an_rf64(
    work: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chapter_files, "WAV_BYTES", 100_000)
    made = make_one_file(tmp_path / "b.wav", book(2), work, Encoding("wav"))
    num_samples = sum(one.num_samples for one in made)
    assert (tmp_path / "b.wav").read_bytes()[:4] == b"RF64"
    assert soundfile.info(tmp_path / "b.wav").frames == num_samples
    assert len(decoded(tmp_path / "b.wav")) == num_samples


def test_sample_ends_after_a_sentence_and_fades(work: Encoder, tmp_path: Path) -> None:
    long = dataclasses.replace(book(1), chapters=(chapter("Long", sentences=12),))
    made = make_sample(tmp_path / "s.mp3", long, work, minutes=0.2)
    seconds = made.num_samples / RATE
    # Sentence n ends at 0.75 + 2 n - 0.5 s; with the fade, the fourth is the last within 12 s.
    assert seconds == pytest.approx(0.75 + 2 * 4 - 0.5 + FADE_SECONDS, abs=0.01)
    audio = decoded(tmp_path / "s.mp3")
    assert len(audio) / RATE == pytest.approx(seconds, abs=0.06)
    assert np.abs(audio[-RATE // 20 :]).max() < 0.01


def test_sample_of_a_short_chapter_is_all_of_it(work: Encoder, tmp_path: Path) -> None:
    made = make_sample(tmp_path / "s.mp3", book(1), work, minutes=5.0)
    assert made.num_samples / RATE == pytest.approx(4 + 2.75, abs=0.03)


@pytest.mark.parametrize("form", [*CHAPTER_FORMATS, "m4b"])
def test_titles_with_characters_that_no_tag_holds_break_nothing(
    form: str, work: Encoder, tmp_path: Path
) -> None:
    odd = "Ha\0lf \ud800 and / = ;\n" + "long " * 400
    facts = dataclasses.replace(FACTS, title=odd, authors=(odd,), description=odd, series=odd)
    one = dataclasses.replace(book(1), facts=facts, chapters=(chapter(odd, sentences=1),))

    path = tmp_path / f"book.{form}"
    make_one_file(path, one, work, Encoding(BOOK_FILES[form].chapters_as))
    if form != "m4b":
        make_chapter_files(tmp_path / "out", one, work, Encoding(form))

    with probe(path) as opened:
        tags = {**opened.metadata, **opened.streams.audio[0].metadata}
    assert form == "wav" or tags["title"].startswith("Half ? and / = ;")


MAKERS: dict[str, Callable[[Path, Encoder], object]] = {
    "m4b": lambda at, work: make_m4b(at / "book.m4b", book(2), work),
    "mp3": lambda at, work: make_chapter_files(at / "out", book(2), work, Encoding("mp3")),
    "flac": lambda at, work: make_chapter_files(at / "out", book(2), work, Encoding("flac")),
    "wav": lambda at, work: make_chapter_files(at / "out", book(2), work, Encoding("wav")),
    "one": lambda at, work: make_one_file(at / "b.opus", book(2), work, Encoding("opus")),
    "epub": lambda at, work: make_read_along(at / "book.epub", book(2), work, AAC),
}


def with_room_for(num_bytes: int, make: Callable[[], object]) -> str:
    """Make files in a child process whose files cannot grow beyond this; return what it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))
        try:
            make()
            found = "nothing"
        except OSError as error:
            found = f"OSError {error.errno is not None}"
        except BaseException as error:  # noqa: BLE001
            found = repr(error)
        os.write(writing, found.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


QUICK = [("m4b", 4_000), ("m4b", 60_000), ("flac", 4_000), ("one", 4_000)]
OTHERS = [(form, room) for form in MAKERS for room in (4_000, 60_000) if (form, room) not in QUICK]


@pytest.mark.parametrize(
    ("form", "room"), [*QUICK, *(pytest.param(*one, marks=pytest.mark.thorough) for one in OTHERS)]
)
def test_a_full_disk_is_told_and_nothing_half_encoded_is_kept(
    form: str, room: int, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    said = with_room_for(room, lambda: MAKERS[form](first, encoder(tmp_path)))
    assert said == "OSError True"
    assert not [path for path in (tmp_path / "cache").rglob(".*") if path.is_file()]
    MAKERS[form](second, encoder(tmp_path))  # what was kept, if anything, is whole
