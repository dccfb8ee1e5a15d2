"""Plan a batch: look at every item as at a job of its own, before anything is written."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.utils import timezone
from rest_framework.exceptions import APIException, ValidationError

from synth.api.batches.requests import BatchItemCreateSerializer
from synth.batches.entries import Entry, ItemError
from synth.jobs.planning import PlannedJob, Planner
from synth.jobs.rejections import SubmitRejectedError, deadline_past
from synth.models import RenderJob
from synth.options.orders import Order
from synth.webhooks.urls import WebhookUrlError, check_webhook_url
from ttsweb.counted import counted
from ttsweb.http.api import error_items

_OWN = ("text", "custom_id")  # what nearly every item has for itself alone
_KEPT_OPTIONS = 64


@dataclass(frozen=True)
class BatchOptions:
    """Say what holds for a batch as a whole; the names are those of the job's columns.

    `defaults` are options of items as JSON has them, for those that do not say otherwise.
    """

    priority: RenderJob.Priority = RenderJob.Priority.BULK
    webhook_url: str = ""
    retention_seconds: int | None = None
    deadline_at: dt.datetime | None = None
    defaults: dict[str, Any] = field(default_factory=dict)


class BadEntryError(Exception):
    """An entry cannot be read; `errors` is everything that is wrong with it."""

    def __init__(self, errors: list[ItemError]) -> None:
        super().__init__("an entry cannot be read")
        self.errors = errors


class OrderReader:
    """Read the entries of one batch."""

    def __init__(self, options: BatchOptions) -> None:
        """Read with a batch's options and its defaults."""
        self._options = options
        self._serializer = BatchItemCreateSerializer()
        self._known: dict[str, Order] = {}  # orders by their options alone

    def read(self, entry: Entry) -> Order:
        """Return what an entry orders, with the batch's defaults.

        Raises:
            BadEntryError: its fields are wrong.
        """
        try:
            own = {name: self._own(name, entry) for name in _OWN if name in entry.fields}
            key = json.dumps([item for item in entry.fields.items() if item[0] not in _OWN])
        except ValidationError:
            return self._read(entry)  # which finds all that is wrong
        if "text" not in own:
            return self._read(entry)
        if key not in self._known:
            if len(self._known) >= _KEPT_OPTIONS:
                self._known.clear()
            self._known[key] = self._read(entry)
        return replace(self._known[key], text=own["text"])

    def _own(self, name: str, entry: Entry) -> Any:
        """Return a field that is the entry's alone, looked at as the whole entry's would be."""
        value = self._serializer.fields[name].run_validation(entry.fields[name])
        return self._serializer.validate_custom_id(value) if name == "custom_id" else value

    def _read(self, entry: Entry) -> Order:
        defaults = dict(self._options.defaults)
        for one, other in (("voice", "voices"), ("voices", "voice")):
            if one in entry.fields:
                defaults.pop(other, None)
        try:
            fields = self._serializer.run_validation({**defaults, **entry.fields})
        except ValidationError as error:
            told = [ItemError(**item) for item in error_items(error.detail)]
            raise BadEntryError(told) from error
        except APIException as error:
            attr, code = getattr(error, "attr", None), getattr(error, "code", error.default_code)
            raise BadEntryError([ItemError(attr, code, str(error.detail))]) from error
        order: Order = fields["order"]
        return replace(
            order, priority=self._options.priority, deadline_at=self._options.deadline_at
        )


@dataclass(frozen=True)
class BadItem:
    """An entry that cannot be rendered, and everything that is wrong with it."""

    entry: Entry
    custom_id: str
    errors: list[ItemError]


@dataclass
class PlannedBatch:
    """Hold what the entries of a batch have become; `good` by their index."""

    good: dict[int, tuple[str, PlannedJob]] = field(default_factory=dict)
    bad: list[BadItem] = field(default_factory=list)
    num_chars: int = 0


