"""Recognise headings of a plain text: labels with numbers, named sections, lines in capitals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from synth.books.documents.labels import eastern_number, find_foreign, is_eastern_label, number_of
from synth.books.documents.markup import is_ornament
from synth.books.txt.lines import Group, Layout, Line, close_up, is_verse

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
        Line(close_up(line.text), line.indent)
        for line in group.lines[:6]
        if any(c.isalnum() for c in line.text)
    ]
    group = Group(lines, group.blanks)
    text = group.text
    if not lines or len(lines) > 4 or len(text) > _MAX_TITLE:
        return None
    return (
        _read_label(group)
        or _read_numbered(group)
        or _read_foreign(group)
        or _read_name(text)
        or _read_capitals(group, titles)
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
    match = _LABEL.fullmatch(text) or _NUMBERED.fullmatch(text)
    if match is None:
        return None
    found = match.groupdict()
    kind = found.get("kind") or found.get("kind2")
    number = found.get("number") or found.get("number2") or ""
    rank = _KIND_OF[kind.lower()] if kind else "numeral"
    return Heading(rank, "", normalised(found["title"] or ""), number_of(number))


def _read_label(group: Group) -> Heading | None:
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


def _read_numbered(group: Group) -> Heading | None:
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


def _read_foreign(group: Group) -> Heading | None:
    text = "\n".join(line.text for line in group.lines)
    if number := eastern_number(text):
        return Heading("numeral", text, number=number)
    found = find_foreign(text)
    return Heading(found[0], found[1], found[2]) if found is not None else None


def _read_name(text: str) -> Heading | None:
    bare = text.strip(" ._:—-").casefold().replace("\u2019", "'")
    role = _ROLE_OF.get(bare, "")
    if not role:
        first = bare.split(" ", 1)[0].strip(".:,")
        # "PREFACE TO THE SECOND EDITION", "APPENDIX B"
        role = _ROLE_OF.get(first, "") if text.isupper() and len(text) <= _MAX_CAPS else ""
    return Heading("named", text, role=role) if role and text[:1].isupper() else None


def _read_capitals(group: Group, titles: frozenset[str]) -> Heading | None:
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


_TITLES = {
    "toc": r"(?:the |table of )?contents|table(?: des (?:matières|chapitres))?|inhalt|"
    r"inhaltsverzeichnis|inhaltsübersicht|índice|indice|sommaire|inhoud|innehåll|"
    r"sisällys|indhold|innhold|spis treści|obsah|tartalom",
    "loi": r"(?:list of )?(?:illustrations|plates|maps)|(?:table|liste) des (?:gravures|"
    r"illustrations)|verzeichnis der abbildungen|abbildungen",
}
_PAGE = re.compile(r"[\s._·…-]*(?:(?<=[\s.…_])\d{1,4}|(?<=\s)[ivxlc]{1,6})\.?\Z")
_MAX_ENTRIES = 3000
_WIDE_GAP = 3
_PROSE_CHARS = 120


@dataclass(frozen=True, slots=True)
class ContentsList:
    """Hold where a list is (groups from `start`, below `end`), its role and its titles."""

    start: int
    end: int
    role: str
    titles: frozenset[str]


def find_contents(groups: Sequence[Group], layout: Layout) -> list[ContentsList]:
    """Return the contents lists (`toc`) and lists of plates (`loi`), in order."""
    found: list[ContentsList] = []
    index = 0
    while index < len(groups):
        role = _list_role(groups[index].lines[0].text)
        # The first one only: a chapter in the middle may well be called "Contents".
        known = {contents.role for contents in found}
        if not role or role in known:
            index += 1
            continue
        end = _end_of(groups, index, layout)
        entries = _entries(groups[index:end])
        if len(entries) >= 2:
            titles = {title for entry in entries for title in _titles_of(entry)}
            found.append(ContentsList(index, end, role, frozenset(titles)))
        index = max(end, index + 1)
    return found


def _list_role(line: str) -> str:
    bare = close_up(line).strip(" ._:—-").casefold()
    return next((role for role, names in _TITLES.items() if re.fullmatch(names, bare)), "")


def _entries(groups: Sequence[Group]) -> list[str]:
    return [line.text for group in groups for line in group.lines][1:]


def _end_of(groups: Sequence[Group], start: int, layout: Layout) -> int:
    """Return the index of the first group after the list that begins at `start`."""
    entries = [line.text for line in groups[start].lines[1:]]
    known = {normalised(entry) for entry in entries}
    widest = 0
    for index in range(start + 1, len(groups)):
        group = groups[index]
        if len(entries) > _MAX_ENTRIES:
            break
        if entries and (_list_role(group.lines[0].text) or _is_repeat(group, entries, known)):
            return index
        if len(entries) >= 2 and group.blanks >= _WIDE_GAP > widest:
            return index
        num_groups = index - start - (not groups[start].lines[1:])
        is_dense = len(entries) >= 2 * num_groups
        if is_dense and len(entries) >= 2 and group.blanks >= 2 and not _goes_on(group, entries):
            return index
        if _is_prose(group, layout):
            return _leave_body(groups, start, index)
        widest = max(widest, group.blanks if entries else 0)
        added = [line.text for line in group.lines]
        entries += added
        known |= {normalised(entry) for entry in added}
    return start  # no text came after it: it was no list


def _is_repeat(group: Group, entries: list[str], known: set[str]) -> bool:
    """Say whether a group is the first title of the list again, so that the text begins."""
    first, line = entries[0], group.lines[0].text
    one, other = normalised(_PAGE.sub("", first)), normalised(line)
    if one and one in (other, normalised(group.text)):
        return True
    label, again = find_label(_PAGE.sub("", first)), find_label(line)
    if label is None or again is None or (label.rank, label.number) != (again.rank, again.number):
        return bool(other) and len(other) > 12 and other in known
    if not (label.number or label.title):
        return False
    return not (label.title and again.title) or label.title == again.title


def _goes_on(group: Group, entries: list[str]) -> bool:
    """Say whether a group looks like more of the list: a number in its turn, or a page."""
    line = group.lines[0].text
    if _PAGE.search(line) is not None or (group.lines[0].indent and len(group.lines) > 1):
        return True
    label, last = find_label(line), find_label(_PAGE.sub("", entries[-1]))
    if label is None:
        return False
    return last is None or label.rank != last.rank or label.number in (0, last.number + 1)


def _is_prose(group: Group, layout: Layout) -> bool:
    first = group.lines[0].text
    if max(len(line.text) for line in group.lines) > max(_PROSE_CHARS, layout.width + 10):
        return True
    is_entry = find_label(first) is not None or bool(_PAGE.search(group.lines[-1].text))
    return (
        not is_entry
        and len(group.lines) >= 2
        and not is_verse(group, layout)
        and len(group.text) > _PROSE_CHARS
        and len(first) > 0.6 * (layout.width or 72)
    )


def _leave_body(groups: Sequence[Group], start: int, end: int) -> int:
    """Step back over the headings before the first prose that the list has named already."""
    known: set[str] = set()
    for entry in _entries(groups[start : end - 1]):
        known |= _titles_of(entry)
    while end > start + 2 and normalised(groups[end - 1].text) in known:
        end -= 1
    if end == start + 1 and find_heading(groups[start]) is None:
        return start
    return end


def _titles_of(entry: str) -> set[str]:
    bare = _PAGE.sub("", entry).strip()
    titles = {normalised(entry), normalised(bare)}
    label = find_label(bare)
    if label is not None and label.title:
        titles.add(label.title)
    return {title for title in titles if title and not title.isdigit() and len(title) > 2}
