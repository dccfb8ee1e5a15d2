"""Read the filters of a list; one that cannot be read is an error, never ignored."""

from __future__ import annotations

from functools import reduce
from typing import Any

from django.db.models import Q
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from ttsweb.api import check_query

PAGE_PARAMETERS = ("cursor", "limit")


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
        sentence = "Given more than once; say it once."
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
        raise ValidationError(f"{unknown[0][:50]!r} is none of {', '.join(known)}.")
    return names
