"""Read the options of a job that are no plain text or number."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.fields import empty
from rest_framework.utils.html import is_html_input

from synth.api.fields import StrictNumberField
from synth.jobs.options import RETENTION
from synth.text.languages import MAX_TAG_CHARS, TAG_PATTERN, language_tag
from synth.text.pauses import BOOK_PAUSE_NAMES, MAX_PAUSE_MS, PAUSE_NAMES
from ttsweb.http.fields import SelfDescribingField
from ttsweb.refusals import RefusedError

MAX_SPEAKERS = 32
MAX_SPEAKER_NUMBER = 9998  # the text's own limit is one more, which stands for all above it
FOR_EVER = "forever"
MAX_SECONDS = int(RETENTION.high)
MAX_SHOWN_KEY = 80  # characters of a key in an error
_SPEAKER = re.compile(r"0|[1-9][0-9]{0,3}")

_Field = serializers.Field[Any, Any, Any, Any]
_LENGTH = {"type": "integer", "minimum": 0, "maximum": MAX_PAUSE_MS}


class LanguageField(SelfDescribingField, serializers.CharField):
    """Take a language tag such as `en` or `pt-BR`, and spell it the usual way."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": MAX_TAG_CHARS, "trim_whitespace": False} | kwargs)

    def to_internal_value(self, data: Any) -> str:
        tag = language_tag(data) if isinstance(data, str) else None
        if tag is None:
            sentence = "Expected a language tag such as en, pt-BR or zh-Hant."
            raise serializers.ValidationError(sentence, code="language_invalid")
        return tag

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        pattern = f"^({TAG_PATTERN})?$" if self.allow_blank else f"^{TAG_PATTERN}$"
        return {"type": "string", "pattern": pattern}


class JsonField(_Field):
    """Take a JSON value; in a form, where all is text, its spelling in JSON.

    Children say by `read` what it must be.
    """

    not_json = "In a form, send this field as JSON."

    def get_value(self, dictionary: Any) -> Any:
        value = dictionary.get(self.field_name, empty)
        return empty if value == "" and is_html_input(dictionary) else value

    def to_internal_value(self, data: Any) -> Any:
        if self.context.get("is_form", False) and isinstance(data, str):
            try:
                data = json.loads(data)
            except (ValueError, RecursionError) as error:
                raise serializers.ValidationError(self.not_json, code="invalid") from error
        return self.read(data)

    def to_representation(self, value: Any) -> Any:
        return value

    def read(self, data: Any) -> Any:
        raise NotImplementedError


def read_each(
    values: Iterable[tuple[Any, Any]], read: Callable[[Any, Any], tuple[Any, Any]]
) -> dict[Any, Any]:
    """Return what is read of values and their keys, as keys and values; errors have these keys."""
    found: dict[Any, Any] = {}
    errors: dict[str, Any] = {}
    for key, value in values:
        try:
            name, said = read(key, value)
            found[name] = said
        except serializers.ValidationError as error:
            errors[str(key)[:MAX_SHOWN_KEY].encode("utf-8", "replace").decode()] = error.detail
    if errors:
        raise serializers.ValidationError(errors)
    return found


