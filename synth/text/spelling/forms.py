"""Say which words spelling out needs of a language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Forms = tuple[str, str]  # of one, of several

# What follows an abbreviation decides whether it is one: a capital, a digit, or nothing special.
CAPITAL, DIGIT, ANY = "capital", "digit", "any"


@dataclass(frozen=True)
class Words:
    """Hold one language's words.

    `money` joins an amount's two parts from {major}, {minor} and {minor_number}. `abbreviations`
    are what is said and what must follow. `numbered` are words that a Roman numeral follows, and
    `numbered_after` those that it stands before; `titles` stand before a name and its numeral.
    """

    group: str
    decimal: str
    months: tuple[str, ...]
    percent: str
    currencies: Mapping[str, tuple[Forms, Forms]]
    money: str
    units: Mapping[str, Forms]
    abbreviations: Mapping[str, tuple[str, str]]
    numbered: tuple[str, ...]
    numbered_after: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    scales: Mapping[str, str] = field(default_factory=dict)


def units(names: str) -> dict[str, Forms]:
    """Return units by their signs, from lines of `sign one/several`."""
    units: dict[str, Forms] = {}
    for line in names.strip().splitlines():
        sign, _, said = line.strip().partition(" ")
        one, _, several = said.partition("/")
        units[sign] = (one, several or one)
    return units


NO_MINOR: Forms = ("", "")
