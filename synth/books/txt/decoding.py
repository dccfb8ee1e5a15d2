"""Turn the bytes of a plain text into characters: marks, declarations, then what fits.

The text of a Project Gutenberg file is told from its header and licence, and the header is read.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Sequence

import charset_normalizer

from synth.books.book import BookRejectedError, Metadata
from synth.books.txt.lines import Group, polish_line
from ttsweb.refusals import counted

# Names that Python knows but no text is written in; some take very long, or run what they read.
_NO_CHARSETS = frozenset(
    {
        *("base64", "bz2", "hex", "quopri", "rot13", "uu", "zlib"),
        *("idna", "mbcs", "oem", "punycode", "undefined"),
        *("raw-unicode-escape", "unicode-escape", "utf-7"),
    }
)
# Texts that say Latin-1 or ASCII are mostly written in Windows-1252, which adds letters to them.
_LATIN = frozenset({"iso8859-1", "ascii"})
_WIDE_PREFIXES = ("utf-16", "utf-32")
_ESCAPED = re.compile("[\udc80-\udcff]")
_MIN_GOOD_PER_BAD = 10  # characters of UTF-8 for each byte that is none


def codec_of(name: str) -> str:
    """Return the name by which Python decodes a charset, or nothing for one that is not known."""
    try:
        found = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return ""
    if found in _NO_CHARSETS:
        return ""
    return "cp1252" if found in _LATIN else found


def is_wide(codec: str) -> bool:
    """Say whether a charset takes two or four bytes for each letter, ASCII too."""
    return codec.startswith(_WIDE_PREFIXES)


def decode_mostly_utf8(raw: bytes) -> tuple[str, int] | None:
    """Return text of which nearly all is UTF-8, and how many bytes of it are not.

    Those are read as Windows-1252, as where a program pasted two texts together. None where the
    text is rather in another charset.
    """
    text = raw.decode("utf-8", "surrogateescape")
    num_bad = len(_ESCAPED.findall(text))
    num_good = sum(not character.isascii() for character in text) - num_bad
    if num_good < _MIN_GOOD_PER_BAD * num_bad:
        return None
    western = _ESCAPED.sub(
        lambda found: bytes([ord(found[0]) - 0xDC00]).decode("cp1252", "replace"), text
    )
    return western, num_bad


# The longer mark first: UTF-32's little-endian mark begins with that of UTF-16.
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
_DECLARED = re.compile(
    rb"(?:character set encoding|charset|encoding)\s*[:=]\s*[\"']?([A-Za-z0-9_.:-]{2,40})", re.I
)
_SAMPLE_BYTES = 200_000  # guesses look no further; the decoding itself always reads all
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_CONTROL_BYTES = re.compile(rb"[\x01-\x08\x0e-\x19\x1b-\x1f]")
_MAX_CONTROL_SHARE = 0.001  # a few strays of an old machine are no binary file
_DOS_END = "\x1a"
_BLANK_BYTES = b"\0\r\n\t \x0b\x0c" + codecs.BOM_UTF8
# Western letters and marks that Windows-1252 and Latin-1 put beside ASCII in real books.
_WESTERN = frozenset(
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿŒœŠšŽžŸÐðÞþ"
    "«»„“”‘’‚‹›–—…•°§·£€¿¡ªº©®½¼¾ \xad×†‡"  # noqa: RUF001
)
_INSIDE_WORD = re.compile(r"(?<=[^\W\d_])[¿¡ªº©®½¼¾£€§°×†‡](?=[^\W\d_])")  # noqa: RUF001


Decoded = tuple[str, tuple[str, ...]]  # a text, and warnings: what was odd about its bytes


def decode_text(raw: bytes) -> Decoded:
    """Return the characters of a plain text, in NFC.

    Raises:
        BookRejectedError: `book_empty`, `book_not_text`, `book_charset_unknown`.
    """
    text, warnings = _decode(raw) if raw.strip(_BLANK_BYTES) else ("", ())
    text = unicodedata.normalize("NFC", text.rstrip(_DOS_END).lstrip("\ufeff"))
    if not text.strip():
        raise BookRejectedError("book_empty", "The file is empty; send a book with words in it.")
    controls = len(_CONTROL.findall(text))
    if "\0" in text or controls > max(2, _MAX_CONTROL_SHARE * len(text)):
        raise _not_text("The file has too many control characters.")
    if not controls:
        return text, warnings
    warning = f"{controls} control characters were read as blanks."
    return _CONTROL.sub(" ", text), (*warnings, warning)


def _decode(raw: bytes) -> Decoded:
    for mark, name in MARKS:
        if raw.startswith(mark):
            if (text := _try(raw, name)) is not None:
                return text, ()
            if (mixed := _read_mixed(raw.removeprefix(codecs.BOM_UTF8))) is not None:
                return mixed
            raise _not_text(
                f"The file begins with the mark of {name}, but is not written in that encoding."
            )
    if b"\0" in raw:
        return _decode_wide(raw), ()
    declared = _DECLARED.search(raw[:4096])
    codec = codec_of(declared[1].decode("ascii")) if declared else ""
    # Who can read the declaration as plain letters reads no wide charset.
    for name in ("utf-8", *([codec] if codec and not is_wide(codec) else [])):
        if (text := _try(raw, name)) is not None:
            return text, ()
    if (mixed := _read_mixed(raw)) is not None:
        return mixed
    name, text = _guess(raw)
    shown = "Windows-1252" if name == "cp1252" else name
    warning = (
        f"The text names no character encoding and was read as {shown}; check its accented letters."
    )
    return text, (warning,)


def _read_mixed(raw: bytes) -> Decoded | None:
    found = None if b"\0" in raw else decode_mostly_utf8(raw)
    if found is None:
        return None
    text, num_bytes = found
    warning = (
        f"{counted(num_bytes, 'byte')} of the file were read as Windows-1252; the rest is UTF-8."
    )
    return text, (warning,)


def _try(raw: bytes, name: str) -> str | None:
    try:
        return raw.decode(name)
    except (UnicodeDecodeError, LookupError, ValueError):
        return None


def _decode_wide(raw: bytes) -> str:
    """Decode UTF-16 or UTF-32 without a mark: the one in which blanks and line ends turn up."""
    narrow = raw.replace(b"\0", b"")
    if len(narrow) > 0.8 * len(raw) and not _CONTROL_BYTES.search(narrow):
        as_utf8 = _try(narrow, "utf-8")
        if as_utf8 is not None:  # plain text that somebody put NULs into
            raise _not_text("The file has NUL bytes, which text never has.")
    texts = [
        text
        for name in _WIDE
        if (text := _try(raw, name)) is not None
        and "\0" not in text
        and _share_of_unreadable(text) < _MAX_CONTROL_SHARE
    ]
    if not texts:
        raise _not_text("The file has NUL bytes, which text never has.")

    def likeness(text: str) -> int:
        return text.count(" ") + text.count("\n") + sum(c.isascii() for c in text[:4096])

    return max(texts, key=likeness)


def _guess(raw: bytes) -> tuple[str, str]:
    western = _try(raw, "cp1252") or raw.decode("latin-1")
    strange = {c for c in western if not c.isascii() and c not in _WESTERN}
    letters = [c for c in western[:_SAMPLE_BYTES] if c.isalpha()]
    is_plain = sum(c.isascii() for c in letters) >= 0.8 * len(letters)
    if not strange and not _INSIDE_WORD.search(western) and is_plain:
        return "cp1252", western
    # Only bytes beyond ASCII tell charsets apart.
    lines = (line for line in raw.splitlines(keepends=True) if not line.isascii())
    sample = b"".join(lines)[:_SAMPLE_BYTES]
    # A few lines full of accents look like chaos to it: ask again, less strictly.
    found = charset_normalizer.from_bytes(sample) or charset_normalizer.from_bytes(
        sample, threshold=0.5
    )
    match = found.best()
    text = _try(raw, match.encoding) if match is not None else None
    if match is None or text is None:
        raise BookRejectedError(
            "book_charset_unknown",
            "The character encoding of the text is unknown; save it as UTF-8 and send it again.",
        )
    return match.encoding, text


def _share_of_unreadable(text: str) -> float:
    sample = text[:_SAMPLE_BYTES]
    bad = sum(unicodedata.category(c) in {"Cn", "Co", "Cs"} for c in sample)
    return (bad + len(_CONTROL.findall(sample))) / max(1, len(sample))


def _not_text(why: str) -> BookRejectedError:
    return BookRejectedError(
        "book_not_text",
        f"The file is not a readable text. {why} Save it as UTF-8, or send the book itself "
        "(EPUB, DOCX, PDF, HTML, Markdown or TXT).",
    )


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
