"""Recognise the label of a chapter ("CHAPTER I.", "Kapitel 3", "II"), and join it to a title."""

from __future__ import annotations

import re

from synth.books.heading_words import is_eastern_label, is_foreign_label

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


def is_label(text: str) -> bool:
    """Say whether a heading is only a number, with or without a word such as "Chapter"."""
    if len(text) > _MAX_LABEL:
        return False
    return bool(_LABEL.match(text.strip())) or is_foreign_label(text)


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


def _words(text: str) -> str:
    words = re.findall(r"[^\W_]+", text.casefold())
    return f" {' '.join(words)} "
