"""What is said in place of what is written, and what that does to pieces."""

from __future__ import annotations

import pytest

from synth.text.normalise import TextRejectedError
from synth.text.respeaking import Layer, Speech, SpokenPiece, respeak
from synth.text.rules import Budget, Rule, TooSlowError
from synth.text.segments import Piece, cut_text


def spoken(text: str, *rules: Rule, max_chars: int = 300) -> list[Piece]:
    pieces = cut_text(text, max_chars=max_chars)
    speech = Speech([Layer("mine", rules, "en")])
    return respeak(pieces, lambda speaker: speech, max_chars=max_chars, budget=Budget(5))


def replaced(*pieces: Piece) -> list[str]:
    """Return what was replaced in pieces, as it is written."""
    return [
        piece.text[change.start : change.end]
        for piece in pieces
        if isinstance(piece, SpokenPiece)
        for change in piece.changes
    ]


def test_written_text_stays_and_spoken_text_changes() -> None:
    text = "Ask Nguyen about it, please, today."
    (piece,) = spoken(text, Rule("Nguyen", "Win"))
    assert (piece.text, piece.spoken_text) == (text, "Ask Win about it, please, today.")
    assert isinstance(piece, SpokenPiece)
    assert replaced(piece) == ["Nguyen"]
    assert [(change.said, change.by) for change in piece.changes] == [("Win", "mine")]
    (piece,) = spoken("He um went um home with all of them um", Rule("um", ""))
    assert piece.spoken_text == "He went home with all of them"  # with single blanks


def test_piece_without_a_change_is_the_same_object() -> None:
    pieces = cut_text("Nothing of this sort is in here at all.", max_chars=300)
    assert respeak(pieces, lambda _: Speech(), max_chars=300, budget=Budget(5)) == pieces


def test_piece_that_grows_beyond_the_limit_is_cut_again_and_keeps_all_that_is_written() -> None:
    text = "The NATO treaty was signed by many, and NATO grew."
    rule = Rule("NATO", "North Atlantic Treaty Organisation")

    pieces = spoken(text, rule, max_chars=60)

    assert len(pieces) > 1
    assert all(len(piece.spoken_text) <= 60 for piece in pieces)
    assert " ".join(piece.text for piece in pieces).split() == text.split()
    assert " ".join(p.spoken_text for p in pieces).count("North Atlantic Treaty Organisation") == 2
    assert all(isinstance(piece, SpokenPiece) for piece in pieces)
    assert replaced(*pieces) == ["NATO", "NATO"]
    assert pieces[-1].pause_after_ms == 0
    assert all(piece.pause_after_ms > 0 for piece in pieces[:-1])


def test_one_replacement_longer_than_a_piece_is_cut_too() -> None:
    text = "It is about LLANFAIR today."
    pieces = spoken(text, Rule("LLANFAIR", "la " * 60), max_chars=40)
    assert all(len(piece.spoken_text) <= 40 for piece in pieces)
    assert "".join(p.spoken_text for p in pieces).count("la") == 60
    assert " ".join(p.text for p in pieces).split() == text.split()


def test_piece_with_nothing_left_to_speak_is_dropped_and_its_text_joins_a_neighbour() -> None:
    gone = "DELETED PASSAGE OF THE TEXT."
    rule = Rule(gone, "", "literal")
    first, last = "Chapter the first of this long book.", "It goes on here."

    pieces = spoken(f"{first}\n\n{gone}\n\n{last}", rule)
    # The first one joins the next, and changes stay at their words.
    joined = spoken(f"{gone}\n\nAsk Nguyen about it, please.", rule, Rule("Nguyen", "Win"))

    assert [piece.spoken_text for piece in pieces] == [first, last]
    assert pieces[0].text.endswith(gone)
    assert (len(joined), replaced(*joined)) == (1, ["Nguyen"])


def test_time_over_names_the_rule() -> None:
    pieces = cut_text("a" * 250 + "!", max_chars=300)
    rule = Rule("(a|aa)+$", "x", "regex")
    speech = Speech([Layer("mine", [rule], "en")])
    with pytest.raises(TooSlowError) as slow:
        respeak(pieces, lambda _: speech, max_chars=300, budget=Budget(0.2))
    assert slow.value.rule == rule


def test_tag_of_the_speaker_stays_in_the_text_and_each_speaker_has_rules_of_their_own() -> None:
    pieces = cut_text(
        "<|speaker:0|>The word data is said so. <|speaker:1|>The word data is said thus.",
        max_chars=300,
    )
    speeches = {
        number: Speech([Layer("mine", [Rule("data", said)], "en")])
        for number, said in enumerate(["dayta", "dahta"])
    }

    first, second = respeak(pieces, speeches.__getitem__, max_chars=300, budget=Budget(5))

    assert first.spoken_text == "The word dayta is said so."
    assert second.spoken_text == "The word dahta is said thus."
    assert second.text == "<|speaker:1|>The word data is said thus."
    assert replaced(second) == ["data"]


@pytest.mark.parametrize(
    ("text", "rule", "code"),
    [
        ("Hello, hello.", Rule("hello", ""), "text_unspeakable"),
        ("a " * 3000, Rule("a", "bla " * 100), "spoken_too_long"),
        ("It is < here.", Rule("(<)", r"\1|speaker:3|>", "regex"), "spoken_invalid"),
    ],
    ids=["nothing_is_left", "grows_without_bound", "tag_of_a_speaker"],
)
def test_what_cannot_be_spoken_is_refused(text: str, rule: Rule, code: str) -> None:
    with pytest.raises(TextRejectedError) as refused:
        spoken(text, rule)
    assert refused.value.code == code
