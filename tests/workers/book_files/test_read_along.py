"""A read-along EPUB is whole, its times are exact, and its text is the book's."""

from __future__ import annotations

import dataclasses
import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from lxml import etree

from tests.workers.book_files.epubs import check, small_epub
from tests.workers.book_files.made_books import (
    AAC,
    RATE,
    book,
    chapter,
    encoder,
    make_m4b,
    probe,
    spoken,
)
from workers.book_files.book_audio import BookAudio, BookFileError, SegmentSpan
from workers.book_files.read_along import make_read_along
from workers.book_files.read_along_source import make_read_along_of

BOOKS = Path(__file__).resolve().parents[2] / "data" / "books"


def spoken_book(sentences: list[tuple[str, str]]) -> BookAudio:
    """Return a book of one chapter that speaks (text, anchor), 0.2 s each."""
    step = RATE // 5
    spans = tuple(
        SegmentSpan(text, index * step, (index + 1) * step - 2000, anchor)
        for index, (text, anchor) in enumerate(sentences)
    )
    sound = chapter().blocks
    audio = np.resize(np.concatenate(list(sound())), step * max(1, len(sentences)))
    return dataclasses.replace(book(1), chapters=(spoken("One", audio, spans),))


def test_made_book_is_whole_and_its_clips_are_where_the_segments_are(tmp_path: Path) -> None:
    one, work = book(3), encoder(tmp_path)
    made = make_m4b(tmp_path / "book.m4b", one, work)

    make_read_along(tmp_path / "book.epub", one, work, AAC)

    found = check(tmp_path / "book.epub")
    assert (work.encoded, work.reused) == (3, 3)
    assert len(found) == 3
    for (document, clips), encoded in zip(found.items(), made, strict=True):
        assert document.startswith("OEBPS/text/")
        assert [clip[0] for clip in clips] == [span.text for span in encoded.spans]
        starts = [span.start / RATE for span in encoded.spans]
        assert [clip[2] for clip in clips] == pytest.approx(starts, abs=1e-6)
        assert [clip[3] for clip in clips[:-1]] == [clip[2] for clip in clips[1:]]
        assert clips[-1][3] == pytest.approx(encoded.num_samples / RATE, abs=1e-6)


