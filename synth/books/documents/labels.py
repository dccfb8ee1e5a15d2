"""Recognise the label of a chapter ("CHAPTER I.", "Kapitel 3", "II"), and join it to a title."""

from __future__ import annotations

import re

from synth.books.txt.heading_words import is_eastern_label, is_foreign_label

_ROMAN = r"[IVXLCDM]{1,8}|[ivxlcdm]{1,8}"
_ORDINAL = (
    r"(?:the\s+)?(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|last|one|two|"
    r"three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|"
    r"seventeen|eighteen|nineteen|(?:twenty|thirty|forty|fifty)(?:[ -]\w+)?|"
    r"premier|première|deuxième|second[e]?|troisième|quatrième|cinquième|sixième|septième|"
    r"huitième|neuvième|dixième|unique|dernier|erste[rs]?|zweite[rs]?|dritte[rs]?|vierte[rs]?|"
    r"fünfte[rs]?|sechste[rs]?|siebte[rs]?|siebente[rs]?|achte[rs]?|neunte[rs]?|zehnte[rs]?|"
    r"primero?|segundo|tercero?|cuarto|quinto|primo|secondo|terzo)"
)
_KIND = (
    r"chapter|book|part|volume|act|scene|canto|letter|stave|chapitre|livre|partie|tome|"
    r"acte|scène|lettre|kapitel|buch|teil|band|akt|aufzug|auftritt|szene|brief|"
    r"capítulo|capitulo|parte|libro|capitolo|hoofdstuk|deel|kapittel|kapitola|rozdział"
)
_NUMBER = rf"(?:{_ROMAN}|\d{{1,4}}|{_ORDINAL})"
_LABEL = re.compile(
    rf"(?:(?:{_KIND})\.?\s+(?:the\s+)?{_NUMBER}|{_ORDINAL}\s+(?:{_KIND})|{_ROMAN}|\d{{1,4}})"
    r"\s*[.:)—–-]?\Z",  # noqa: RUF001  # dashes
    re.IGNORECASE,
)
_MAX_LABEL = 40
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty")
_COUNTS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen",
    "un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize",
    "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn",
    "uno dos tres cuatro cinco seis siete ocho nueve diez once doce trece catorce quince",
    "uno due tre quattro cinque sei sette otto nove dieci undici dodici tredici quattordici",
)
_COUNTED = {word: n for words in _COUNTS for n, word in enumerate(words.split(), start=1)} | {
    f"{ten} {unit}".strip(): 10 * tens + units
    for tens, ten in enumerate(_TENS, start=2)
    for units, unit in enumerate(["", *_COUNTS[0].split()[:9]])
}


def is_label(text: str) -> bool:
    """Say whether a heading is only a number, with or without a word such as "Chapter"."""
    if len(text) > _MAX_LABEL:
        return False
    return bool(_LABEL.match(text.strip())) or is_foreign_label(text)


def word_number(text: str) -> int:
    """Return the value of a number alone in words, such as "ONE" or "Zwölf", else 0."""
    # "One." with a stop may be a sentence.
    word = text.strip(" .:") if text.isupper() else text.strip()
    if not word[:1].isupper() or len(word) > _MAX_LABEL:
        return 0
    return _COUNTED.get(" ".join(word.casefold().replace("-", " ").split()), 0)


def is_bare_number(text: str) -> bool:
    """Say whether a heading is a number alone, such as "II" or "3."."""
    return is_label(text) and bool(re.fullmatch(rf"(?:{_ROMAN}|\d{{1,4}})\W*", text.strip()))


def join_titles(parts: list[str]) -> str:
    """Return one title for the headings that open a chapter: "I" and "The Bell" make "I. The Bell".

    A part that an earlier one already says is left out.
    """
    joined = ""
    for part in (part.strip() for part in parts):
        if not part or _words(part) in _words(joined):
            continue
        if not joined or _words(joined) in _words(part):
            joined = part
        elif joined[-1] in ".:!?—–…-" or is_eastern_label(joined):  # noqa: RUF001  # dashes
            joined = f"{joined} {part}"
        else:
            joined = f"{joined}{'.' if is_label(joined) else ':'} {part}"
    return joined


def says(text: str, words: str) -> bool:
    """Say whether a text has these words in it, in their order, whatever their case."""
    return len(_words(words)) > 1 and _words(words) in _words(text)


def _words(text: str) -> str:
    words = re.findall(r"[^\W_]+", text.casefold())
    return f" {' '.join(words)} "
