"""Recognise the label of a chapter ("CHAPTER I.", "Kapitel 3", "II"), and join it to a title."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from synth.books.book import ASIDES, Block, BlockKind
from synth.books.documents import markup
from synth.books.rules import title_reason
from synth.text.numbers import roman_value

# ruff: noqa: RUF001  # letters of many scripts


# Words before a number, by rank; of languages that put the number behind.
_BEFORE = {
    "volume": "том|díl|cilt|المجلد",
    "book": "книга|księga|kniha|boek|bok|bog|kitap|βιβλίο|βιβλιο|الكتاب|ספר|livro|llibre",
    "part": "часть|частина|част|część|část|deel|kısım|μέρος|μεροσ|الجزء|القسم|חלק|שער",
    "chapter": "capítulo|capitulo|capitolo|chapitre|kapitel|глава|розділ|раздел|rozdział|kapitola|"
    "hoofdstuk|kapittel|bölüm|poglavlje|κεφάλαιο|κεφαλαιο|الفصل|الباب|פרק|capítol|capitolul",
    "act": "действие|дія|dějství|jednání|bedrijf|πράξη|πραξη|الفصل المسرحي|מערכה",
    "scene": "явление|сцена|ява|výstup|toneel|σκηνή|σκηνη|المشهد|תמונה",
}
# Words behind a number or an ordinal: "Første Kapitel", "I LUKU", "II. FEJEZET".
_BEHIND = {
    "part": "del|osa|rész|kısım|часть|część|část|deel",
    "chapter": "kapitel|kapitlet|kapittel|luku|fejezet|bölüm|глава|rozdział|kapitola|hoofdstuk",
    "act": "akt|näytös|felvonás|действие|jednání|bedrijf",
    "scene": "kohtaus|jelenet|scen|явление|výstup|toneel",
}
_EASTERN = {"part": "卷部集篇編编冊册", "chapter": "章回節节話话", "act": "幕", "scene": "場场折齣"}
_KOREAN = {"part": "부편권", "chapter": "장화절", "act": "막"}
_DIGITS = "〇零一二三四五六七八九"
_NUMERALS = f"[{_DIGITS}十百千两兩廿卅0-9０-９]{{1,9}}"
_FOREIGN_NUMBER = r"(?:[IVXLCDM]{1,8}|\d{1,4}|[А-ЯЁІЇЄ]|[Α-Ω]{1,2}'?|[א-ת]{1,2}['״׳]?)"
_WORDS = r"[^\W\d_]+(?:[ -][^\W\d_]+){0,2}"  # "первая", "الثاني عشر"
# Beginnings of ordinals: "Книга первая" is a heading, "Книга джунглей" is a book.
_FOREIGN_ORDINAL = re.compile(
    "перв|втор|трет|четв|пят|шест|седьм|восьм|девят|десят|перш|друг|pierwsz|drug|trzec|czwart|"
    "první|druh|třet|čtvr|eerste|tweede|derde|vierde|först|andra|tredj|fjärd|først|anden|annen|"
    "ensim|toine|kolmas|első|második|harmadik|birinci|ikinci|üçüncü|prvi|treć|"
    "الأول|الثان|الثالث|الرابع|ראשו|שני|שליש|πρώτ|πρωτ|δεύτερ|δευτερ|τρίτ|τριτ",
    re.IGNORECASE,
)
_END = r"(?P<mark>\s*[.:)—–-]*)"


_FIRST = re.compile(
    rf"(?P<kind>{'|'.join(_BEFORE.values())})\s+(?:(?P<number>{_FOREIGN_NUMBER})(?![^\W_]){_END}(?P<title>[\s\S]*)"
    rf"|(?P<words>{_WORDS})\W*)\Z",
    re.IGNORECASE,
)
_LAST = re.compile(
    rf"(?:(?P<number>{_FOREIGN_NUMBER})\.?|(?P<words>[^\W\d_]+))\s+(?P<kind>{'|'.join(_BEHIND.values())})"
    rf"(?![^\W_]){_END}(?P<title>[\s\S]*)\Z",
    re.IGNORECASE,
)
_EAST = re.compile(
    rf"(?P<label>第\s?{_NUMERALS}\s?(?P<kind>[{''.join(_EASTERN.values())}])"
    rf"|제\s*\d{{1,4}}\s*(?P<kind2>[{''.join(_KOREAN.values())}]))"
    r"(?:[\s　:：.、．—-]+(?P<title>\S[^\n。！？]{0,40}))?\s*\Z"
)
_EAST_NUMBER = re.compile(rf"(?P<number>[{_DIGITS}十百]{{1,5}})[、．.]?\Z")
_MAX_WORDS = 40


def find_foreign(text: str) -> tuple[str, str, str] | None:
    """Return (rank, label, title) of a heading, or None.

    Args:
        text: lines that stand alone, parted by line ends.
    """
    found = _EAST.match(text)
    if found is not None:
        kind = found["kind"] or found["kind2"]
        kinds = _EASTERN if found["kind"] else _KOREAN
        rank = next(rank for rank, words in kinds.items() if kind in words)
        return rank, found["label"], found["title"] or ""
    found = _FIRST.match(text) or _LAST.match(text)
    if found is None or text[:1].islower():
        return None
    words = _BEFORE if found.re is _FIRST else _BEHIND
    rank = next(r for r, kinds in words.items() if found["kind"].lower() in kinds.split("|"))
    is_ordinal = rank == "chapter" or _FOREIGN_ORDINAL.match(found["words"] or "")
    if found["words"] and not (is_ordinal and len(text) <= _MAX_WORDS):
        return None
    title = found["title"] or ""
    label = " ".join(text[: len(text) - len(title)].split())
    is_apart = bool((found["mark"] or "").strip()) or "\n" in text or title.isupper()
    if title and not is_apart:
        return None
    return rank, label, " ".join(title.split())


def is_eastern_label(line: str) -> bool:
    """Say whether a line is a heading such as "第三章", which needs no blank line around it."""
    return _EAST.match(line) is not None


def eastern_number(text: str) -> int:
    """Return the value of a Chinese number that stands alone, such as "十二"; 0 for none."""
    found = _EAST_NUMBER.match(text)
    if found is None:
        return 0
    total, digit = 0, 0
    for character in found["number"]:
        if character in _DIGITS:
            digit = max(_DIGITS.index(character) - 1, 0)
        else:
            total += max(digit, 1) * (10 if character == "十" else 100)
            digit = 0
    return total + digit


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
    r"\s*[.:)—–-]?\Z",  # dashes
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
    if _LABEL.match(text.strip()):
        return True
    found = find_foreign(text.strip())
    return found is not None and not found[2]


def number_of(word: str) -> int:
    """Return the number of a label's word: digits, Roman below 400, or 0 for an ordinal."""
    word = word.strip(". ")
    if word.isascii() and word.isdigit():
        return int(word)
    return roman_value(word) if re.fullmatch("[IVXLC]+", word) else 0


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
        elif joined[-1] in ".:!?—–…-" or is_eastern_label(joined):  # dashes
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


