"""A route that will go says so in each answer and in its description."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from ttsweb.http.api import ApiProblem
from ttsweb.http.deprecation import deprecated

SINCE, SUNSET = dt.date(2027, 1, 1), dt.date(2027, 7, 1)


class PlainView(APIView):
    authentication_classes = ()
    permission_classes = ()

    @extend_schema(operation_id="read_it", responses={200: str})
    def get(self, request: Request) -> Response:
        return Response("it", headers={"Link": '<https://example.org>; rel="about"'})

    @extend_schema(operation_id="change_it", responses={200: str})
    def post(self, request: Request) -> Response:
        raise ApiProblem(409, "not_now", "Not now.")


@deprecated(since=SINCE, sunset=SUNSET, successor="/api/v2/it", more="https://example.org/how")
class OldView(PlainView):
    """A view that will go."""


@deprecated(since=SINCE)
class OpenEndedView(PlainView):
    """A view that will go some day."""


def answer_of(view: type[APIView], method: str = "get") -> Response:
    response: Response = view.as_view()(getattr(APIRequestFactory(), method)("/"))
    return response


@pytest.mark.parametrize(("method", "status"), [("get", 200), ("post", 409), ("delete", 405)])
def test_every_answer_of_a_deprecated_view_announces_its_end(method: str, status: int) -> None:
    answer = answer_of(OldView, method)
    assert answer.status_code == status
    assert answer["Deprecation"] == "@1798761600"
    assert answer["Sunset"] == "Thu, 01 Jul 2027 00:00:00 GMT"
    assert '</api/v2/it>; rel="successor-version"' in answer["Link"]
    assert '<https://example.org/how>; rel="deprecation"' in answer["Link"]


def test_links_that_the_view_set_are_kept() -> None:
    assert answer_of(OldView)["Link"].startswith('<https://example.org>; rel="about", </api/v2/it>')


def test_what_is_not_known_is_not_said() -> None:
    answer = answer_of(OpenEndedView)
    assert answer["Deprecation"] == "@1798761600"
    assert "Sunset" not in answer
    assert answer["Link"] == '<https://example.org>; rel="about"'


def test_view_that_stays_announces_nothing() -> None:
    answer = answer_of(PlainView)
    assert "Deprecation" not in answer and "Sunset" not in answer


def test_description_marks_all_operations_of_a_deprecated_view_and_no_others() -> None:
    patterns: list[Any] = [
        path("api/v1/old", OldView.as_view()),
        path("api/v1/plain", PlainView.as_view()),
    ]
    paths = SchemaGenerator(patterns=patterns).get_schema(request=None, public=True)["paths"]  # type: ignore[no-untyped-call]

    assert {method for method, it in paths["/api/v1/old"].items() if it.get("deprecated")} == {
        "get",
        "post",
    }
    assert not [it for it in paths["/api/v1/plain"].values() if it.get("deprecated")]


def test_end_without_notice_is_refused() -> None:
    with pytest.raises(ValueError, match="90 days"):
        deprecated(since=SINCE, sunset=SINCE + dt.timedelta(days=89))
