"""Dialogue is found by the marks of each language, and no character is lost or doubled."""

# ruff: noqa: RUF001  # quotation marks and dashes are what this module is about

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from synth.books.dialogue import DialogueReader
from synth.text.normalise import is_speakable


def shown(text: str, language: str) -> str:
    """Return a paragraph with what is said in brackets."""
    spans = DialogueReader().split(text, language)
    assert "".join(span.text for span in spans) == text
    return "".join(f"[{span.text}]" if span.is_dialogue else span.text for span in spans)


CASES = {
    "curly": ("en", "[“Come here,”] said Alice, [“and sit.”]"),
    "british": ("en-GB", "[‘Come,’] said Bob. [‘It’s the boys’ house, isn’t it?’] He went."),
    "straight": ("en", '["Hello," ]he said. ["Good-bye." ]A 5" nail.'),
    "straight-single": ("en", "['Come,'] said Bob. ['It's the boys' house.'] 'Tis late."),
    "nested-single": ("en", "[“He told me ‘go’ and I went,”] she said."),
    "nested-double": ("en", "[‘He said “go,” and left,’] she said."),
    "nested-same": ("en", "[“A “nested” word,”] he said."),
    "dash-around": ("en", "[“Stop”]—he raised his hand—[“or I shoot.”]"),
    "decade": ("en", "He loved the '60s. ['Yes,'] she said."),
    "elision-alone": ("en", "’Twas late, and the boys’ dog slept."),
    "one-word-said": ("en", "[“Yes!”] he said."),
    "german": ("de", "[„Ja“,] sagte er. [„Komm her und setz dich!“] Er ging."),
    "german-guillemets": ("de-CH", "[»Hallo«,] rief er, [»wer ist da?«]"),
    "german-typewriter": ("de", '[„Halt",] sagte er.'),
    "french": ("fr", "[« Bonjour,] dit-il,[ comment allez-vous ? »] Il partit."),
    "french-dash": ("fr", "[— Où vas-tu ?] demanda Pierre.[ Viens ici.]"),
    "french-semicolon": ("fr", "[«Je pars,] dit-elle;[ il est tard.»]"),
    "french-quote-within": ("fr", "[—Bien.«C'est lui!»] pensa-t-elle."),
    "french-hyphens": ("fr", "[--Si!] fit-il."),
    "french-question": ("fr", "[— Viens, dis-moi tout.]"),
    "spanish": ("es", "[—Hola ]—dijo Juan—.[ ¿Cómo estás? ]—preguntó."),
    "spanish-all": ("es-MX", "[—No lo sé.]"),
    "italian-dash": ("it", "[— Ciao ]— disse Marco. [— Come stai?]"),
    "italian": ("it", "[«Ciao»] disse Marco."),
    "portuguese": ("pt-BR", "[— Olá, tudo bem? ]— perguntou João. [— Vamos?]"),
    "polish": ("pl", "[— Dzień dobry ]— powiedział. [— Jak się masz?]"),
    "russian": ("ru", "[— Привет, ]— сказал он. [— Москва — столица.]"),
    "russian-colon": ("ru", "Он сказал: [— Иди сюда.]"),
    "russian-guillemets": ("ru", "[«Иди сюда»,] — сказал он."),
    "finnish": ("fi", "[”Hei”,] hän sanoi."),
    "japanese": ("ja", "[「はい」]と彼は言った。[「行きましょう。」]"),
    "chinese": ("zh", "他说：[“你好。”]然后走了。"),
    "no-language": ("", "[“Come,”] he said."),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_is_dialogue_and_the_words_about_it_are_not(name: str) -> None:
    language, expected = CASES[name]
    text = expected.replace("[", "").replace("]", "")
    found, wanted = (
        one.replace(" ]", "] ").replace("[ ", " [") for one in (shown(text, language), expected)
    )
    assert found == wanted


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "He called it “freedom” and left."),
        ("en", "The “office,” as he called it, was small."),
        ("en", "He read “The Adventures of Sherlock Holmes” aloud."),
        ("en", "“Freedom” was a word that he hated."),
        ("en", "The ‘dear old’ man went on."),
        ("de", "Er nannte es „Freiheit“ und ging."),
        ("ja", "彼は「自由」を愛した。"),
        ("en", "A plain sentence — with a dash — and the dogs' bones."),
        ("ru", "Москва — столица."),
        ("en", "—"),
        ("en", ""),
    ],
    ids=lambda one: one[:12] or "empty",
)
def test_words_in_marks_inside_a_sentence_are_the_narrators(language: str, text: str) -> None:
    assert shown(text, language) == text


@pytest.mark.parametrize(
    ("language", "paragraphs", "said"),
    [
        ("en", ["“Never closed, he said, and went on.", "The rain fell."], [[True], [False]]),
        ("en", ["“First.", "“Second.", "“Third.” He sat."], [[True], [True], [True, False]]),
        ("fr", ["« Un.", "» Deux.", "» Trois. » Il partit."], [[True], [True], [True, False]]),
        ("fr", ["« Un.", None, "» Deux."], [[True], [False]]),  # interrupted
    ],
)
def test_quotes_that_go_on_repeat_their_mark_at_each_paragraph(
    language: str, paragraphs: list[str | None], said: list[list[bool]]
) -> None:
    reader = DialogueReader()
    found = []
    for paragraph in paragraphs:
        if paragraph is None:
            reader.interrupt()
        else:
            found.append([span.is_dialogue for span in reader.split(paragraph, language)])
    assert found == said


@pytest.mark.parametrize("language", ["en", "fr", "de", "es", "ru", "it", "ja", "sv", ""])
def test_no_markup_loses_characters_or_leaves_a_part_that_cannot_be_spoken(language: str) -> None:
    seeded = random.Random(f"dialogue {language}")
    marks = "“”„«»‘’'\"—–-「」 ,.!?…:;()\n"
    words = ["Ja", "come", "l’ami", "dit-il", "dijo", "Он", "好", "7", "O'Neil", "said"]
    reader = DialogueReader()
    for _ in range(3000):
        parts = [
            seeded.choice(marks) if seeded.random() < 0.55 else seeded.choice(words)
            for _ in range(seeded.randrange(25))
        ]
        text = "".join(parts)

        spans = reader.split(text, language)

        assert "".join(span.text for span in spans) == text
        assert all(is_speakable(span.text) for span in spans) or len(spans) == 1
        assert all(a.is_dialogue != b.is_dialogue for a, b in pairwise(spans))


@pytest.mark.parametrize(
    "part",
    [
        *("“w, ", '"w, ', "«w, "),
        *(
            pytest.param(p, marks=pytest.mark.thorough)
            for p in ("‘w, ", "'w, ", "“w,” x ", "“w ‘x’ y” ")
        ),
    ],
)
def test_a_long_paragraph_of_many_marks_is_read_in_linear_time(part: str) -> None:
    text = part * 150_000  # squares of that would take hours
    spans = DialogueReader().split(text, "fr" if "«" in part else "en")
    assert "".join(span.text for span in spans) == text
