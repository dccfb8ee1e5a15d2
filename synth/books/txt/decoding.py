"""Turn the bytes of a plain text into characters: marks, declarations, then what fits."""

from __future__ import annotations

import codecs
import re
import unicodedata
from dataclasses import dataclass

import charset_normalizer

from synth.books.book import BookRejectedError
from ttsweb.counted import counted

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
    return _ESCAPED.sub(_as_western, text), num_bad


def _as_western(found: re.Match[str]) -> str:
    return bytes([ord(found[0]) - 0xDC00]).decode("cp1252", "replace")


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
# Western letters and marks that Windows-1252 and Latin-1 put beside ASCII in real books.
_WESTERN = frozenset(
    "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿŒœŠšŽžŸÐðÞþ"
    "«»„“”‘’‚‹›–—…•°§·£€¿¡ªº©®½¼¾ \xad×†‡"  # noqa: RUF001
)
_INSIDE_WORD = re.compile(r"(?<=[^\W\d_])[¿¡ªº©®½¼¾£€§°×†‡](?=[^\W\d_])")  # noqa: RUF001


@dataclass(frozen=True, slots=True)
class Decoded:
    """Hold a text in NFC, the name of the charset it was read by, and what was odd."""

    text: str
    charset: str
    warnings: tuple[str, ...] = ()


def decode_text(raw: bytes, *, charset: str = "") -> Decoded:
    """Return the characters of a plain text.

    Args:
        charset: what a header or a tag says of it; tried after a byte order mark, before guesses.

    Raises:
        BookRejectedError: `book_empty`, `book_not_text`, `book_charset_unknown`.
    """
    if not raw.strip(b"\0\r\n\t \x0b\x0c" + codecs.BOM_UTF8):
        raise BookRejectedError("book_empty", "The file is empty; send a book with words in it.")
    name, text, warnings = _decode(raw, charset)
    return _check_text(name, text, warnings)


def _decode(raw: bytes, charset: str) -> tuple[str, str, tuple[str, ...]]:
    for mark, name in MARKS:
        if raw.startswith(mark):
            text = _try(raw, name)
            if text is None and (mixed := _read_mixed(raw.removeprefix(codecs.BOM_UTF8))):
                return mixed
            if text is None:
                raise _not_text(
                    f"The file begins with the mark of {name}, but is not written in that encoding."
                )
            return name, text, ()
    if b"\0" in raw:
        return *_decode_wide(raw), ()
    for name in _candidates(raw, charset):
        text = _try(raw, name)
        if text is not None:
            return name, text, ()
    if (mixed := _read_mixed(raw)) is not None:
        return mixed
    name, text = _guess(raw)
    shown = "Windows-1252" if name == "cp1252" else name
    return (
        name,
        text,
        (
            (
                f"The text names no character encoding and was read as {shown}; check its accented "
                "letters."
            ),
        ),
    )


def _read_mixed(raw: bytes) -> tuple[str, str, tuple[str, ...]] | None:
    found = None if b"\0" in raw else decode_mostly_utf8(raw)
    if found is None:
        return None
    warning = (
        f"{counted(found[1], 'byte')} of the file were read as Windows-1252; the rest is UTF-8."
    )
    return "utf-8", found[0], (warning,)


def _candidates(raw: bytes, charset: str) -> list[str]:
    declared = _DECLARED.search(raw[:4096])
    names = (charset, declared[1].decode("ascii") if declared else "")
    codecs_named = [codec for name in names if name and (codec := codec_of(name))]
    # Who can read the declaration as plain letters reads no wide charset.
    return ["utf-8", *(codec for codec in codecs_named if not is_wide(codec))]


def _try(raw: bytes, name: str) -> str | None:
    try:
        return raw.decode(name)
    except (UnicodeDecodeError, LookupError, ValueError):
        return None


def _decode_wide(raw: bytes) -> tuple[str, str]:
    """Decode UTF-16 or UTF-32 without a mark: the one in which blanks and line ends turn up."""
    narrow = raw.replace(b"\0", b"")
    if len(narrow) > 0.8 * len(raw) and not _CONTROL_BYTES.search(narrow):
        as_utf8 = _try(narrow, "utf-8")
        if as_utf8 is not None:  # plain text that somebody put NULs into
            raise _not_text("The file has NUL bytes, which text never has.")
    best: tuple[int, str, str] | None = None
    for name in _WIDE:
        text = _try(raw, name)
        if text is None or "\0" in text:
            continue
        score = text.count(" ") + text.count("\n") + sum(c.isascii() for c in text[:4096])
        if _share_of_unreadable(text) < _MAX_CONTROL_SHARE and (best is None or score > best[0]):
            best = (score, name, text)
    if best is None:
        raise _not_text("The file has NUL bytes, which text never has.")
    return best[1], best[2]


def _guess(raw: bytes) -> tuple[str, str]:
    western = _try(raw, "cp1252") or raw.decode("latin-1")
    strange = {c for c in western if not c.isascii() and c not in _WESTERN}
    if not strange and not _INSIDE_WORD.search(western) and _is_mostly_ascii(western):
        return "cp1252", western
    sample = _sample(raw)
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


def _sample(raw: bytes) -> bytes:
    """Return the lines that hold bytes beyond ASCII, which alone tell charsets apart."""
    lines = [line for line in raw.splitlines(keepends=True) if not line.isascii()]
    return b"".join(lines)[:_SAMPLE_BYTES]


def _is_mostly_ascii(text: str) -> bool:
    letters = [c for c in text[:_SAMPLE_BYTES] if c.isalpha()]
    return sum(c.isascii() for c in letters) >= 0.8 * len(letters)


def _share_of_unreadable(text: str) -> float:
    sample = text[:_SAMPLE_BYTES]
    bad = sum(unicodedata.category(c) in {"Cn", "Co", "Cs"} for c in sample)
    return (bad + len(_CONTROL.findall(sample))) / max(1, len(sample))


def _check_text(name: str, text: str, warnings: tuple[str, ...]) -> Decoded:
    text = unicodedata.normalize("NFC", text.rstrip(_DOS_END).lstrip("\ufeff"))
    if not text.strip():
        raise BookRejectedError("book_empty", "The file is empty; send a book with words in it.")
    controls = len(_CONTROL.findall(text))
    if "\0" in text or controls > max(2, _MAX_CONTROL_SHARE * len(text)):
        raise _not_text("The file has too many control characters.")
    if not controls:
        return Decoded(text, name, warnings)
    warning = f"{controls} control characters were read as blanks."
    return Decoded(_CONTROL.sub(" ", text), name, (*warnings, warning))


def _not_text(why: str) -> BookRejectedError:
    return BookRejectedError(
        "book_not_text",
        f"The file is not a readable text. {why} Save it as UTF-8, or send the book itself "
        "(EPUB, DOCX, PDF, HTML, Markdown or TXT).",
    )
