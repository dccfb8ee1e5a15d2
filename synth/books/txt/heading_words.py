"""Know the headings of chapters in languages beyond those that `txt_headings` has grammar for."""

# ruff: noqa: RUF001  # letters of many scripts

from __future__ import annotations

import re

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
_EASTERN = {
    "part": "卷部集篇編编冊册",
    "chapter": "章回節节話话",
    "act": "幕",
    "scene": "場场折齣",
}
_KOREAN = {"part": "부편권", "chapter": "장화절", "act": "막"}
_DIGITS = "〇零一二三四五六七八九"
_NUMERALS = f"[{_DIGITS}十百千两兩廿卅0-9０-９]{{1,9}}"
_NUMBER = r"(?:[IVXLCDM]{1,8}|\d{1,4}|[А-ЯЁІЇЄ]|[Α-Ω]{1,2}'?|[א-ת]{1,2}['״׳]?)"
_WORDS = r"[^\W\d_]+(?:[ -][^\W\d_]+){0,2}"  # "первая", "الثاني عشر"
# Beginnings of ordinals: "Книга первая" is a heading, "Книга джунглей" is a book.
_ORDINAL = re.compile(
    "перв|втор|трет|четв|пят|шест|седьм|восьм|девят|десят|перш|друг|pierwsz|drug|trzec|czwart|"
    "první|druh|třet|čtvr|eerste|tweede|derde|vierde|först|andra|tredj|fjärd|først|anden|annen|"
    "ensim|toine|kolmas|első|második|harmadik|birinci|ikinci|üçüncü|prvi|treć|"
    "الأول|الثان|الثالث|الرابع|ראשו|שני|שליש|πρώτ|πρωτ|δεύτερ|δευτερ|τρίτ|τριτ",
    re.IGNORECASE,
)
_END = r"(?P<mark>\s*[.:)—–-]*)"


def _any(words: dict[str, str]) -> str:
    return "|".join(words.values())


_FIRST = re.compile(
    rf"(?P<kind>{_any(_BEFORE)})\s+(?:(?P<number>{_NUMBER})(?![^\W_]){_END}(?P<title>[\s\S]*)"
    rf"|(?P<words>{_WORDS})\W*)\Z",
    re.IGNORECASE,
)
_LAST = re.compile(
    rf"(?:(?P<number>{_NUMBER})\.?|(?P<words>[^\W\d_]+))\s+(?P<kind>{_any(_BEHIND)})"
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
    if found["words"] and not _is_number(found["words"], rank, text):
        return None
    title = found["title"] or ""
    label = " ".join(text[: len(text) - len(title)].split())
    is_apart = bool((found["mark"] or "").strip()) or "\n" in text or title.isupper()
    if title and not is_apart:
        return None
    return rank, label, " ".join(title.split())


def _is_number(words: str, rank: str, text: str) -> bool:
    if len(text) > _MAX_WORDS:
        return False
    return rank == "chapter" or _ORDINAL.match(words) is not None


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


def is_foreign_label(text: str) -> bool:
    """Say whether a text is but a word for a chapter and its number."""
    found = find_foreign(text.strip())
    return found is not None and not found[2] and len(text) <= _MAX_WORDS
