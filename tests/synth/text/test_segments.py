"""Hold the cutting of texts to: nothing lost, doubled or too long, and the right pauses."""

from __future__ import annotations

import random
import time

import pytest

from synth.text.normalise import TextRejectedError, clean_text, is_speakable
from synth.text.pauses import Pauses
from synth.text.segments import Piece, cut_text

# ruff: noqa: RUF001  # look-alikes of ASCII are part of the data


SCRAPS = [
    "Hello there.", "Dr. Who", "e.g. this", "3.14", "http://a.b/c?d=e.f", "“Yes!”", "she said",
    "彼は「待って！」と言った。", "…", "...", "* * *", "<|speaker:0|>", "<|speaker:12|>", "\n",
    "\n\n", "\r\n\r\n", " ", "\t", "e\u0301", "👩\u200d🚀", "🇩🇪", "Chapter One\n\n", "- item",
    "2. two",
    "longwordwithoutanyblank" * 5, "नमस्ते।", "،", ";", ":", "—", "(", ")", "<|im_end|>", "\u0308",
]  # fmt: skip


def spoken(text: str, max_chars: int = 300) -> list[str]:
    return [piece.spoken_text for piece in cut_text(text, max_chars=max_chars)]


def pauses(text: str) -> list[int]:
    return [piece.pause_after_ms for piece in cut_text(text, max_chars=300)]


def test_every_character_is_in_exactly_one_piece_and_none_is_too_long() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        scraps = (rng.choice(SCRAPS) + rng.choice(["", " "]) for _ in range(rng.randint(1, 60)))
        text = clean_text("".join(scraps) + " end", max_chars=100_000)
        max_chars = rng.choice([1, 7, 20, 60, 300])
        pieces = cut_text(text, max_chars=max_chars)

        squeezed = "".join("".join(piece.text.split()) for piece in pieces)
        assert squeezed == "".join(text.split()), seed
        for said in (piece.spoken_text for piece in pieces):
            assert 0 < len(said) <= max_chars and is_speakable(said), seed
            assert "<|speaker:" not in said or max_chars <= 60, seed


def test_text_put_in_between_leaves_all_other_pieces_as_they_are() -> None:
    sentences = [f"Sentence number {n} of this paragraph is here." for n in range(9)]
    before = spoken(" ".join(sentences))
    after = spoken(" ".join([*sentences[:4], "One more was put in between them.", *sentences[4:]]))
    assert set(before) <= set(after)
    assert len(after) == len(before) + 1


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The first sentence is here now. The second sentence follows it.",
         ["The first sentence is here now.", "The second sentence follows it."]),
        ("Yes. He went to the market that day.", ["Yes. He went to the market that day."]),
        ("He went to the market that day. Yes.", ["He went to the market that day. Yes."]),
        ("No. No. No.", ["No. No. No."]),
        ("Yes.\n\nHe went.", ["Yes.", "He went."]),
        ("Yes. " + "X" * 60, ["Yes.", "X" * 60]),  # where no neighbour has room
        ("Chapter One\n\nHe came.", ["Chapter One", "He came."]),  # a heading never joins
        ("Roses are red\nViolets are blue", ["Roses are red", "Violets are blue"]),
    ],
)  # fmt: skip
def test_sentences_are_pieces_and_a_tiny_one_joins_a_neighbour_of_its_paragraph(
    text: str, pieces: list[str]
) -> None:
    assert spoken(text, 60) == pieces


def test_lines_that_wrap_a_paragraph_are_no_cuts_and_items_of_lists_are() -> None:
    text = (
        "It was the best of times, it was the worst of times, it\n"
        "was the age of wisdom, it was the age of foolishness, of\n"
        "Darkness and of Light."
    )
    items = "- the first item of a list that is quite long, as it seems to me\n- the second"
    assert spoken(text) == [text.replace("\n", " ")]
    assert spoken(items) == items.split("\n")


def test_pauses_are_those_of_the_cuts() -> None:
    text = (
        "Chapter One\n\nThe first sentence is here now. The second one ends the paragraph.\n\n"
        "Another paragraph stands before a scene break.\n\n* * *\n\nThe last words are these."
    )
    assert pauses(text) == [900, 300, 700, 1200, 0]


def test_ornaments_are_kept_in_the_text_and_not_spoken() -> None:
    pieces = cut_text("***\n\nHello.\n\n---", max_chars=60)
    assert pieces == [Piece("*** Hello. ---", "Hello.", 0)]


def test_speaker_tag_begins_a_piece_and_holds_until_the_next() -> None:
    text = "Before. <|speaker:1|>I am one.\n\nStill one. <|speaker:0|> And zero."
    pieces = cut_text(text, max_chars=300)
    assert [(piece.speaker, piece.spoken_text) for piece in pieces] == [
        (0, "Before."), (1, "I am one."), (1, "Still one."), (0, "And zero."),
    ]  # fmt: skip
    assert pieces[1].text == "<|speaker:1|>I am one."


def test_speaker_number_of_thousands_of_digits_is_no_error() -> None:
    assert cut_text(f"<|speaker:{'9' * 5000}|>Hello.", max_chars=300)[0].speaker == 9999


