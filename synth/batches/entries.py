"""Read the items of a batch, from a JSON list or from JSONL, each with the place it has there."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from synth.jobs.rejections import SubmitRejectedError
from ttsweb.http.parsers import read_json


@dataclass(frozen=True)
class ItemError:
    """Say what is wrong with one item: field or None, stable code, sentence."""

    attr: str | None
    code: str
    detail: str


@dataclass(frozen=True)
class Entry:
    """One item as it was sent.

    `index` counts items from 0; `line` is its line in a file, from 1, and None in a JSON list.
    `error` says why it cannot even be read; `fields` is then empty.
    """

    index: int
    line: int | None
    fields: dict[str, Any]
    error: ItemError | None = None

    @property
    def place(self) -> str:
        """Return where a person finds it."""
        return f"item {self.index}" if self.line is None else f"line {self.line}"


def entries_of_list(items: list[Any], *, max_items: int) -> list[Entry]:
    """Return the items of a JSON list.

    Raises:
        SubmitRejectedError: batch_empty; 413 batch_too_many_items.
    """
    if len(items) > max_items:
        raise _too_many(f"{len(items)} items", max_items)
    if not items:
        raise _empty("items")
    return [_entry(index, None, value) for index, value in enumerate(items)]


def entries_of_lines(file: IO[bytes], *, max_items: int) -> list[Entry]:
    """Return the items of a JSONL file: UTF-8, one object a line, blank lines left out.

    Raises:
        SubmitRejectedError: batch_empty; 413 batch_too_many_items, told before the rest is read.
    """
    found: list[Entry] = []
    for number, line in _lines(file):
        if len(found) >= max_items:
            raise _too_many(f"more than {max_items} items", max_items)
        found.append(_read_line(len(found), number, line))
    if not found:
        raise _empty("file")
    return found


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, start=1):
        content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if content.strip():
            yield number, content


def _read_line(index: int, number: int, line: bytes) -> Entry:
    try:
        value = read_json(line)
    except ValueError as error:
        if isinstance(error.__cause__, UnicodeDecodeError):
            cause = error.__cause__
            sentence = f"The line is not UTF-8: {cause.reason} at its byte {cause.start}."
            return Entry(index, number, {}, ItemError(None, "not_utf8", sentence))
        sentence = f"The line cannot be read as JSON: {str(error)[:200]}."
        return Entry(index, number, {}, ItemError(None, "not_json", sentence))
    return _entry(index, number, value)


def _entry(index: int, line: int | None, value: Any) -> Entry:
    if isinstance(value, dict):
        return Entry(index, line, value)
    sentence = 'Send each item as an object such as {"custom_id": "a", "text": "Hello."}.'
    return Entry(index, line, {}, ItemError(None, "not_an_object", sentence))


def _too_many(said: str, max_items: int) -> SubmitRejectedError:
    return SubmitRejectedError(
        413,
        "batch_too_many_items",
        f"The batch has {said}, and at most {max_items} are allowed. Split it into several "
        "batches, or raise TTS_MAX_BATCH_ITEMS.",
    )


def _empty(attr: str) -> SubmitRejectedError:
    return SubmitRejectedError(
        400, "batch_empty", "The batch has no items; send at least one.", attr=attr
    )
