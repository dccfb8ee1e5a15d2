"""Name files after titles, so that every file system and player can hold them."""

from __future__ import annotations

import re
import unicodedata

_FORBIDDEN = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f\ud800-\udfff\u200e\u200f\u202a-\u202e]')
_RESERVED = re.compile(r"(?i)^(con|prn|aux|nul|com\d|lpt\d)(\..*)?$")
_MAX_BYTES = 150  # file systems take 255; numbers, endings and temporary names need some


def safe_name(text: str, default: str) -> str:
    """Return a text as one part of a path; `default` where nothing of it can stay."""
    name = unicodedata.normalize("NFC", text)
    name = re.sub(r"\s+", " ", _FORBIDDEN.sub(" ", name)).strip(" .")
    name = name.encode()[:_MAX_BYTES].decode(errors="ignore").strip(" .")
    if _RESERVED.match(name):
        name = f"_{name}"
    return name or default


def numbered_name(index: int, count: int, title: str) -> str:
    """Return the name of a chapter's file without its ending; names sort in reading order."""
    width = max(2, len(str(count)))
    return f"{index + 1:0{width}d} - {safe_name(title, 'Chapter')}"
