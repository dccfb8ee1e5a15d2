"""Clean a text before it is cut: one Unicode form, one kind of line end, nothing invisible."""

from __future__ import annotations

import re
import unicodedata

from ttsweb.refusals import SubmitRejectedError

_LINE_ENDS = re.compile("\r\n|[\r\x85\u2028\v]")
_PARAGRAPH_ENDS = re.compile("[\f\u2029]")
# Marks that only steer layout. The joiners U+200C and U+200D stay: Persian, Indic scripts and
# emoji are spelled with them.
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff]")
_CONTROL = re.compile(r"[\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_PLAIN = re.compile(r"[\t\n\r\f\v -~]+")  # readable in any text, and most of many a one
_UNREADABLE = frozenset({"Cc", "Cn", "Co"})
_MIN_UNREADABLE = 8  # below this a stray byte is more likely than a binary file
_UNREADABLE_SHARE = 0.1


class TextRejectedError(SubmitRejectedError):
    """A text cannot be rendered; the message says what to change."""

    field = "text"


def clean_text(text: str, *, max_chars: int) -> str:
    """Return the text in NFC, with `\\n` as its only line end and nothing invisible in it.

    Args:
        max_chars: most characters that `text` may have as it came.

    Raises:
        TextRejectedError: `text_too_long`, `text_not_text` (a NUL, half of a surrogate pair, or
            largely bytes that are no text), `text_empty` (nothing but blanks and controls).
    """
    if len(text) > max_chars:
        raise TextRejectedError(
            "text_too_long",
            f"The text has {len(text)} characters; at most {max_chars} are allowed. Split "
            "it into several jobs.",
        )
    if _is_binary(text):
        raise TextRejectedError(
            "text_not_text",
            "This is not text; send characters in UTF-8, not the bytes of another kind of file.",
        )
    text = _LINE_ENDS.sub("\n", _PARAGRAPH_ENDS.sub("\n\n", text))
    text = unicodedata.normalize("NFC", _CONTROL.sub("", _INVISIBLE.sub("", text)))
    if not text.strip():
        raise TextRejectedError("text_empty", "The text is empty; send at least one word.")
    return text


def is_speakable(text: str) -> bool:
    """Say whether a text holds a letter or a digit of any script."""
    return any(character.isalnum() for character in text)


def _is_binary(text: str) -> bool:
    odd = _PLAIN.sub("", text)
    if any(letter == "\0" or "\ud800" <= letter <= "\udfff" for letter in odd):
        return True
    bad = sum(letter == "\ufffd" or unicodedata.category(letter) in _UNREADABLE for letter in odd)
    return bad >= _MIN_UNREADABLE and bad > len(text) * _UNREADABLE_SHARE
