"""What is spelled out in each language, and what is left alone."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from synth.text.spelling.romans import roman_value
from synth.text.spelling.speller import has_rules, speller


def said(text: str, language: str = "en") -> str:
    spell = speller(language)
    assert spell is not None
    spoken, place = "", 0
    for start, end, words in spell(text):
        assert start >= place
        spoken += text[place:start] + words
        place = end
    return spoken + text[place:]


ENGLISH = [
    ("1,234 apples", "one thousand two hundred thirty-four apples"),
    ("3.14", "three point one four"),
    ("-5 and (-2.5)", "minus five and (minus two point five)"),
    ("007", "zero zero seven"),
    ("1st, 2nd, 3rd, 11th, 21st, 3th", "first, second, third, eleventh, twenty-first, 3th"),
    ("in 1984, 2005 and 2024", "in nineteen eighty-four, two thousand five and twenty twenty-four"),
    ("the 1990s", "the nineteen nineties"),
    ("$3.50", "three dollars and fifty cents"),
    ("$1, £1, €0.99", "one dollar, one pound, ninety-nine cents"),
    ("$1.01", "one dollar and one cent"),
    ("$1.5 million", "one point five million dollars"),
    ("5 EUR", "five euros"),
    ("12.5% of 100 %", "twelve point five percent of one hundred percent"),
    ("5 km at 20 °C, 1 kg", "five kilometers at twenty degrees Celsius, one kilogram"),
    ("9:05 am, 14:30, 9:00", "nine oh five a m, fourteen thirty, nine o'clock"),
    ("3 p.m.", "three p m."),
    ("2024-02-29", "February twenty-ninth, twenty twenty-four"),
    ("May 5, 2026", "May fifth, twenty twenty-six"),
    ("5 May 2026", "the fifth of May twenty twenty-six"),
    ("Dr. Smith and Mr. Jones", "Doctor Smith and Mister Jones"),
    ("No. 5, etc.", "number five, et cetera."),
    ("Chapter IV and Part II", "Chapter four and Part two"),
    ("Henry VIII", "Henry the eighth"),
    ("COVID-19 is 5-year-old news", "COVID-nineteen is five-year-old news"),
]


@pytest.mark.parametrize(("text", "expected"), ENGLISH)
def test_english_is_spelled_out(text: str, expected: str) -> None:
    assert said(text) == expected


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
def test_other_languages_are_spelled_out(language: str, text: str, expected: str) -> None:
    assert said(text, language) == expected


@pytest.mark.parametrize("language", ["ja", "zh-Hans", "fi", "", "x"])
def test_language_without_rules_has_no_speller(language: str) -> None:
    assert speller(language) is None
    assert not has_rules(language)


@pytest.mark.parametrize(
    ("numeral", "value"),
    [("IV", 4), ("MCMXCIX", 1999), ("I", 1), ("IIII", 0), ("VX", 0), ("IC", 0), ("MMMM", 0)],
)
def test_only_numerals_as_they_are_written_are_read(numeral: str, value: int) -> None:
    assert roman_value(numeral) == value


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
        "import sys; from synth.text.spelling.speller import speller; "
        "assert 'unicode_rbnf' not in sys.modules; "
        "speller('en')('5 apples'); assert 'unicode_rbnf' in sys.modules"
    )

    subprocess.run([sys.executable, "-c", code], check=True)
