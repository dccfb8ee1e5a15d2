"""Tell which charset bytes are in: what they say of themselves is believed only if it can be."""

from __future__ import annotations

import codecs
import re

# Names that Python knows but no text is written in; some take very long, or run what they read.
_NO_CHARSETS = frozenset(
    {
        *("base64", "bz2", "hex", "quopri", "rot13", "uu", "zlib"),
        *("idna", "mbcs", "oem", "punycode", "undefined"),
        *("raw-unicode-escape", "unicode-escape", "utf-7"),
    }
)
# Texts that say Latin-1 or ASCII are mostly written in Windows-1252, which adds letters to them.
_WESTERN = frozenset({"iso8859-1", "ascii"})
_WIDE = ("utf-16", "utf-32")
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
    return "cp1252" if found in _WESTERN else found


def is_wide(codec: str) -> bool:
    """Say whether a charset takes two or four bytes for each letter, ASCII too."""
    return codec.startswith(_WIDE)


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