_LEVEL = 2


def mark_label_headings(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return the blocks with paragraphs such as "CHAPTER II" as headings.

    A number alone is one where it begins the document, or where such numbers count from 1. Where
    there are headings, a label is one only directly before a heading, as its number.
    """
    places = [at for at, block in enumerate(blocks) if block.kind not in ASIDES]
    labels = [
        at
        for at in places
        if blocks[at].kind is BlockKind.PARAGRAPH
        and blocks[at].role != markup.LINK_LIST
        and (is_label(blocks[at].text) or word_number(blocks[at].text))
    ]
    chosen: dict[int, int] = {}  # and their levels
    if any(block.kind is BlockKind.HEADING for block in blocks):
        before: Block | None = None
        for at, following in itertools.pairwise(places):
            heading = blocks[following]
            # The only line of a list of contents, and the like, counts nothing that follows.
            is_entry = before is not None and before.kind is BlockKind.HEADING
            is_entry = is_entry and before is not None and title_reason(before.text) is not None
            before = blocks[at]
            if at in labels and not is_entry and heading.kind is BlockKind.HEADING:
                chosen |= {} if is_label(heading.text) else {at: heading.level}
    else:
        texts = {at: blocks[at].text for at in labels}
        numbers = [at for at in labels if is_bare_number(texts[at]) or word_number(texts[at])]
        words = [texts[at].strip(" .:)—–-").upper() for at in numbers]
        values = [
            number_of(word) or eastern_number(word) or word_number(texts[at])
            for at, word in zip(numbers, words, strict=True)
        ]
        is_counted = len(values) > 1 and values == list(range(1, len(values) + 1))
        uncounted = set() if is_counted else set(numbers) - set(places[:1])
        chosen = dict.fromkeys((at for at in labels if at not in uncounted), _LEVEL)
        # A page with nothing but a label is the title of what follows; digits are a page number.
        if len(places) == len(chosen) and any(
            blocks[at].text.strip(" .").isdigit() for at in places
        ):
            return blocks
    return tuple(
        replace(block, kind=BlockKind.HEADING, level=chosen[at]) if at in chosen else block
        for at, block in enumerate(blocks)
    )
