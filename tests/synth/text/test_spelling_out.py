"""What is spelled out in each language, and what is left alone."""

from __future__ import annotations

import random
import subprocess
import sys
import time

import pytest

from synth.text.languages import has_rules
from synth.text.numbers import roman_value, say_numerals
from synth.text.pauses import DEFAULT_PAUSES
from synth.text.respeaking import Speech, respeak
from synth.text.rules import Budget
from synth.text.segments import Piece, cut_text
from synth.text.speller import places_inside, speller


def said(text: str, language: str = "en") -> str:
    spell = speller(language)
    assert spell is not None
    spoken, place = "", 0
    for start, end, words in spell(text):
        assert start >= place
        spoken += text[place:start] + words
        place = end
    return spoken + text[place:]


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/1/2?x=3", "www.example.org/5", "a1@b2.com", "example.com/7",
        "v1.2.3", "192.168.0.1", "555-1234", "+49 170 1234567", "A4 paper, 3D, B2B, x86", "1/2",
        "12345678901234567890", "<|speaker:1|>", "[laugh 3 times]", "Chapter I think of",
        "I am. It mix.", "2024-13-45", "25:61", "5/6/2026", "snake_1", "Is it? No.", "Mt.",
    ],
)  # fmt: skip
def test_what_is_not_understood_for_certain_stays(text: str) -> None:
    assert said(text) == text


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "1,234 apples", "one thousand two hundred thirty-four apples"),
        ("en", "3.14", "three point one four"),
        ("en", "-5 and (-2.5)", "minus five and (minus two point five)"),
        ("en", "007", "zero zero seven"),
        ("en", "007,123", "zero zero seven one two three"),
        (
            "en",
            "1st, 2nd, 3rd, 11th, 21st, 3th",
            "first, second, third, eleventh, twenty-first, 3th",
        ),
        (
            "en",
            "in 1984, 2005 and 2024",
            "in nineteen eighty-four, two thousand five and twenty twenty-four",
        ),
        ("en", "the 1990s", "the nineteen nineties"),
        ("en", "$3.50", "three dollars and fifty cents"),
        ("en", "$1, £1, €0.99", "one dollar, one pound, ninety-nine cents"),
        ("en", "$1.01", "one dollar and one cent"),
        ("en", "$1.5 million", "one point five million dollars"),
        ("en", "5 EUR", "five euros"),
        ("en", "12.5% of 100 %", "twelve point five percent of one hundred percent"),
        ("en", "5 km at 20 °C, 1 kg", "five kilometers at twenty degrees Celsius, one kilogram"),
        ("en", "9:05 am, 14:30, 9:00", "nine oh five a m, fourteen thirty, nine o'clock"),
        ("en", "3 p.m.", "three p m."),
        ("en", "2024-02-29", "February twenty-ninth, twenty twenty-four"),
        ("en", "May 5, 2026", "May fifth, twenty twenty-six"),
        ("en", "5 May 2026", "the fifth of May twenty twenty-six"),
        ("en", "Dr. Smith and Mr. Jones", "Doctor Smith and Mister Jones"),
        ("en", "No. 5, etc.", "number five, et cetera."),
        ("en", "Chapter IV and Part II", "Chapter four and Part two"),
        ("en", "Henry VIII", "Henry the eighth"),
        ("en", "COVID-19 is 5-year-old news", "COVID-nineteen is five-year-old news"),
        ("de", "1.234,5", "eintausendzweihundertvierunddreißig Komma fünf"),
        ("de", "3,50 €", "drei Euro fünfzig"),
        ("de", "1 km", "ein Kilometer"),
        ("de", "1984", "neunzehnhundertvierundachtzig"),
        ("de", "am 3. Mai 2026", "am dritten Mai zweitausendsechsundzwanzig"),
        ("de", "der 3. Mann", "der dritte Mann"),
        ("de", "05.06.2026", "fünfter Juni zweitausendsechsundzwanzig"),
        ("de", "14:30 Uhr", "vierzehn Uhr dreißig"),
        ("de", "z. B. Dr. Meier", "zum Beispiel Doktor Meier"),
        ("de", "Ludwig XIV. kam", "Ludwig der Vierzehnte kam"),
        ("de-AT", "12 %", "zwölf Prozent"),
        ("fr", "3,50 €", "trois euros cinquante"),
        ("fr", "1 234", "mille deux cent trente-quatre"),
        ("fr", "le 1er mai", "le premier mai"),
        ("fr", "14h30", "quatorze heures trente"),
        ("fr", "1 h", "une heure"),
        ("fr", "M. Dupont, Mme Curie", "Monsieur Dupont, Madame Curie"),
        ("fr", "le XIXe siècle", "le dix-neuvième siècle"),
        ("fr", "3,14", "trois virgule quatorze"),
        ("es", "1.234,56", "mil doscientos treinta y cuatro coma cincuenta y seis"),
        ("es", "el Sr. Pérez", "el Señor Pérez"),
        ("es", "1º y 2ª", "primero y segunda"),
        ("es", "siglo XIX", "siglo diecinueve"),
        ("es", "05/06/2026", "cinco de junio de dos mil veintiséis"),
        ("es", "21 km", "veintiún kilómetros"),
        ("it", "3,50 €", "tre euro e cinquanta"),
        ("it", "il 1 maggio", "il primo maggio"),
        ("it", "1 kg, 20 °C", "un chilogrammo, venti gradi Celsius"),
        ("it", "ecc.", "eccetera."),
        ("nl", "1984", "negentienhonderdvierentachtig"),
        ("nl", "om 14:30 uur", "om veertien uur dertig"),
        ("nl", "bijv. € 3,50", "bijvoorbeeld drie euro vijftig"),
        ("nl", "de 1e en 2de", "de eerste en tweede"),
        ("pt", "R$ 3,50", "três reais e cinquenta centavos"),
        ("pt-BR", "2026", "dois mil e vinte e seis"),
        ("pt", "às 14h30", "às catorze e trinta"),
        ("pt", "Sra. Silva", "Senhora Silva"),
    ],
)
def test_text_is_spelled_out(language: str, text: str, expected: str) -> None:
    assert said(text, language) == expected


