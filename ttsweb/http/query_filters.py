"""Read the filters of a list; one that cannot be read is an error, never ignored."""

from __future__ import annotations

import datetime as dt
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any

from django.db.models import Q
from django.utils.dateparse import parse_datetime
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.fields import empty
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from ttsweb.http.fields import DescribedField

PAGE_PARAMETERS = ("cursor", "limit")
MOMENT = {"type": "string", "format": "date-time"}
UUID = {"type": "string", "format": "uuid"}
_HEX = "[0-9A-Fa-f]"


class Filter(DescribedField):
    """Take a text of a query as a condition on rows.

    Args:
        read: returns what the text says, or raises the ValidationError.
        condition: makes it a condition; by default that the column of the field's name is that.
    """

    def __init__(
        self,
        read: Callable[[str], Any],
        condition: Callable[[Any], Q] | None,
        *,
        schema: Mapping[str, Any],
        help_text: str,
    ) -> None:
        super().__init__(schema=schema, required=False, help_text=help_text)
        self.read, self.condition = read, condition

    def run_validation(self, data: Any = empty) -> Any:
        found = self.read(super().run_validation(data))
        if self.condition is not None:
            return self.condition(found)
        name = f"{self.field_name}__in" if isinstance(found, list) else self.field_name
        return Q(**{str(name): found})


def names_filter(
    names: Sequence[str], help_text: str, condition: Callable[[list[str]], Q] | None = None
) -> Filter:
    one = "|".join(re.escape(name) for name in names)
    schema = {"type": "string", "pattern": f"^({one})(,({one}))*$"}

    def read(text: str) -> list[str]:
        given = text.split(",")
        if unknown := sorted(set(given) - set(names)):
            raise ValidationError(f"{unknown[0][:50]!r} is not one of {', '.join(names)}.")
        return given

    return Filter(read, condition, schema=schema, help_text=help_text)


def id_filter(
    noun: str, condition: Callable[[uuid.UUID], Q] | None = None, *, help_text: str = ""
) -> Filter:
    def read(text: str) -> uuid.UUID:
        try:
            return uuid.UUID(text)
        except ValueError as error:
            raise ValidationError(f"Expected the id of a {noun}.") from error

    return Filter(read, condition, schema=UUID, help_text=help_text or f"Id of a {noun}.")


def ids_filter(nouns: str, most: int) -> Filter:
    def read(text: str) -> list[uuid.UUID]:
        texts = text.split(",")
        if len(texts) > most:
            raise ValidationError(f"At most {most} ids are allowed.")
        try:
            return [uuid.UUID(one.strip()) for one in texts]
        except ValueError as error:
            raise ValidationError(f"Expected ids of {nouns}, separated by commas.") from error

    one = "-".join(f"{_HEX}{{{length}}}" for length in (8, 4, 4, 4, 12))
    schema = {"type": "string", "pattern": f"^{one}(,{one}){{0,{most - 1}}}$"}
    text = f"Up to {most} ids, separated by commas."
    return Filter(read, lambda ids: Q(pk__in=ids), schema=schema, help_text=text)


def truth_filter(
    help_text: str, condition: Callable[[bool], Q] | None = None, *, is_text: bool = False
) -> Filter:
    """Return a filter by true or false; with `is_text` described as one of these two texts."""

    def read(text: str) -> bool:
        if text not in ("true", "false"):
            raise ValidationError("Expected true or false.")
        return text == "true"

    texts = {"type": "string", "enum": ["true", "false"]}
    schema = texts if is_text else {"type": "boolean"}
    return Filter(read, condition, schema=schema, help_text=help_text)


def moment_filter(lookup: str) -> Filter:
    return Filter(
        _read_moment,
        lambda moment: Q(**{lookup: moment}),
        schema=MOMENT,
        help_text="A time with its zone, such as 2026-01-31T12:00:00Z.",
    )


def _read_moment(value: str) -> dt.datetime:
    """Return a moment; one without a zone could mean several."""
    moment: dt.datetime | None = None
    with suppress(ValueError):
        # A plus sign in a query is a blank unless it was escaped.
        moment = parse_datetime(value.replace(" ", "+") if value.count(" ") == 1 else value)
    if moment is None or moment.tzinfo is None:
        raise ValidationError("Expected a time with its zone, such as 2026-01-31T12:00:00Z.")
    with suppress(OverflowError):  # of the year 1 or 9999, whose UTC would lie outside of them
        return moment.astimezone(dt.UTC)
    raise ValidationError("Expected a time with a year from 2 to 9998.")


def check_not_repeated(request: Request) -> None:
    """Refuse parameters that are given twice.

    Raises:
        ValidationError: 400 `repeated` that names each of them.
    """
    query = request.query_params
    twice = [name for name in query if len(query.getlist(name)) > 1]
    if twice:
        sentence = "This parameter is given more than once; give it once."
        raise ValidationError({name: [ErrorDetail(sentence, code="repeated")] for name in twice})


def read_condition(request: Request, filters: type[Serializer[Any]]) -> Q:
    """Return what rows have to meet: all filters of the query, each validated to a `Q`.

    Raises:
        ValidationError: a filter's value is none that it takes.
    """
    query = request.query_params
    given = {name: query[name] for name in map(str, filters().fields) if name in query}
    serializer = filters(data=given)
    serializer.is_valid(raise_exception=True)
    return reduce(lambda left, right: left & right, serializer.validated_data.values(), Q())
