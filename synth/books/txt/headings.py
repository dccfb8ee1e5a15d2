"""Recognise headings of a plain text: labels with numbers, named sections, lines in capitals."""

from __future__ import annotations

import re
from dataclasses import dataclass

from synth.books.documents.markup import is_ornament
from synth.books.txt.heading_words import eastern_number, find_foreign, is_eastern_label
from synth.books.txt.lines import Group, Line, closed_up

_ROMAN = r"(?=[IVXLC])(?:C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})"
_ORDINALS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|last|"
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|"
    "sixteen|seventeen|eighteen|nineteen|(?:twenty|thirty|forty|fifty)(?:[ -][a-z]+)?|"
    "premier|première|seconde?|deuxième|troisième|quatrième|cinquième|sixième|septième|huitième|"
    "neuvième|dixième|onzième|douzième|dernière?|unique|"
    "erste[rs]?|zweite[rs]?|dritte[rs]?|vierte[rs]?|fünfte[rs]?|sechste[rs]?|sieb(?:en)?te[rs]?|"
    "achte[rs]?|neunte[rs]?|zehnte[rs]?|elfte[rs]?|zwölfte[rs]?|letzte[rs]?|eins|zwei|drei|vier|"
    "primer[oa]?|segund[oa]|tercer[oa]?|cuart[oa]|quint[oa]|prim[oa]|second[oa]|terz[oa]"
)
_KINDS = {
    "volume": "volume|vol|tome|band|volumen|tomo",
    "book": "book|livre|buch|libro",
    "part": "part|partie|teil|theil|parte",
    "act": "act|acte|akt|aufzug|acto|atto",
    "chapter": "chapter|chap|chapitre|kapitel|capítulo|capitulo|capitolo|letter|lettre|brief|stave|"
    "canto|chant|gesang|section|abschnitt",
    "scene": "scene|scène|szene|auftritt|escena|scena",
}
_KIND_OF = {word: kind for kind, words in _KINDS.items() for word in words.split("|")}
_ANY_KIND = "|".join(_KIND_OF)
_NUMBER = rf"(?:\d{{1,3}}|{_ROMAN}|(?:the\s+)?(?i:{_ORDINALS}))(?![^\W_])"
_LABEL = re.compile(
    rf"(?:(?P<kind>(?i:{_ANY_KIND}))\.?\s+(?P<number>{_NUMBER})"
    rf"|(?P<number2>(?:\d{{1,3}}\.|(?i:{_ORDINALS})))\s+(?P<kind2>(?i:{_ANY_KIND})))(?![^\W_])"
    r"(?P<mark>\s*[.:)\]—–-]*)\s*(?P<title>.*)",  # noqa: RUF001
    re.DOTALL,
)
_NUMBERED = re.compile(
    rf"(?P<number>{_ROMAN}|\d{{1,3}})(?P<mark>[.:)]?)(?:(?:\s+|\s*(?:--|[—–])\s*)(?P<title>\S.*))?",  # noqa: RUF001
    re.DOTALL,
)
_NAMED = {
    "preface": "preface|préface|vorwort|vorrede|prefacio|prefazione|avant-propos",
    "foreword": "foreword|geleitwort",
    "introduction": "introduction|einleitung|einführung|introducción|introduzione|introductory",
    "prologue": "prologue|prolog|prólogo|prologo|the prologue",
    "epilogue": "epilogue|épilogue|epilog|epílogo|epilogo|the epilogue",
    "afterword": "afterword|postface|nachwort|postscript|post-scriptum",
    "conclusion": "conclusion|schluss|schluß|the conclusion",
    "appendix": "appendix|appendice|anhang|apéndice",
    "dedication": "dedication|dédicace|widmung",
    "footnotes": "footnotes|footnote|notes|anmerkungen|fußnoten|fußnote|endnotes|notas|note",
    "pg-header": "transcriber's note|transcriber's notes|transcribers' notes|transcribers' note|"
    "transcriber's end notes|anmerkungen zur transkription|weitere anmerkungen zur transkription|"
    "anmerkung zur transkription|note de transcription|notes de transcription|note sur la "
    "transcription|nota del transcriptor|notas del transcriptor|opmerkingen van de bewerker",
    "index": "index|register|sachregister|general index",
    "glossary": "glossary|glossaire|glossar",
    "dramatis-personae": "dramatis personæ|dramatis personae|personnages|personen|"
    "persons of the play|the persons of the play|persons represented|characters",
}
_ROLE_OF = {name: role for role, names in _NAMED.items() for name in names.split("|")}
# What stands under the last chapter is no chapter.
_ENDS = re.compile(
    r"(?:the )?end(?: of (?:the |vol|book|part).*)?|fin(?: d[eu] .*)?|finis|ende|fine|fim|einde|"
    r"slut|koniec|konec|konets|конец|кінець|loppu|vége|τέλος|τελοσ",
    re.IGNORECASE,
)
_MAX_TITLE = 120
_MAX_CAPS = 70


@dataclass(frozen=True, slots=True)
class Heading:
    """Hold a heading: its rank (`part`, `chapter`, `numeral`...), number, words and role.

    `number` is 0 without one. `label` is what names the number, `title` the words after it.
    """

    rank: str
    label: str
    title: str = ""
    number: int = 0
    role: str = ""

    @property
    def text(self) -> str:
        """Return label and title as one heading."""
        if not (self.label and self.title):
            return self.label or self.title
        if self.label[-1] == "—":
            return f"{self.label}{self.title}"
        is_closed = self.label[-1] in ".:!?)-" or is_eastern_label(self.label)
        return f"{self.label}{'' if is_closed else '.'} {self.title}"