@pytest.mark.parametrize("text", ["...", "* * *", "😀", "<|speaker:0|>", "—\n\n—"])
def test_text_without_letters_and_digits_is_refused(text: str) -> None:
    with pytest.raises(TextRejectedError) as caught:
        cut_text(text, max_chars=60)
    assert caught.value.code == "text_unspeakable"
    with pytest.raises(ValueError, match="max_chars"):
        cut_text(text, max_chars=0)


@pytest.mark.parametrize(
    "unit",
    [
        *("word ", "<|speaker:0|>"),
        pytest.param("a\n\n***\n\n", marks=pytest.mark.thorough),
        pytest.param(
            "this line is long enough to be wrapped by someone\n", marks=pytest.mark.thorough
        ),
    ],
)
def test_time_grows_no_faster_than_the_text(unit: str) -> None:
    started = time.process_time()
    cut_text(unit * 40_000 + "a", max_chars=60)
    assert time.process_time() - started < 8


EVERY_PAUSE = """A heading

One sentence that is said here. Another sentence follows it.
- An item of a list.

* * *

<|speaker:1|>This speaker says so. <|speaker:2|>And that one does too.

It has, as is seen, a phrase; long ones have words without any marks to be cut at anywhere in them.
"""


def test_pauses_that_are_given_replace_the_ones_of_their_names_alone() -> None:
    names = ("sentence", "phrase", "word", "line", "speaker", "paragraph", "heading", "scene")
    usual = cut_text(EVERY_PAUSE, max_chars=40)
    lengths = {name: 1000 + place for place, name in enumerate(names)}

    given = cut_text(EVERY_PAUSE, max_chars=40, pauses=Pauses.of(lengths))

    said = [(piece.text, piece.spoken_text, piece.speaker) for piece in usual]
    assert [(piece.text, piece.spoken_text, piece.speaker) for piece in given] == said
    pairs = {(a.pause_after_ms, b.pause_after_ms) for a, b in zip(usual, given, strict=True)}
    assert pairs == {
        (0, 0), (300, 1000), (150, 1001), (50, 1002), (300, 1003), (300, 1004),
        (700, 1005), (900, 1006), (1200, 1007),
    }  # fmt: skip


def test_lines_and_speakers_pause_as_sentences_do_unless_told_otherwise() -> None:
    pauses = Pauses.of({"sentence": 20})
    assert (pauses.line, pauses.speaker, pauses.paragraph) == (20, 20, 700)
    assert Pauses.of({"sentence": 20, "speaker": 90}).speaker == 90


@pytest.mark.parametrize("lengths", [{"breath": 5}, {"sentence": -1}, {"word": 10_001}])
def test_pause_without_a_place_or_out_of_range_is_an_error(lengths: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no pause"):
        Pauses.of(lengths)


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ("one\r\ntwo\rthree\u2028four\x85five", "one\ntwo\nthree\nfour\nfive"),
        ("page\fpage\u2029page", "page\n\npage\n\npage"),
        ("e\u0301te\u0301", "\u00e9t\u00e9"),
        ("\ufeffzero\u200bwidth\u2060 soft\u00adhyphen\u202e", "zerowidth softhyphen"),
        ("bell\x07 escape\x1b[0m", "bell escape[0m"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d🚀 flies", "👩\u200d🚀 flies"),
        ("tab\tstays", "tab\tstays"),
        ("Caf\ufffd au lait", "Caf\ufffd au lait"),  # one stray character is no binary file
        ("x" * 100, "x" * 100),  # at the limit
    ],
)
def test_text_is_cleaned_of_what_cannot_be_seen(given: str, cleaned: str) -> None:
    assert clean_text(given, max_chars=100) == cleaned


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *((text, "text_empty") for text in
          ("", " ", "\n\t\r\n", "\u200b\ufeff", "\x01\x02", "\u3000\u00a0")),
        ("Hello\0 world", "text_not_text"),
        ("half a pair \ud83d here", "text_not_text"),
        (bytes(range(256)).decode("latin-1"), "text_not_text"),
        (bytes(range(128, 256)).decode("utf-8", "replace"), "text_not_text"),
        ("RIFF" + "\x01\x02\x03\x04" * 20, "text_not_text"),
        ("\ue000" * 50, "text_not_text"),
    ],
)  # fmt: skip
def test_blanks_controls_and_bytes_that_are_no_text_are_refused(text: str, code: str) -> None:
    with pytest.raises(TextRejectedError) as caught:
        clean_text(text, max_chars=10_000)
    assert caught.value.code == code


def test_text_over_the_limit_is_refused() -> None:
    with pytest.raises(TextRejectedError, match="11") as caught:
        clean_text("x" * 11, max_chars=10)
    assert caught.value.code == "text_too_long"


def test_letters_and_digits_of_any_script_are_speakable_and_marks_are_not() -> None:
    texts = ("a", "7", "é", "か", "٣", "½", "...x", "", "...", "* * *", "—", "😀", "?!")
    assert list(filter(is_speakable, texts)) == list(texts[:7])
