"""Read what each item of a batch orders; options that many items have alike are read once."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field, replace
from typing import Any

from rest_framework.exceptions import APIException, ValidationError

from synth.api.batches.requests import BatchItemCreateSerializer
from synth.batches.entries import Entry, ItemError
from synth.models import RenderJob
from synth.options.orders import Order
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
