"""Say what is in the zip of a batch: files with names that every system takes, and a list."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

MAX_NAME_BYTES = 160  # of the 255 that file systems take
MANIFEST_JSON, MANIFEST_CSV = "manifest.json", "manifest.csv"
_UNSAFE = re.compile(r"[^\w.-]+")
_OF_WINDOWS = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True)
class ManifestItem:
    """One item: its names, its state, its file if it has one, else what went wrong."""

    custom_id: str
    job: str
    status: str
    file: str = ""
    seconds: float = 0.0
    bytes: int = 0
    sha256: str = ""
    error_code: str = ""
    error_message: str = ""


class FileNames:
    """Name files by `custom_id`s: no two alike, whatever the system thinks of a letter's case."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def name(self, custom_id: str, index: int, extension: str) -> str:
        """Return a file's name for the item at `index`, from 0."""
        stem = safe_stem(custom_id)
        name = f"{stem}.{extension}"
        number = index + 1
        while _as_compared(name) in self._taken:
            name = f"{stem}-{number:05d}.{extension}"
            number += 1
        self._taken.add(_as_compared(name))
        return name


def safe_stem(custom_id: str) -> str:
    """Return a name without what some system does not take in one; never empty, never a path."""
    text = unicodedata.normalize("NFC", custom_id)
    cut = _UNSAFE.sub("_", text).strip(".").encode()[:MAX_NAME_BYTES]
    text = cut.decode(errors="ignore").rstrip(".")
    if not text.strip("_"):
        text = "item"
    return f"_{text}" if _OF_WINDOWS.fullmatch(text) else text


def manifest_json(batch: dict[str, Any], items: Iterable[ManifestItem]) -> bytes:
    """Return the manifest as JSON: what is said of the batch, and its items in their order."""
    told = [
        {
            **{name: value for name, value in asdict(item).items() if not name.startswith("error")},
            "file": item.file or None,
            "error": (
                {"code": item.error_code, "message": item.error_message}
                if item.error_code
                else None
            ),
        }
        for item in items
    ]
    return json.dumps({**batch, "items": told}, ensure_ascii=False, indent=1).encode()


def manifest_csv(items: Iterable[ManifestItem]) -> bytes:
    """Return the items as CSV; what a table would take for a formula begins with an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(field.name for field in fields(ManifestItem))
    for item in items:
        writer.writerow(_cell(value) for value in asdict(item).values())
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value


def _as_compared(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