def test_audio_of_a_chapter_can_be_played_and_is_as_long_as_its_clips_say(tmp_path: Path) -> None:
    make_read_along(tmp_path / "book.epub", book(2), encoder(tmp_path), AAC)

    clips = list(check(tmp_path / "book.epub").values())[1]
    with zipfile.ZipFile(tmp_path / "book.epub") as package:
        content = package.read(clips[0][1])
    with probe(io.BytesIO(content)) as opened:
        samples = sum(frame.samples for frame in opened.decode(audio=0))
    assert samples / RATE == pytest.approx(clips[-1][3], abs=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["book.epub", "cache"]


def test_texts_of_any_kind_stay_well_formed(tmp_path: Path) -> None:
    odd = spoken_book([("<b>&amp;\0 \ud800 ]]> \ufffe", ""), ("Ende „gut“.", "")])

    make_read_along(tmp_path / "book.epub", odd, encoder(tmp_path), AAC)

    assert [clip[0] for clip in next(iter(check(tmp_path / "book.epub").values()))] == [
        "<b>&amp; ]]>", "Ende „gut“."
    ]  # fmt: skip


def test_own_text_gets_a_mark_for_each_sentence_and_loses_no_letter(tmp_path: Path) -> None:
    body = (
        '<h1 id="h">I</h1><p>He said <i>yes</i> loudly. She said <b>no. Then</b> left.</p>'
        "<p>Caf&eacute; au&nbsp;lait&#8212;twice.<!-- c --> Done<br/>here. </p>"
        "<div>Bare text. <p>A par&shy;agraph.</p> Tail text.</div>"
    )
    small_epub(tmp_path / "in.epub", {"a b.xhtml": body, "second.xhtml": "<p>More.</p>"})
    sentences = [
        ("I", "OPS/text/a b.xhtml#h"),
        ("He said yes loudly.", "OPS/text/a b.xhtml"),
        ("She said no. Then left.", "OPS/text/a b.xhtml"),
        ("Café au lait—twice.", "OPS/text/a b.xhtml"),
        ("Done here.", "OPS/text/a b.xhtml"),
        ("Bare text.", "OPS/text/a b.xhtml"),
        ("A paragraph.", "OPS/text/a b.xhtml"),
        ("Tail text.", "OPS/text/a b.xhtml"),
        ("More.", "OPS/text/second.xhtml"),
        ("Spoken by nobody's pen.", ""),
    ]

    _, missing = make_read_along_of(
        tmp_path / "out.epub", tmp_path / "in.epub", spoken_book(sentences), encoder(tmp_path), AAC
    )

    found = check(tmp_path / "out.epub")
    assert missing == 1
    said = [clip[0].replace("\u00ad", "").replace("\u00a0", " ")
            for clips in found.values() for clip in clips]  # fmt: skip
    expected = [text for text, _ in sentences[:9]]
    expected[4] = "Donehere."  # a line break has no letters of its own
    assert said == expected
    with zipfile.ZipFile(tmp_path / "out.epub") as package:
        tree = etree.fromstring(package.read("OPS/text/a b.xhtml"))
    words = "".join("".join(tree.find("{*}body").itertext()).split())
    assert words.startswith("IHesaidyesloudly.Shesaidno.Thenleft.Caf\u00e9aulait")
    assert words.endswith("Baretext.Apar\u00adagraph.Tailtext.")
    assert tree.find(".//{*}i").text == "yes"


def test_sentences_that_share_an_element_share_one_clip(tmp_path: Path) -> None:
    small_epub(tmp_path / "in.epub", {"a.xhtml": "<p>One <b>two. Three</b> four. Five.</p>"})
    sentences = [(text, "OPS/text/a.xhtml") for text in ("One two.", "Three four.", "Five.")]

    make_read_along_of(
        tmp_path / "out.epub", tmp_path / "in.epub", spoken_book(sentences), encoder(tmp_path), AAC
    )

    clips = check(tmp_path / "out.epub")["OPS/text/a.xhtml"]
    assert [clip[0] for clip in clips] == ["One two. Three four. Five.", "Five."]
    assert clips[0][3] == clips[1][2]


def test_an_epub_2_becomes_an_epub_3(tmp_path: Path) -> None:
    small_epub(tmp_path / "in.epub", {"a.xhtml": "<p>Hello.</p>"}, version="2.0")

    make_read_along_of(
        tmp_path / "out.epub", tmp_path / "in.epub",
        spoken_book([("Hello.", "OPS/text/a.xhtml")]), encoder(tmp_path), AAC,
    )  # fmt: skip

    assert check(tmp_path / "out.epub")["OPS/text/a.xhtml"][0][0] == "Hello."


def test_the_time_machine_keeps_its_text_and_gains_times(tmp_path: Path) -> None:
    source = BOOKS / "the-time-machine_standardebooks.epub"
    name = "epub/text/chapter-1.xhtml"
    with zipfile.ZipFile(source) as package:
        tree = etree.fromstring(package.read(name))
    paragraphs = [" ".join("".join(one.itertext()).split()) for one in tree.iter("{*}p")]
    sentences = [
        (part, name) for text in paragraphs for part in re.split(r"(?<=[.?!]) ", text) if part
    ]

    _, missing = make_read_along_of(
        tmp_path / "out.epub", source, spoken_book(sentences), encoder(tmp_path), AAC
    )

    clips = check(tmp_path / "out.epub")[name]
    assert missing == 0
    assert len(clips) > 0.95 * len(sentences)
    with zipfile.ZipFile(tmp_path / "out.epub") as package:
        after = etree.fromstring(package.read(name))
    before = ["".join("".join(one.find("{*}body").itertext()).split()) for one in (tree, after)]
    assert before[0] == before[1]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"x" * 1000])
def test_a_source_that_cannot_be_rewritten_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "in.epub").write_bytes(content)

    with pytest.raises(BookFileError) as caught:
        make_read_along_of(
            tmp_path / "out.epub", tmp_path / "in.epub", book(1), encoder(tmp_path), AAC
        )

    assert caught.value.code == "source_unreadable"
    assert not (tmp_path / "out.epub").exists()