def find_heading(group: Group, *, titles: frozenset[str] = frozenset()) -> Heading | None:
    """Return the heading that a group of lines is, or None.

    Args:
        titles: what `normalised` makes of the titles in the contents list.
    """
    # A rule under a heading is no part of its words.
    lines = [
        Line(closed_up(line.text), line.indent)
        for line in group.lines[:6]
        if any(c.isalnum() for c in line.text)
    ]
    group = Group(lines, group.blanks)
    text = group.text
    if not lines or len(lines) > 4 or len(text) > _MAX_TITLE:
        return None
    return (
        _labelled(group)
        or _numbered(group)
        or _foreign(group)
        or _named(text)
        or _in_capitals(group, titles)
    )


def is_title(group: Group, *, titles: frozenset[str] = frozenset()) -> bool:
    """Say whether a group can be the title under a label such as "CHAPTER I."."""
    text = group.text
    if len(text) > _MAX_TITLE or is_ornament(text) or not any(c.isalpha() for c in text):
        return False
    if normalised(text) in titles:
        return True
    if text.isupper():
        return len(group.lines) <= 3 and not text.endswith((",", ";"))
    starts_well = text[0].isupper() or text[0].isdigit() or text[0] == "_"
    return (
        len(group.lines) == 1 and len(text) <= 80 and starts_well and text[-1] not in '.,;:?!"”»-'
    )


def normalised(text: str) -> str:
    """Return the letters and digits of a title in lower case, as titles are compared."""
    return " ".join(re.findall(r"[^\W_]+", text.casefold()))


def find_label(text: str) -> Heading | None:
    """Return the heading that a line of a contents list names by a number, or None."""
    line = Group([])
    match = _LABEL.fullmatch(text) or _NUMBERED.fullmatch(text)
    if match is None or line.lines:
        return None
    found = match.groupdict()
    kind = found.get("kind") or found.get("kind2")
    number = found.get("number") or found.get("number2") or ""
    rank = _KIND_OF[kind.lower()] if kind else "numeral"
    return Heading(rank, "", normalised(found["title"] or ""), number_of(number))


def number_of(word: str) -> int:
    """Return the number of a label's word: digits, Roman, or 0 for an ordinal."""
    word = word.strip(". ")
    if word.isascii() and word.isdigit():
        return int(word)
    if not re.fullmatch(_ROMAN, word):
        return 0
    values = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
    digits = [values[letter] for letter in word]
    pairs = zip(digits, [*digits[1:], 0], strict=True)
    return sum(-one if one < following else one for one, following in pairs)


def _labelled(group: Group) -> Heading | None:
    match = _LABEL.fullmatch("\n".join(line.text for line in group.lines))
    if match is None:
        return None
    kind = match["kind"] or match["kind2"]
    if not kind[0].isupper() and not (match["number2"] or "x")[0].isupper():
        return None  # prose: "part one of it"
    title = " ".join(match["title"].split())
    gap = match[0][: match.start("title")]
    gap = gap[len(gap.rstrip()) :]
    is_set_off = bool(match["mark"].strip()) or "\n" in gap or len(gap) > 1 or title.isupper()
    if title and not is_set_off:
        return None
    if title and not title.isupper() and title[-1] in ",;":
        return None
    end = match.end("mark")
    label = " ".join(match[0][:end].split())
    rank = _KIND_OF[kind.lower()]
    return Heading(rank, label, title, number_of(match["number"] or match["number2"]))


def _numbered(group: Group) -> Heading | None:
    match = _NUMBERED.fullmatch("\n".join(line.text for line in group.lines))
    if match is None:
        return None
    title = " ".join((match["title"] or "").split())
    number = number_of(match["number"])
    if not number:
        return None
    label = match["number"] + match["mark"]
    if not title:
        return Heading("numeral", label, number=number)
    is_apart = group.blanks >= 2 or title.isupper() or "\n" in match[0]
    if not match["mark"] and "\n" not in match[0]:
        return None  # "12 men were there", "I WENT"
    if not is_apart or (title[-1] in ".,;:" and not title.isupper()) or not title[0].isupper():
        return None
    return Heading("numbered", label, title, number)


def _foreign(group: Group) -> Heading | None:
    text = "\n".join(line.text for line in group.lines)
    if number := eastern_number(text):
        return Heading("numeral", text, number=number)
    found = find_foreign(text)
    return Heading(found[0], found[1], found[2]) if found is not None else None


def _named(text: str) -> Heading | None:
    bare = text.strip(" ._:—-").casefold().replace("\u2019", "'")
    role = _ROLE_OF.get(bare, "")
    if not role:
        first = bare.split(" ", 1)[0].strip(".:,")
        # "PREFACE TO THE SECOND EDITION", "APPENDIX B"
        role = _ROLE_OF.get(first, "") if text.isupper() and len(text) <= _MAX_CAPS else ""
    return Heading("named", text, role=role) if role and text[:1].isupper() else None


def _in_capitals(group: Group, titles: frozenset[str]) -> Heading | None:
    text = group.text
    if normalised(text) in titles:
        return Heading("titled", text)
    if _ENDS.fullmatch(text.strip(" ._*—-")):
        return None
    letters = sum(c.isalpha() for c in text)
    if group.blanks < 2 or len(group.lines) > 2 or len(text) > _MAX_CAPS or letters < 3:
        return None
    if not text.isupper() or text[-1] in ",;!?-—\"'”»" or text[0] in "\"'“«[(":
        return None
    return Heading("titled", text)
