"""Read the entries of a batch, each with its place: a JSON list, JSONL, or a manifest of books."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

from rest_framework.exceptions import APIException, ValidationError
from rest_framework.serializers import BaseSerializer

from synth.api.batches.requests import ManifestEntrySerializer
from synth.api.fields import StrictNumberField
from synth.api.option_fields import JsonField, RetentionField
from synth.audiobooks.plans import METADATA_FIELDS, METADATA_LISTS
from synth.models import Batch
from ttsweb.http.api import ApiProblem, error_items, read_json
from ttsweb.http.fields import StrictBooleanField
from ttsweb.refusals import SubmitRejectedError, counted

MAX_BATCH_BOOKS = 1_000  # of one batch, whose report lists each of them

DELIMITERS = ",;\t"
NAMES_SEPARATOR = ";"  # between several authors in one cell
METADATA_PREFIX = "metadata."
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL = re.compile(r"[+-]?[0-9]{0,30}\.?[0-9]{1,30}")
MAX_SHOWN_ERRORS = 100


class _Words(NamedTuple):
    """Say how requests call their rows, one of them, and the field that names one."""

    rows: str
    row: str
    name: str
    example: str
    too_many: str  # the code
    too_many_sentence: str


_WORDS = {
    Batch.Kind.TEXTS: _Words(
        "items", "item", "custom_id", '{"custom_id": "a", "text": "Hello."}',
        "batch_too_many_items",
        "The batch has {said}, and at most {most} are allowed. Split it into several batches.",
    ),
    Batch.Kind.BOOKS: _Words(
        "entries", "entry", "file", '{"file": "book.epub", "voice": "Ada"}',
        "book_batch_too_many",
        "The batch would have {said}, and at most {most} are allowed. Make several batches.",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ItemError:
    """Say what is wrong with one item: field or None, stable code, sentence."""

    attr: str | None
    code: str
    detail: str

    @property
    def sentence(self) -> str:
        """Return what is wrong, with the field at fault."""
        return f"{self.attr}: {self.detail}" if self.attr else self.detail


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

    def place(self, kind: Batch.Kind = Batch.Kind.TEXTS) -> str:
        """Return where a person finds it."""
        return f"{_WORDS[kind].row} {self.index}" if self.line is None else f"line {self.line}"


@dataclass(frozen=True)
class BadEntry:
    """An entry that cannot be made, and everything that is wrong with it."""

    entry: Entry
    errors: list[ItemError]
    custom_id: str = ""


def listed_errors(bad: Sequence[BadEntry], kind: Batch.Kind) -> list[dict[str, Any]]:
    """Return every error of every bad entry, with its place; of texts with the item's name."""
    words, found = _WORDS[kind], []
    for one in bad:
        entry, given = one.entry, one.entry.fields.get(words.name)
        name = given if isinstance(given, str) else None
        named = f" ({words.name} {name[:200]!r})" if name is not None else ""
        at = f"{words.rows}.{entry.index}"
        more = {"custom_id": name} if kind == Batch.Kind.TEXTS else {}
        found += [
            {
                "attr": f"{at}.{error.attr}" if error.attr else at,
                "code": error.code,
                "detail": f"{entry.place(kind)}{named}: {error.sentence}",
                "line": entry.line,
                "index": entry.index,
                **more,
            }
            for error in one.errors
        ]
    return found


def entries_rejected(kind: Batch.Kind, bad: Sequence[BadEntry], num_entries: int) -> ApiProblem:
    """Return the answer that names what is wrong with which entries, up to a hundred errors."""
    code, why, advice = {
        Batch.Kind.TEXTS: (
            "batch_items_invalid",
            "cannot be rendered, so nothing was queued",
            "Correct these items, or send on_error=skip to queue the others.",
        ),
        Batch.Kind.BOOKS: (
            "book_batch_entries_invalid",
            "are invalid, so nothing was created",
            "Correct these entries, or send on_error=skip to create the others.",
        ),
    }[kind]
    errors = listed_errors(bad, kind)
    entries = counted(num_entries, _WORDS[kind].row, _WORDS[kind].rows)
    few = (
        f" Only the first {MAX_SHOWN_ERRORS} errors are listed."
        if len(errors) > MAX_SHOWN_ERRORS
        else ""
    )
    detail = f"{len(bad)} of {entries} {why}; {errors[0]['detail']}{few} {advice}"
    return ApiProblem(400, code, detail, errors=errors[:MAX_SHOWN_ERRORS])


