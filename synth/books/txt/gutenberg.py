"""Tell the text of a Project Gutenberg file from its header and licence, and read the header."""

from __future__ import annotations

import re
from collections.abc import Sequence

from synth.books.book import Metadata
from synth.books.txt.lines import Group, polish_line

_START = re.compile(
    r"^[ \t]*(?:\*{2,3}[ \t]*START OF TH(?:E|IS) PROJECT GUTENBERG[^*]*\*{3}"
    r"|\*END[ *]*THE SMALL PRINT[^\n]*)[ \t\r]*$",
    re.IGNORECASE | re.MULTILINE,
)
_END = re.compile(
    r"^[ \t]*(?:\*{2,3}[ \t]*END OF TH(?:E|IS) PROJECT GUTENBERG"
    r"|End of (?:the |this )?Project Gutenberg(?:'s|\N{RIGHT SINGLE QUOTATION MARK}s)?\b)",
    re.IGNORECASE | re.MULTILINE,
)
_FIELD = re.compile(
    r"^(Title|Author|Authors|Language|Release Date|Posting Date|Subject|Illustrator|Translator)"
    r"[ \t]*:[ \t]*(\S.*(?:\n[ \t]+\S.*)*)",
    re.MULTILINE,
)
_NUMBER = re.compile(r"\[?(?:EBook|Etext|eText)\s*#?\s*(\d+)\]?", re.IGNORECASE)
_CREDITS = re.compile(
    r"(?:this (?:e-?book|e-?text) was )?(?:produced|prepared|scanned|transcribed|created|digitized)"
    r"\s+(?:by|from)\b|e-?text (?:prepared|scanned|created) by|html version by|"
    r"(?:\[?transcriber.?s.? notes?\b)|note: (?:images|project gutenberg|this (?:file|ebook))|"
    r"updated editions? will|\[?this file was (?:first )?(?:produced|posted)|"
    r"anmerkungen zur transkription|note (?:du|de la|sur la) transcri",
    re.IGNORECASE,
)
_TITLE_PAGE = re.compile(
    r"(?:_?by_?|_?von_?|_?par_?|_?de_?|author of|illustrated|illustrations by|with illustrations|"
    r"translated|translation|"
    r"copyright|published|printed|edited by|edition|an? novel|roman|london|new york|paris|boston|"
    r"berlin|leipzig|münchen|philadelphia|chicago|edinburgh|the .{3,30} edition)\b|"
    r"(?:\d{4}|[MDCLXVI]{4,})\.?\Z|.*\b(?:verlag|publish(?:ers?|ing)|press|& co|& sons|company|"
    r"éditeurs?|librairie)\b",
    re.IGNORECASE,
)
_LANGUAGES = {
    "english": "en", "french": "fr", "german": "de", "spanish": "es", "italian": "it",
    "portuguese": "pt", "dutch": "nl", "finnish": "fi", "swedish": "sv", "danish": "da",
    "norwegian": "no", "polish": "pl", "hungarian": "hu", "russian": "ru", "greek": "el",
    "latin": "la", "chinese": "zh", "japanese": "ja", "esperanto": "eo", "catalan": "ca",
    "czech": "cs", "tagalog": "tl",
}  # fmt: skip
_MAX_TITLE_PAGE = 160
_MAX_SHORT_TITLE = 55  # characters; a longer title may have been wrapped


def split_parts(text: str) -> tuple[str, str, str]:
    """Cut a text at the marks of Project Gutenberg, whose lines go with header and licence.

    Returns:
        Header, body, licence; the first and the last are empty in files of other origin.
    """
    start = _START.search(text)
    body_at = start.end() if start is not None else 0
    end = _END.search(text, body_at)
    if start is None and (end is None or "gutenberg" not in text[:5000].lower()):
        return "", text, ""
    licence_at = end.start() if end is not None else len(text)
    return text[:body_at], text[body_at:licence_at], text[licence_at:]


def find_marks(texts: Sequence[str]) -> tuple[int | None, int | None]:
    """Return which of a document's texts ends the header and which begins the licence."""
    first = next((i for i, text in enumerate(texts) if _START.search(text)), None)
    if first is None:
        return None, None
    rest = range(first + 1, len(texts))
    return first, next((i for i in rest if _END.search(texts[i])), None)


def read_header(header: str) -> Metadata:
    """Return what the header says of the book; empty where it says nothing."""
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(header):
        fields.setdefault(match[1].lower(), match[2])
    title, subtitle = _title_lines(fields.get("title", ""))
    fields = {name: " ".join(text.split()) for name, text in fields.items()}
    number = _NUMBER.search(header)
    author = fields.get("author") or fields.get("authors", "")
    authors = tuple(name.strip() for name in re.split(r";| and | & ", author) if name.strip())
    language = fields.get("language", "").split(",")[0].split(" ")[0].lower()
    date = re.split(r"\s*\[", fields.get("release date", ""))[0]
    return Metadata(
        title=title,
        subtitle=subtitle,
        authors=authors,
        language=_LANGUAGES.get(language, ""),
        date=date,
        publisher="Project Gutenberg" if header else "",
        identifier=f"https://www.gutenberg.org/ebooks/{number[1]}" if number else "",
    )


def _title_lines(text: str) -> tuple[str, str]:
    """Return title and subtitle: a short line with another below it ends where the title does."""
    first, *others = [" ".join(line.split()) for line in text.splitlines()] or [""]
    if others and len(first) <= _MAX_SHORT_TITLE and others[0][:1].isupper():
        return first, " ".join(others)
    return " ".join([first, *others]), ""


def is_credits(text: str) -> bool:
    """Say whether a text says who made the file, and not the book."""
    return bool(_CREDITS.match(text.lstrip("[*_ ")))


def is_title_page(group: Group, metadata: Metadata) -> bool:
    """Say whether a group near the start is a piece of the title page."""
    text = " ".join(polish_line(line.text) for line in group.lines).strip("_ ")
    if len(text) > _MAX_TITLE_PAGE or text.endswith(("?", '"', "”")):
        return False
    words = _words(text)
    names = [_words(metadata.title), *(_words(author) for author in metadata.authors)]
    for name in names:
        if words and name and (words in name or name in words):
            return True
    return bool(_TITLE_PAGE.match(text))


def _words(text: str) -> str:
    # Letters set apart ("K U R T") read as the word that they make.
    return "".join(re.findall(r"[^\W_]+", text.casefold()))
