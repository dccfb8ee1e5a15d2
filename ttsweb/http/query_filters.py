"""Read the filters of a list; one that cannot be read is an error, never ignored."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from django.db.models import Q
from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.serializers import CharField, Serializer

from ttsweb.http.api import check_query

PAGE_PARAMETERS = ("cursor", "limit")
MOMENT = {"type": "string", "format": "date-time"}
NOT_BLANK = r"\S"  # pattern of a text that is not blanks alone
UUID = {"type": "string", "format": "uuid"}
_HEX = "[0-9A-Fa-f]"


class DescribedField(CharField):
    """Take a text of a query, and say in the API's description which texts are taken.

    Args:
        schema: the description, of which the validator of the field is the judge.
    """

    def __init__(self, *, schema: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.schema = schema


class DescribedScheme(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]  # theirs
    """Hand on what a field says of itself."""

    target_class = "ttsweb.http.query_filters.DescribedField"

    def map_serializer_field(self, auto_schema: Any, direction: Any) -> dict[str, Any]:
        """Return the field's schema."""
        return dict(self.target.schema)


def some_of(names: Sequence[str]) -> dict[str, Any]:
    """Describe names with commas between them."""
    one = "|".join(re.escape(name) for name in names)
    return {"type": "string", "pattern": f"^({one})(,({one}))*$"}


def ids_of(most: int) -> dict[str, Any]:
    """Describe up to `most` ids with commas between them."""
    one = "-".join(f"{_HEX}{{{length}}}" for length in (8, 4, 4, 4, 12))
    return {"type": "string", "pattern": f"^{one}(,{one}){{0,{most - 1}}}$"}


def check_list_query(request: Request, filters: type[Serializer[Any]]) -> None:
    """Refuse parameters that the list does not act on, and those that are given twice.

    Raises:
        ValidationError: 400 that names each of them.
    """
    check_query(request, (*PAGE_PARAMETERS, *filters().fields))
    check_not_repeated(request)


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


def read_choices(value: str, known: list[str]) -> list[str]:
    """Return the names that are separated by commas.

    Raises:
        ValidationError: one of them is not known.
    """
    names = value.split(",")
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise ValidationError(f"{unknown[0][:50]!r} is not one of {', '.join(known)}.")
    return names
