"""A read-along EPUB is whole, its times are exact, and its text is the book's."""

from __future__ import annotations

import dataclasses
import io
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lxml import etree

from tests.synth.books.documents import TIME_MACHINE
from tests.workers.book_files.epubs import Clips, check, small_epub
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
from workers.book_files.chapter_encodes import Encoder
from workers.book_files.read_along import make_read_along
from workers.book_files.read_along_source import make_read_along_of


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
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["book.epub", "book.m4b", "cache"]
    assert (work.encoded, work.reused) == (3, 3)
    assert len(found) == 3
    for (document, clips), encoded in zip(found.items(), made, strict=True):
        assert document.startswith("OEBPS/text/")
        assert [clip[0] for clip in clips] == [span.text for span in encoded.spans]
        starts = [span.start / RATE for span in encoded.spans]
        assert [clip[2] for clip in clips] == pytest.approx(starts, abs=1e-6)
        assert [clip[3] for clip in clips[:-1]] == [clip[2] for clip in clips[1:]]
        assert clips[-1][3] == pytest.approx(encoded.num_samples / RATE, abs=1e-6)
        with zipfile.ZipFile(tmp_path / "book.epub") as package:
            content = package.read(clips[0][1])
        with probe(io.BytesIO(content)) as opened:
            samples = sum(frame.samples for frame in opened.decode(audio=0))
        assert samples / RATE == pytest.approx(clips[-1][3], abs=1e-6)


def test_texts_of_any_kind_stay_well_formed(work: Encoder, tmp_path: Path) -> None:
    odd = spoken_book([("<b>&amp;\0 \ud800 ]]> \ufffe", ""), ("Ende „gut“.", "")])
    make_read_along(tmp_path / "book.epub", odd, work, AAC)
    assert [clip[0] for clip in next(iter(check(tmp_path / "book.epub").values()))] == [
        "<b>&amp; ]]>", "Ende „gut“."
    ]  # fmt: skip


class Own:
    """The read-along EPUB of a book's own, at `path`."""

    def __init__(self, folder: Path, work: Encoder) -> None:
        self.source, self.path, self._work = folder / "in.epub", folder / "out.epub", work

    def make(
        self, sentences: list[tuple[str, str]], documents: dict[str, str] | None = None, **form: str
    ) -> tuple[dict[str, Clips], int]:
        """Return the clips by document, and how many sentences have no place."""
        if documents is not None:
            small_epub(self.source, documents, **form)
        spoken = spoken_book(sentences)
        _, missing = make_read_along_of(self.path, self.source, spoken, self._work, AAC)
        return check(self.path), missing

    def document(self, name: str) -> Any:
        with zipfile.ZipFile(self.path) as package:
            return etree.fromstring(package.read(name))


@pytest.fixture
def own(work: Encoder, tmp_path: Path) -> Own:
    return Own(tmp_path, work)


def letters(tree: Any) -> str:
    return "".join("".join(tree.find("{*}body").itertext()).split())


def test_own_text_gets_a_mark_for_each_sentence_and_loses_no_letter(own: Own) -> None:
    body = (
        '<h1 id="h">I</h1><p>He said <i>yes</i> loudly. She said <b>no. Then</b> left.</p>'
        "<p>Caf&eacute; au&nbsp;lait&#8212;twice.<!-- c --> Done<br/>here. </p>"
        "<div>Bare text. <p>A par&shy;agraph.</p> Tail text.</div>"
    )
    texts = [
        *("He said yes loudly.", "She said no. Then left.", "Café au lait—twice.", "Done here."),
        *("Bare text.", "A paragraph.", "Tail text."),
    ]
    first, second = "OPS/text/a b.xhtml", "OPS/text/second.xhtml"
    sentences = [("I", f"{first}#h"), *((text, first) for text in texts), ("More.", second)]

    found, missing = own.make(
        [*sentences, ("Spoken by nobody's pen.", "")],
        {"a b.xhtml": body, "second.xhtml": "<p>More.</p>"},
    )

    assert missing == 1
    said = [clip[0].replace("\u00ad", "").replace("\u00a0", " ")
            for name in (first, second) for clip in found[name]]  # fmt: skip
    expected = [text for text, _ in sentences]
    expected[4] = "Donehere."  # a line break has no letters of its own
    assert said == expected
    tree = own.document(first)
    assert letters(tree).startswith("IHesaidyesloudly.Shesaidno.Thenleft.Caf\u00e9aulait")
    assert letters(tree).endswith("Baretext.Apar\u00adagraph.Tailtext.")
    assert tree.find(".//{*}i").text == "yes"


def test_sentences_that_share_an_element_share_one_clip(own: Own) -> None:
    name = "OPS/text/a.xhtml"
    sentences = [(text, name) for text in ("One two.", "Three four.", "Five.")]
    found, _ = own.make(sentences, {"a.xhtml": "<p>One <b>two. Three</b> four. Five.</p>"})
    assert [clip[0] for clip in found[name]] == ["One two. Three four. Five.", "Five."]
    assert found[name][0][3] == found[name][1][2]


def test_an_epub_2_becomes_an_epub_3(own: Own) -> None:
    name = "OPS/text/a.xhtml"
    found, _ = own.make([("Hello.", name)], {"a.xhtml": "<p>Hello.</p>"}, version="2.0")
    assert found[name][0][0] == "Hello."


def test_the_time_machine_keeps_its_text_and_gains_times(own: Own) -> None:
    own.source, name = TIME_MACHINE, "epub/text/chapter-1.xhtml"
    with zipfile.ZipFile(TIME_MACHINE) as package:
        tree = etree.fromstring(package.read(name))
    paragraphs = [" ".join("".join(one.itertext()).split()) for one in tree.iter("{*}p")]
    sentences = [
        (part, name) for text in paragraphs for part in re.split(r"(?<=[.?!]) ", text) if part
    ]

    found, missing = own.make(sentences)

    assert missing == 0
    assert len(found[name]) > 0.95 * len(sentences)
    assert letters(own.document(name)) == letters(tree)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no zip", b"x" * 1000])
def test_a_source_that_cannot_be_rewritten_is_refused(content: bytes, own: Own) -> None:
    own.source.write_bytes(content)
    with pytest.raises(BookFileError) as caught:
        own.make([("Hello.", "a.xhtml")])
    assert caught.value.code == "source_unreadable"
    assert not own.path.exists()