def test_language_without_rules_has_no_speller() -> None:
    for language in ("ja", "zh-Hans", "fi", "", "x"):
        assert speller(language) is None, language
        assert not has_rules(language), language


def test_only_numerals_as_they_are_written_are_read() -> None:
    values = {"IV": 4, "MCMXCIX": 1999, "I": 1, "IIII": 0, "VX": 0, "IC": 0, "MMMM": 0}
    assert {numeral: roman_value(numeral) for numeral in values} == values


def test_long_text_of_numbers_takes_seconds_at_most() -> None:
    spell = speller("en")
    assert spell is not None
    started = time.process_time()
    for _ in range(700):  # about 200,000 characters, in pieces as they are cut
        spell("On May 5, 2026 it cost $3.50 at 9:05 am, or 1,234 km; see Dr. Smith No. 5. " * 4)
    assert time.process_time() - started < 20


@pytest.mark.parametrize("text", ["1" * 300, "1,111" * 60, "." * 300, "a@" * 150, "I" * 300,
                                  "1:" * 150, "www." * 75, "- " * 150, "1 " * 150])  # fmt: skip
def test_odd_text_takes_no_time(text: str) -> None:
    started = time.process_time()
    for language in ("en", "de", "fr"):
        said(text, language)
    assert time.process_time() - started < 2


def test_rules_of_numbers_are_imported_only_when_a_number_is_spelled() -> None:
    code = (
        "import sys; from synth.text.speller import speller; "
        "assert 'unicode_rbnf' not in sys.modules; "
        "speller('en')('5 apples'); assert 'unicode_rbnf' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("heading", "language", "said"),
    [
        ("X", "en-GB", "ten"),
        ("I", "en", "one"),
        ("XII.", "en", "twelve."),
        ("IV. The Return", "en", "four. The Return"),
        ("III: Paris", "fr", "trois: Paris"),
        ("IX — Der Weg", "de", "neun — Der Weg"),
        ("CXLIV", "en", "one hundred forty-four"),
        ("Chapter XIV", "en", "Chapter fourteen"),
        ("Chapitre XIV", "fr", "Chapitre quatorze"),
        ("I Remember Mama", "en", "I Remember Mama"),
        ("X marks the spot", "en", "X marks the spot"),
        ("MIX", "en", "MIX"),
        ("IIII", "en", "IIII"),
        ("Epilogue", "en", "Epilogue"),
        ("I. C. E.", "de", "eins. C. E."),
        ("X", "ja", "X"),
        ("", "en", ""),
    ],
)
def test_heading_is_said(heading: str, language: str, said: str) -> None:
    assert say_numerals(heading, language) == said


EXPRESSIONS = {
    "en": (
        "3 May 2026", "May 3rd, 2026", "3:30 p.m.", "$3.5 million", "12 345 km", "1,234,567.89",
        "45 %", "-20 °C", "5/6/2026", "$3.50", "the 2nd", "3 of May",
    ),
    "de": (
        "3. Mai 2026", "14:30 Uhr", "3,5 Millionen €", "12 345 km", "1.234.567,89 €", "45 %",
        "3.5.2026", "20 °C",
    ),
    "fr": ("3 mai 2026", "1er mai", "14 h 30", "3 500,50 €", "12 345 km", "45 %", "20 °C"),
    "es": ("3 de mayo de 2026", "14:30", "3.500,50 €", "12.345 km", "45 %"),
    "it": ("3 maggio 2026", "14:30", "3.500,50 €", "12.345 km", "45 %"),
    "nl": ("3 mei 2026", "14:30", "€ 3.500,50", "12.345 km", "45 %"),
    "pt": ("3 de maio de 2026", "14:30", "3.500,50 €", "12.345 km", "45 %"),
    "pl": ("12 345,67", "45 %", "14:30", "€ 500"),
    "zh": ("12,345.67", "5月", "14:30"),
}  # fmt: skip
WORDS = ("and", "alphabet", "so", "considerably", "—", "oder", "longer", "é", "is;", "he,", "it.")