class BadEntryError(Exception):
    """An entry cannot be read; `errors` is everything that is wrong with it."""

    def __init__(self, errors: list[ItemError]) -> None:
        super().__init__("an entry cannot be read")
        self.errors = errors


def bad_entry(
    entry: Entry, error: SubmitRejectedError | BadEntryError, custom_id: str = ""
) -> BadEntry:
    """Return an entry with what is wrong with it."""
    if isinstance(error, BadEntryError):
        return BadEntry(entry, error.errors, custom_id)
    return BadEntry(entry, [ItemError(error.attr, error.code, str(error))], custom_id)


def with_defaults(defaults: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry's fields with the batch's defaults for those that it does not give."""
    kept = dict(defaults)
    for one, other in (("voice", "voices"), ("voices", "voice")):
        if one in fields:
            kept.pop(other, None)
    return {**kept, **fields}


def read_fields(serializer: BaseSerializer[Any], fields: Mapping[str, Any]) -> Any:
    """Return what a serializer makes of an entry's fields.

    Raises:
        BadEntryError: they are wrong.
    """
    try:
        return serializer.run_validation(fields)
    except ValidationError as error:
        errors = [
            ItemError(one["attr"], one["code"], one["detail"]) for one in error_items(error.detail)
        ]
        raise BadEntryError(errors) from error
    except APIException as error:
        attr, code = getattr(error, "attr", None), getattr(error, "code", error.default_code)
        raise BadEntryError([ItemError(attr, code, str(error.detail))]) from error


def entries_of_list(
    items: Sequence[Any], *, max_items: int, kind: Batch.Kind = Batch.Kind.TEXTS
) -> list[Entry]:
    """Return the items or entries of a JSON list; no items are an error.

    Raises:
        SubmitRejectedError: batch_empty; 413 batch_too_many_items or book_batch_too_many.
    """
    if len(items) > max_items:
        raise too_many(kind, f"{len(items)} {_WORDS[kind].rows}", max_items)
    if not items and kind == Batch.Kind.TEXTS:
        raise _empty("items")
    return [_entry(index, None, value, kind) for index, value in enumerate(items)]


def entries_of_lines(file: IO[bytes], *, max_items: int) -> list[Entry]:
    """Return the items of a JSONL file: UTF-8, one object a line, blank lines left out.

    Raises:
        SubmitRejectedError: batch_empty; 413 batch_too_many_items, told before the rest is read.
    """
    kind = Batch.Kind.TEXTS
    found = _at_most(max_items, _lines(file, kind), kind)
    if not found:
        raise _empty("file")
    return found


def read_manifest(content: bytes, *, most: int) -> list[Entry]:
    """Return the entries of a manifest; one that begins with a brace is JSONL, any other CSV.

    Raises:
        SubmitRejectedError: manifest_empty, manifest_not_utf8, manifest_header_*; 413
            book_batch_too_many.
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    if not content.strip():
        raise _refused("manifest_empty", "The manifest is empty; name one book on each line.")
    kind = Batch.Kind.BOOKS
    is_jsonl = content.lstrip()[:1] == b"{"
    rows = _lines(io.BytesIO(content), kind) if is_jsonl else _csv(_text_of(content))
    found = _at_most(most, rows, kind)
    if not found:
        raise _refused("manifest_empty", "The manifest has a header but no books below it.")
    return found


def too_many(kind: Batch.Kind, said: str, most: int) -> SubmitRejectedError:
    """Return the error of a batch with more rows than one may have."""
    words = _WORDS[kind]
    return SubmitRejectedError(words.too_many, words.too_many_sentence.format(said=said, most=most))


def _at_most(most: int, rows: Iterator[Entry], kind: Batch.Kind) -> list[Entry]:
    found: list[Entry] = []
    for entry in rows:
        if len(found) >= most:
            raise too_many(kind, f"more than {most} {_WORDS[kind].rows}", most)
        found.append(entry)
    return found


def _lines(file: IO[bytes], kind: Batch.Kind) -> Iterator[Entry]:
    """Yield the rows of JSONL; one that cannot be read has an error."""
    index = 0
    for number, line in enumerate(file, start=1):
        content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not content.strip():
            continue
        try:
            yield _entry(index, number, read_json(content), kind)
        except ValueError as error:
            code, sentence = "not_json", f"The line cannot be read as JSON: {str(error)[:200]}."
            if isinstance(cause := error.__cause__, UnicodeDecodeError):
                sentence = f"The line is not UTF-8: {cause.reason} at its byte {cause.start}."
                code = "not_utf8"
            yield Entry(index, number, {}, ItemError(None, code, sentence))
        index += 1


def _entry(index: int, line: int | None, value: Any, kind: Batch.Kind) -> Entry:
    if isinstance(value, dict):
        return Entry(index, line, value)
    sentence = f"Send each {_WORDS[kind].row} as an object such as {_WORDS[kind].example}."
    return Entry(index, line, {}, ItemError(None, "not_an_object", sentence))


def _empty(attr: str) -> SubmitRejectedError:
    return SubmitRejectedError(
        "batch_empty", "The batch has no items; send at least one.", attr=attr
    )


def _csv(text: str) -> Iterator[Entry]:
    """Yield the rows below the header; an empty cell says nothing."""
    delimiter = max(DELIMITERS, key=text.split("\n", 1)[0].count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    fields = ManifestEntrySerializer().get_fields()
    columns: list[str] | None = None
    index, line = 0, 1
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            if columns is None:
                raise _refused("manifest_header_invalid", f"The header: {error}.") from error
            problem = ItemError(None, "not_csv", f"The line cannot be read as CSV: {error}.")
            yield Entry(index, line, {}, problem)
            index += 1
        else:
            if row is None:
                return
            if columns is None:
                columns = _header(row, fields)
            elif any(cell.strip() for cell in row):
                yield _row(index, line, columns, row, fields)
                index += 1
        line = rows.line_num + 1


def _header(row: Sequence[str], fields: Mapping[str, Any]) -> list[str]:
    """Return the columns' names.

    Raises:
        SubmitRejectedError: manifest_header_invalid, a column is unknown, twice, or lacks.
    """
    names = [cell.strip() for cell in row]
    known = {*fields, *METADATA_FIELDS, *(METADATA_PREFIX + name for name in METADATA_FIELDS)}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise _refused(
            "manifest_header_invalid",
            f"The header has an unknown column {unknown[0][:80]!r}; the allowed columns are "
            f"{', '.join(sorted(known))}.",
        )
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise _refused("manifest_header_invalid", f"The header has the column {twice[0]!r} twice.")
    if "file" not in names:
        raise _refused("manifest_header_invalid", "The header lacks the column `file`.")
    return names


def _row(
    index: int, line: int, columns: Sequence[str], row: Sequence[str], fields: Mapping[str, Any]
) -> Entry:
    if len(row) > len(columns):
        sentence = f"The line has {len(row)} cells, but the header has {len(columns)} columns."
        return Entry(index, line, {}, ItemError(None, "too_many_cells", sentence))
    found: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    for name, cell in zip(columns, row, strict=False):
        text = cell.strip()
        if not text:
            continue
        if name in fields:
            found[name] = _value(fields[name], text)
        else:
            said = name.removeprefix(METADATA_PREFIX)
            if said in metadata:
                sentence = f"Two columns set {said}; keep one of them."
                return Entry(index, line, {}, ItemError(said, "repeated", sentence))
            names = [one.strip() for one in text.split(NAMES_SEPARATOR) if one.strip()]
            metadata[said] = names if said in METADATA_LISTS else text
    if metadata and "metadata" in found:
        sentence = (
            "Set metadata either in the column `metadata` or in a column for each field, not in "
            "both."
        )
        return Entry(index, line, {}, ItemError("metadata", "repeated", sentence))
    return Entry(index, line, {**found, **({"metadata": metadata} if metadata else {})})


def _value(field: Any, text: str) -> Any:
    """Return what a cell says as JSON would; what it cannot say stays a text, for the field."""
    if isinstance(field, StrictBooleanField):
        return {"true": True, "false": False}.get(text, text)
    if isinstance(field, (StrictNumberField, RetentionField)):
        if _WHOLE.fullmatch(text):
            return int(text)
        return float(text) if _DECIMAL.fullmatch(text) else text
    if isinstance(field, JsonField):
        with suppress(ValueError):
            return read_json(text.encode())
    return text


def _text_of(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise _refused(
            "manifest_not_utf8",
            f"The manifest is not UTF-8: {error.reason} in line {line}. Save it as UTF-8.",
        ) from error


def _refused(code: str, message: str) -> SubmitRejectedError:
    return SubmitRejectedError(code, message, attr="manifest")