class BatchRejectedError(Exception):
    """Some entries cannot be rendered, so nothing was queued; `bad` are all of them."""

    def __init__(self, bad: Sequence[BadItem], num_items: int) -> None:
        super().__init__(f"{len(bad)} of {counted(num_items, 'item')} cannot be rendered")
        self.bad, self.num_items = bad, num_items


def check_batch(
    entries: Sequence[Entry],
    options: BatchOptions,
    *,
    owner: AbstractBaseUser | None,
    skip_bad: bool = False,
) -> PlannedBatch:
    """Return what a batch would become, if it would be taken; nothing is written.

    Raises:
        BatchRejectedError, SubmitRejectedError: as `submit_batch`.
    """
    _check_options(options)
    planned = plan_batch(entries, options, owner=owner)
    if planned.bad and not skip_bad:
        raise BatchRejectedError(planned.bad, len(entries))
    return planned


def plan_batch(
    entries: Sequence[Entry], options: BatchOptions, *, owner: AbstractBaseUser | None
) -> PlannedBatch:
    """Look at every entry as at a job of its own; nothing is written.

    Raises:
        SubmitRejectedError: 413 batch_too_long; checkpoint_card_invalid.
    """
    planner = Planner(owner)
    _ = planner.card  # an unreadable one is no item's fault
    reader = OrderReader(options)
    names = _Names(entries)
    found = PlannedBatch()
    for entry in entries:
        custom_id, name_error = names.name(entry)
        try:
            if entry.error is not None:
                raise BadEntryError([entry.error])
            order = reader.read(entry)
            if name_error is not None:
                raise BadEntryError([name_error])
            planned = planner.plan(order)
        except (SubmitRejectedError, BadEntryError) as error:
            found.bad.append(BadItem(entry, custom_id, _errors_of(error)))
            continue
        found.num_chars += len(planned.job.text)
        if found.num_chars > settings.MAX_BATCH_CHARS:
            raise _too_long(entry)
        found.good[entry.index] = (custom_id, planned)
    return found


def _check_options(options: BatchOptions) -> None:
    """Refuse what is wrong with the batch itself, and so with none of its items."""
    if options.deadline_at is not None and options.deadline_at <= timezone.now():
        raise deadline_past()
    if options.webhook_url:
        try:
            check_webhook_url(options.webhook_url)
        except WebhookUrlError as error:
            raise SubmitRejectedError(400, error.code, str(error), attr="webhook") from error


class _Names:
    """Give each entry its name in the batch: its own, or one by its place that no other has."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._first: dict[str, Entry] = {}
        for entry in entries:
            given = entry.fields.get("custom_id")
            if isinstance(given, str):
                self._first.setdefault(given, entry)

    def name(self, entry: Entry) -> tuple[str, ItemError | None]:
        """Return the name, and what is wrong with the one that was given."""
        given = entry.fields.get("custom_id")
        made = f"item-{entry.index + 1:05d}"
        while made in self._first:
            made += "-"
        if not isinstance(given, str):
            return made, None
        first = self._first[given]
        if first is entry:
            return (given, None) if given.isprintable() and 0 < len(given) <= 200 else (made, None)
        sentence = (
            f"{first.place} uses the custom_id {given!r} already; give each item a custom_id of "
            "its own."
        )
        return made, ItemError("custom_id", "custom_id_duplicate", sentence)


def _errors_of(error: SubmitRejectedError | BadEntryError) -> list[ItemError]:
    if isinstance(error, BadEntryError):
        return error.errors
    return [ItemError(error.attr, error.code, str(error))]


def _too_long(entry: Entry) -> SubmitRejectedError:
    return SubmitRejectedError(
        413,
        "batch_too_long",
        f"The texts up to {entry.place} have more than {settings.MAX_BATCH_CHARS} "
        "characters together. Split the batch, or raise TTS_MAX_BATCH_CHARS.",
    )
