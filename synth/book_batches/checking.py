"""Look at every entry of a batch of books as at an upload of its own; nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from rest_framework.exceptions import APIException, ValidationError

from synth.api.book_batches.requests import ManifestEntrySerializer
from synth.api.books.options import BookFormSerializer, order_from
from synth.batches.entries import Entry, ItemError
from synth.jobs.rejections import SubmitRejectedError
from synth.options.orders import check_options, speakers_of
from synth.options.voice_choice import find_voice
from ttsweb.counted import counted
from ttsweb.http.api import ApiProblem, error_items

MAX_TOLD_ERRORS = 100


@dataclass(frozen=True)
class GoodEntry:
    """Hold an entry that may be made: its file, its options as they were sent, its metadata."""

    index: int
    line: int | None
    filename: str
    options: dict[str, Any]
    metadata: dict[str, Any]


@dataclass(frozen=True)
class BadEntry:
    """Hold an entry that cannot be made, and everything that is wrong with it."""

    entry: Entry
    errors: list[ItemError]


@dataclass
class CheckedEntries:
    """Hold what the entries of a request have become."""

    good: list[GoodEntry] = field(default_factory=list)
    bad: list[BadEntry] = field(default_factory=list)


class _BadEntryError(Exception):
    def __init__(self, errors: list[ItemError]) -> None:
        super().__init__("an entry cannot be read")
        self.errors = errors


def check_entries(
    entries: Sequence[Entry],
    defaults: Mapping[str, Any],
    *,
    owner: AbstractBaseUser,
    taken: Sequence[str] = (),
) -> CheckedEntries:
    """Sort entries into good ones and bad ones.

    Args:
        taken: names of files that the batch has already.
    """
    checker = _Checker(defaults, owner, taken)
    found = CheckedEntries()
    for entry in entries:
        try:
            if entry.error is not None:
                raise _BadEntryError([entry.error])
            found.good.append(checker.check(entry))
        except _BadEntryError as error:
            found.bad.append(BadEntry(entry, error.errors))
    return found


def merged(defaults: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the defaults for those that are not given."""
    kept = dict(defaults)
    for one, other in (("voice", "voices"), ("voices", "voice")):
        if one in options:
            kept.pop(other, None)
    return {**kept, **options}


def rejected(bad: Sequence[BadEntry], num_entries: int) -> ApiProblem:
    """Return the answer that names what is wrong with which entries, up to a hundred errors."""
    told = told_errors(bad)
    few = (
        f" Only the first {MAX_TOLD_ERRORS} errors are listed."
        if len(told) > MAX_TOLD_ERRORS
        else ""
    )
    return ApiProblem(
        400,
        "book_batch_entries_invalid",
        f"{len(bad)} of {counted(num_entries, 'entry', 'entries')} are invalid, so nothing "
        f"was created; {told[0]['detail']}{few} Correct these entries, or send "
        "on_error=skip to create the others.",
        errors=told[:MAX_TOLD_ERRORS],
    )


def told_errors(bad: Sequence[BadEntry]) -> list[dict[str, Any]]:
    """Return every error of every bad entry, with its place."""
    return [_told(one.entry, error) for one in bad for error in one.errors]


def _told(entry: Entry, error: ItemError) -> dict[str, Any]:
    given = entry.fields.get("file")
    named = f" (file {given[:200]!r})" if isinstance(given, str) else ""
    place = f"entry {entry.index}" if entry.line is None else f"line {entry.line}"
    at = f"entries.{entry.index}"
    said = f"{error.attr}: " if error.attr else ""
    return {
        "attr": f"{at}.{error.attr}" if error.attr else at,
        "code": error.code,
        "detail": f"{place}{named}: {said}{error.detail}",
        "line": entry.line,
        "index": entry.index,
    }


class _Checker:
    """Check entries of one request; a voice is looked up once."""

    def __init__(
        self, defaults: Mapping[str, Any], owner: AbstractBaseUser, taken: Sequence[str]
    ) -> None:
        self._defaults, self._owner = defaults, owner
        self._reader = ManifestEntrySerializer()
        self._places: dict[str, str] = dict.fromkeys(taken, "an earlier entry")
        self._voices: dict[str, SubmitRejectedError | None] = {}

    def check(self, entry: Entry) -> GoodEntry:
        """Return an entry that may be made.

        Raises:
            _BadEntryError: with all that is wrong with it.
        """
        fields = merged(self._defaults, entry.fields)
        try:
            read = self._reader.run_validation(fields)
        except ValidationError as error:
            items = list(error_items(error.detail))
            raise _BadEntryError(
                [ItemError(one["attr"], one["code"], one["detail"]) for one in items]
            ) from error
        except APIException as error:
            code = getattr(error, "code", error.default_code)
            attr = getattr(error, "attr", None)
            raise _BadEntryError([ItemError(attr, code, str(error.detail))]) from error
        try:
            self._check_order(read)
        except SubmitRejectedError as error:
            raise _BadEntryError([ItemError(error.attr, error.code, str(error))]) from error
        filename = read["file"]
        if filename in self._places:
            sentence = (
                f"The file is named by {self._places[filename]} already; name each file once."
            )
            raise _BadEntryError([ItemError("file", "file_duplicate", sentence)])
        self._places[filename] = (
            f"entry {entry.index}" if entry.line is None else f"line {entry.line}"
        )
        options = {k: v for k, v in entry.fields.items() if k not in ("file", "metadata")}
        metadata = {k: v for k, v in read.get("metadata", {}).items() if v is not None}
        return GoodEntry(entry.index, entry.line, filename, options, metadata)

    def _check_order(self, read: dict[str, Any]) -> None:
        """Refuse now what would be refused when the book is started."""
        asked = BookFormSerializer.validate(
            self._reader, {**_without(read, "metadata"), "file": None, "start": False}
        )
        order = order_from(asked["options"])
        check_options(order)
        if not (order.voice or order.voices):
            raise SubmitRejectedError(
                400,
                "voice_required",
                "Give the voice that reads the book, here or in `defaults`.",
                attr="voice",
            )
        for voice in speakers_of(order)[0].values():
            self._check_voice(str(voice))

    def _check_voice(self, name: str) -> None:
        if name not in self._voices:
            try:
                find_voice(self._owner, name)
                self._voices[name] = None
            except SubmitRejectedError as error:
                self._voices[name] = error
        refused = self._voices[name]
        if refused is not None:
            raise refused


def _without(fields: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}