class SpeakersField(SelfDescribingField, JsonField):
    """Take an object that gives something to each speaker, by the number of `<|speaker:N|>`.

    Args:
        child: reads what a speaker is given.
    """

    def __init__(self, *, child: _Field, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.child = child
        child.bind(field_name="", parent=self)  # type: ignore[arg-type]  # as DRF does

    def read(self, data: Any) -> dict[int, Any]:
        check_object(data, MAX_SPEAKERS, "speakers")
        for key in data:
            if not _SPEAKER.fullmatch(key) or int(key) > MAX_SPEAKER_NUMBER:
                raise serializers.ValidationError(
                    f'Speakers are numbers such as "0" or "1", up to {MAX_SPEAKER_NUMBER}; '
                    f"{key[:50]!r} is not one.",
                    code="speaker_invalid",
                )
        return read_each(data.items(), self._read_speaker)

    def _read_speaker(self, key: str, value: Any) -> tuple[int, Any]:
        try:
            return int(key), self.child.run_validation(value)
        except RefusedError as error:
            inner = (error.attr or "").rpartition(".")[2]
            raise error.at(f"{self.field_name}.{key}" + (f".{inner}" if inner else "")) from error

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        inner = auto_schema._map_serializer_field(self.child, direction)
        return {"type": "object", "additionalProperties": inner, "maxProperties": MAX_SPEAKERS}


class PausesField(SelfDescribingField, JsonField):
    """Take how long pauses are, in ms, by their names."""

    names = PAUSE_NAMES
    child = StrictNumberField(0, MAX_PAUSE_MS, whole=True)

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        properties = dict.fromkeys(self.names, _LENGTH)
        return {"type": "object", "properties": properties, "additionalProperties": False}

    def read(self, data: Any) -> dict[str, int]:
        check_object(data, len(self.names), "pauses")
        return read_each(data.items(), self._read_pause)

    def _read_pause(self, name: str, value: Any) -> tuple[str, Any]:
        if name not in self.names:
            known = ", ".join(self.names)
            sentence = f"There is no such pause; allowed pauses are {known}."
            raise serializers.ValidationError(sentence, code="unknown_field")
        return name, self.child.run_validation(value)


class BookPausesField(PausesField):
    names = BOOK_PAUSE_NAMES


class ListField(SelfDescribingField, JsonField):
    """Take a list of what `child` reads, at most `most` of them.

    In a form it is one field with the list in JSON, or a field for each text of it.
    """

    def __init__(self, *, child: _Field, most: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.child, self.most = child, most
        child.bind(field_name="", parent=self)  # type: ignore[arg-type]  # as DRF does

    def get_value(self, dictionary: Any) -> Any:
        if not is_html_input(dictionary):
            return super().get_value(dictionary)
        values = dictionary.getlist(self.field_name)
        is_json = len(values) == 1 and str(values[0]).lstrip()[:1] in ("[", "")
        return super().get_value(dictionary) if is_json or not values else values

    def read(self, data: Any) -> list[Any]:
        if not isinstance(data, list):
            raise serializers.ValidationError("Expected a list.", code="invalid")
        if len(data) > self.most:
            sentence = f"There are {len(data)} entries; at most {self.most} are allowed."
            raise serializers.ValidationError(sentence, code="too_many")
        read = self.child.run_validation
        return list(read_each(enumerate(data), lambda place, one: (place, read(one))).values())

    def describe(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        inner = auto_schema._map_serializer_field(self.child, direction)
        return {"type": "array", "items": inner, "maxItems": self.most}


@extend_schema_field(
    {
        "oneOf": [
            {"type": "string", "format": "date-time"},
            {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": MAX_SECONDS},
        ]
    }
)
class DeadlineField(_Field):
    """Take a moment with its zone, or a number of seconds from now."""

    def to_internal_value(self, data: Any) -> dt.datetime:
        """Return the moment in UTC; whether it is still to come is looked at later."""
        with suppress(serializers.ValidationError):
            number = StrictNumberField(0, MAX_SECONDS, low_open=True)
            number.bind(field_name="", parent=self)  # type: ignore[arg-type]  # for its context
            return timezone.now() + dt.timedelta(seconds=number.to_internal_value(data))
        moment: dt.datetime | None = None
        with suppress(ValueError, OverflowError):  # the latter of the year 1 or 9999
            given = parse_datetime(data) if isinstance(data, str) else None
            moment = given.astimezone(dt.UTC) if given and given.tzinfo else None
        if moment is None or moment > timezone.now() + dt.timedelta(seconds=MAX_SECONDS):
            raise serializers.ValidationError(
                "Expected a time with its zone, such as 2026-01-31T12:00:00Z, or a number of "
                "seconds from now. Both must be within the next 10 years.",
                code="deadline_invalid",
            )
        return moment

    def to_representation(self, value: Any) -> Any:
        return value


@extend_schema_field(
    {
        "oneOf": [
            {"type": "integer", "minimum": RETENTION.low, "maximum": MAX_SECONDS},
            {"type": "string", "enum": [FOR_EVER]},
        ]
    }
)
class RetentionField(_Field):
    """Take the seconds that a job is kept after its end, or `forever`, which is 0."""

    def to_internal_value(self, data: Any) -> int:
        if data == FOR_EVER:
            return 0
        number = StrictNumberField(**asdict(RETENTION))
        number.bind(field_name="", parent=self)  # type: ignore[arg-type]  # for its context
        try:
            return int(number.to_internal_value(data))
        except serializers.ValidationError as error:
            raise serializers.ValidationError(
                f"Expected seconds as a whole number from {RETENTION.low} to "
                f"{RETENTION.high}, or {FOR_EVER!r}.",
                code="retention_invalid",
            ) from error

    def to_representation(self, value: int) -> Any:
        return value or FOR_EVER


def check_object(data: Any, most: float = math.inf, what: str = "entries") -> None:
    if not isinstance(data, Mapping):
        raise serializers.ValidationError("Expected an object.", code="invalid")
    if len(data) > most:
        sentence = f"There are {len(data)} {what}; at most {most} are allowed."
        raise serializers.ValidationError(sentence, code="too_many")