def squeezed(text: str) -> str:
    return "".join(text.split())


def text_of(language: str, rng: random.Random) -> tuple[str, list[tuple[int, int]]]:
    """Return a text of words and expressions, and where the latter are but for blanks.

    Two expressions never stand side by side, where nobody could tell which sign is whose.
    """
    text, spans = "", []
    may = False
    for _ in range(rng.randint(3, 25)):
        may = not may and rng.random() < 0.6
        if may:
            one = rng.choice(EXPRESSIONS[language])
            start = len(squeezed(text))
            spans.append((start, start + len(squeezed(one))))
        else:
            one = rng.choice(WORDS)
        text += f"{one} "
    return f"{text}end.", spans


def borders(pieces: list[Piece]) -> set[int]:
    """Return where pieces end in their text without blanks."""
    place, found = 0, set()
    for piece in pieces:
        place += len(squeezed(piece.text))
        found.add(place)
    return found


@pytest.mark.parametrize("language", sorted(EXPRESSIONS))
def test_no_expression_is_divided_and_every_character_is_in_one_piece(language: str) -> None:
    for seed in range(12):
        rng = random.Random(f"{language} {seed}")
        text, spans = text_of(language, rng)
        max_chars = rng.choice([20, 24, 33, 47, 80])
        pieces = cut_text(text, max_chars=max_chars, language=language)

        whole = squeezed(text)
        assert squeezed("".join(piece.text for piece in pieces)) == whole, seed
        assert all(0 < len(piece.spoken_text) <= max_chars for piece in pieces), seed
        cuts = borders(pieces)
        divided = [whole[a:b] for a, b in spans if any(a < cut < b for cut in cuts)]
        assert divided == [], seed


@pytest.mark.parametrize("language", ["de", "en", "es", "fr", "it", "nl", "pt"])
def test_what_is_spelled_out_of_pieces_is_what_is_spelled_out_of_the_whole(language: str) -> None:
    spell_out = speller(language)
    assert spell_out is not None

    def numbers(text: str) -> list[str]:
        """Return what digits of a text are said as; what ends a sentence keeps its full stop."""
        return [
            said.rstrip(".")
            for start, end, said in spell_out(text)
            if any(map(str.isdigit, text[start:end]))
        ]

    for seed in range(8):
        text, _ = text_of(language, random.Random(f"{language} {seed}"))
        pieces = cut_text(text, max_chars=60, language=language)

        parts = [one for piece in pieces for one in numbers(piece.spoken_text)]
        assert parts == numbers(text), seed


@pytest.mark.parametrize(
    ("text", "language", "pieces"),
    [
        ("Das Treffen war am 3. Mai 2026 in Bonn.", "de",
         ["Das Treffen war am", "3. Mai 2026 in Bonn."]),
        ("It was on the 3rd of May 2026 that he came.", "en",
         ["It was on", "the 3rd of May 2026", "that he came."]),
        ("Il est parti le 3 mai 2026 à midi.", "fr", ["Il est parti le", "3 mai 2026 à midi."]),
    ],
)  # fmt: skip
def test_part_ends_before_what_belongs_together(
    text: str, language: str, pieces: list[str]
) -> None:
    cut = cut_text(text, max_chars=22, language=language)
    assert [piece.spoken_text for piece in cut] == pieces


def test_expression_that_is_longer_than_a_piece_is_divided_at_its_blanks_or_anywhere() -> None:
    pieces = cut_text("1 234 567 890 123 456 789", max_chars=10)
    digits = [piece.spoken_text for piece in cut_text("7" * 1000, max_chars=60)]
    assert [piece.spoken_text for piece in pieces] == ["1 234 567", "890 123", "456 789"]
    assert "".join(digits) == "7" * 1000
    assert all(len(part) <= 60 for part in digits)


def test_piece_that_has_grown_keeps_what_a_date_became_together() -> None:
    text = "They met on May 3rd, 2026 and paid $3.50 for it, and nobody ever knew."
    speech = Speech(spell_out=speller("en"), language="en")
    (piece,) = cut_text(text, max_chars=75)

    parts = respeak(
        [piece], lambda _: speech, max_chars=75, budget=Budget(5), pauses=DEFAULT_PAUSES
    )

    spoken = [part.spoken_text for part in parts]
    assert len(spoken) == 2
    assert any("three dollars and fifty cents" in part for part in spoken)
    assert any("May third, twenty twenty-six" in part for part in spoken)


def test_looking_costs_nothing_where_no_digits_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(language: str) -> None:
        raise AssertionError("asked for")

    monkeypatch.setattr("synth.text.speller.speller", never)
    inside = places_inside("No digit is anywhere in this text. " * 50)

    assert not any(inside(place) for place in range(1700))
