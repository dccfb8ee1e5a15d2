"""Hold the sentence cutter to texts that sentencex alone cuts too early."""

from __future__ import annotations

import time

import pytest

from synth.text.sentences import cut_long, is_inside_character, split_sentences

# ruff: noqa: RUF001  # look-alikes of ASCII are part of the data


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ['He said "Stop it! Now." ', "Then he left. ", "“Who? Me?” she asked. ", "Yes."]),
        ("ja", ["彼は「行くよ。待って！」と言った。", "そして去った。", "「はい。」", "次。"]),
        ("en", ["Dr. Smith met Mr. J. R. R. Tolkien at 3.14 p.m. in the U.S. ", "He paid $3.50."]),
        ("en", ["Wait... what? ", "Well… maybe. ", "And so... he went."]),
        ("en", ["Visit https://example.com/a.b?c=d. ", "Then www.x.org is next."]),
        ("en", ["George W. Bush. ", "See vol. iv. for more. ", "No. 5 is good."]),
        ("en", ["It costs 1.5 million. ", "2. Second item."]),
        ("en", ["!!! Really?! ", "Yes!!! ", "(He did. It was fine.) Done."]),
        ("de", ["Das ist z. B. gut. ", "Am 3. Mai kam er. ", "»Ja. Nein.« ", "Gut."]),
        ("fr", ["M. de Tréville vint. ", "Il dit."]),
        ("fr", ["Mme. Dupont arriva. ", "Bien."]),
        ("zh", ["他说：“你好。再见。”", "然后走了。"]),
        ("hi", ["नमस्ते। ", "आप कैसे हैं। ", "ठीक।"]),
        ("ar", ["مرحبا؟ ", "نعم. ", "كيف حالك؟"]),
        ("en", ["hello there. ", "how are you. ", "fine."]),
        ("en", ['"Quote never closed. ', "Another one. ", "Third."]),
        ("xx-Unknown", ["One here. ", "Two here."]),
        ("", ["One here. ", "Two here."]),
    ],
)
def test_text_is_cut_between_its_sentences(language: str, sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), language) == sentences


def test_sentences_are_the_same_however_long_they_and_the_paragraph_are() -> None:
    sentences = [f"Sentence {n}, of Mr. Smith and “his. Friends,” is here. " for n in range(300)]
    assert split_sentences("".join(sentences)) == sentences
    text = "word " * 3000 + "end. "
    assert split_sentences(text + "Next one.") == [text, "Next one."]


def test_join_of_the_sentences_is_the_text_again() -> None:
    for text in ("", " ", "...", "」」」", ". . .", "a"):
        assert "".join(split_sentences(text)) == text, repr(text)


@pytest.mark.parametrize(
    "unit",
    [
        *("a. ", '" ', "(A. "),
        *(
            pytest.param(u, marks=pytest.mark.thorough)
            for u in ("vol. Vol. ", "... ", "。", "」。")
        ),
    ],
)
def test_time_grows_no_faster_than_the_text(unit: str) -> None:
    started = time.process_time()
    split_sentences(unit * 100_000 + "a")
    assert time.process_time() - started < 5


def parts(text: str, max_chars: int) -> list[tuple[str, int]]:
    return [
        (text[start:end], pause) for start, end, pause in cut_long(text, 0, len(text), max_chars)
    ]


@pytest.mark.parametrize(
    ("text", "max_chars", "expected"),
    [
        ("“One ends here. Two, is here, and goes on.”", 30,
         [("“One ends here.", 300), ("Two, is here, and goes on.”", 300)]),
        ("first, a clause; then, another one", 25,
         [("first, a clause;", 150), ("then, another one", 300)]),
        ("a price of 1,000.50 at 12:30, nothing more to say", 40,
         [("a price of 1,000.50 at 12:30,", 150), ("nothing more to say", 300)]),
        ("one two three four", 10, [("one two", 50), ("three four", 300)]),
        ("abcdefghij", 4, [("abcd", 0), ("efgh", 0), ("ij", 300)]),
        ("これは長い文で、途中に読点がある", 10,
         [("これは長い文で、", 150), ("途中に読点がある", 300)]),
        ("short", 5, [("short", 300)]),
    ],
)  # fmt: skip
def test_long_sentence_is_cut_at_its_best_places(
    text: str, max_chars: int, expected: list[tuple[str, int]]
) -> None:
    assert parts(text, max_chars) == expected


def test_parts_come_out_even_and_not_as_a_full_one_and_a_rest() -> None:
    lengths = [len(part) for part, _ in parts("word " * 13 + "end", 60)]
    assert len(lengths) == 2
    assert max(lengths) - min(lengths) <= 10


@pytest.mark.parametrize(
    "character",
    ["x\u0301\u0323", "👩\u200d🚀", "👍🏽", "🇩🇪", "क्ष", "\u1112\u1161\u11ab", "❤\ufe0f"],
)
def test_no_cut_falls_inside_a_written_character(character: str) -> None:
    text = character * 40
    for part, _ in parts(text, 17):
        assert len(part) <= 17
        assert len(part) % len(character) == 0


def test_a_character_longer_than_the_limit_is_cut_all_the_same() -> None:
    assert max(len(part) for part, _ in parts("z" + "\u0308" * 100, 10)) == 10
    assert [is_inside_character("abc", place) for place in range(4)] == [False] * 4


@pytest.mark.parametrize(
    "unit",
    [
        *("x\u0301", "word "),
        *(pytest.param(unit, marks=pytest.mark.thorough) for unit in ("🇩🇪", "a,", "\u0301")),
    ],
)
def test_time_of_cutting_grows_no_faster_than_the_text(unit: str) -> None:
    started = time.process_time()
    parts(unit * 200_000, 60)
    assert time.process_time() - started < 5
