"""The shape of every error, and that nothing in a request is silently ignored."""

from __future__ import annotations

import errno
from importlib import import_module
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, TooManyFilesSent
from django.http import Http404
from rest_framework import exceptions, serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIClient, APIRequestFactory
from rest_framework.views import APIView

from synth.api.jobs.requests import JobCreateSerializer
from synth.formats import FORMATS
from ttsweb.http.api import ApiProblem, BoundedJSONParser, StrictSerializer, check_query

factory = APIRequestFactory()


class PartSerializer(StrictSerializer):
    text = serializers.CharField()
    number = serializers.IntegerField(default=1)


class WholeSerializer(StrictSerializer):
    """A request with an inner object, a list of them, and a field that only answers have."""

    name = serializers.CharField()
    part = PartSerializer(required=False)
    parts = PartSerializer(many=True, required=False)
    made = serializers.CharField(read_only=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["name"] == "both":
            raise serializers.ValidationError("Not both.", code="ambiguous")
        if attrs["name"] == "stop":
            raise ApiProblem(409, "not_now", "Not now.", attr="name", retry_after=7)
        return attrs


class EchoView(APIView):
    authentication_classes = ()
    permission_classes = ()
    parser_classes = (BoundedJSONParser, MultiPartParser)

    def get(self, request: Request) -> Response:
        check_query(request, ("wait",))
        return Response({})

    def post(self, request: Request) -> Response:
        serializer = WholeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(serializer.validated_data)


def serve(request: Any, view: type[APIView] = EchoView) -> Response:
    response: Response = view.as_view()(request)
    response.render()
    return response


def post(body: Any, **options: Any) -> Response:
    return serve(factory.post("/", body, **({"format": "json"} | options)))


def errors_of(response: Response) -> list[tuple[str | None, str]]:
    assert response["Content-Type"] == "application/problem+json"
    assert response.data["status"] == response.status_code
    assert {"type", "title", "status", "detail", "code", "errors"} == set(response.data)
    return [(item["attr"], item["code"]) for item in response.data["errors"]]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, [("name", "required")]),
        ({"name": "x", "speed": 1}, [("speed", "unknown_field")]),
        ({"name": "x", "made": "y"}, [("made", "unknown_field")]),
        ({"speed": 1}, [("name", "required"), ("speed", "unknown_field")]),
        ({"name": "x", "part": {"text": "a", "b": 1}}, [("part.b", "unknown_field")]),
        ({"name": "x", "part": {}}, [("part.text", "required")]),
        (
            {"name": "x", "parts": [{"text": "a"}, {"number": "b"}]},
            [("parts.1.text", "required"), ("parts.1.number", "invalid")],
        ),
        ({"name": "x", "parts": "no list"}, [("parts", "not_a_list")]),
        ({"name": "both"}, [(None, "ambiguous")]),
        (["no object"], [(None, "invalid")]),
    ],
)
def test_each_error_names_its_field_by_path(
    body: Any, expected: list[tuple[str | None, str]]
) -> None:
    response = post(body)
    assert response.status_code == 400
    assert errors_of(response) == expected
    codes = {code for _, code in expected}
    assert response.data["code"] == (codes.pop() if len(codes) == 1 else "invalid")


def test_a_good_request_is_understood_and_a_form_or_query_is_held_to_its_fields_too() -> None:
    good = post({"name": "x", "parts": [{"text": "a"}]})
    assert good.data == {"name": "x", "parts": [{"text": "a", "number": 1}]}
    form = post({"name": "x", "speed": "1"}, format="multipart")
    assert errors_of(form) == [("speed", "unknown_field")]
    assert serve(factory.get("/?wait=1", HTTP_ACCEPT="text/html")).status_code == 200
    assert errors_of(serve(factory.get("/?wait=1&wiat=2"))) == [("wiat", "unknown_field")]


def test_a_problem_carries_status_code_field_and_time() -> None:
    response = post({"name": "stop"})
    assert (response.status_code, response.data["code"]) == (409, "not_now")
    assert response["Retry-After"] == "7"
    assert errors_of(response) == [("name", "not_now")]


SET_TYPE = " is not accepted here; set the header `Content-Type` to "


@pytest.mark.parametrize(
    ("method", "body", "content_type", "status", "code", "said"),
    [
        *(("POST", body, "application/json", 400, "parse_error", "") for body in (
            "{", '{"name": NaN}', b"\xff\xfe", "[" * 100_000
        )),
        ("POST", "name=x", "application/x-www-form-urlencoded", 415, "unsupported_media_type", ""),
        ("POST", "<a/>", "text/xml", 415, "unsupported_media_type", f"'text/xml'{SET_TYPE}"),
        ("POST", "<a/>", "", 415, "unsupported_media_type",
         f"A body without content type{SET_TYPE}"),
        ("POST", "x", "multipart/form-data", 400, "parse_error", ""),
        ("DELETE", "", "application/json", 405, "method_not_allowed",
         "DELETE is not possible at this address; use GET, POST, "),
    ],
    ids=range(9),
)  # fmt: skip
def test_what_cannot_be_read_is_a_problem_that_says_what_to_send_instead(
    method: str, body: Any, content_type: str, status: int, code: str, said: str
) -> None:
    response = serve(factory.generic(method, "/", body, content_type=content_type))
    assert (response.status_code, response.data["code"]) == (status, code)
    assert said in response.data["detail"]
    assert errors_of(response) == []
    assert status != 405 or response["Allow"] == "GET, POST, HEAD, OPTIONS"


@pytest.mark.django_db
def test_a_request_without_a_key_is_told_the_header() -> None:
    for headers in ({}, {"authorization": "Token x"}):
        answer = APIClient().get("/api/v1/jobs", headers=headers)
        assert answer.status_code == 401
        assert "`Authorization: Bearer tts_…`" in answer.json()["detail"]


def test_a_choice_that_is_none_is_told_with_those_there_are() -> None:
    class FormatSerializer(StrictSerializer):
        format = serializers.ChoiceField(choices=["wav", "{odd}"])
        kinds = serializers.ListField(child=serializers.ChoiceField(choices=["a"]))

    checked = FormatSerializer(data={"format": "ogg{}", "kinds": ["b"]})

    assert not checked.is_valid()
    assert str(checked.errors["format"][0]) == "'ogg{}' is not one of: wav, {odd}."
    assert "'b' is not one of: a." in str(checked.errors["kinds"])


def test_every_request_names_the_choices_of_its_fields() -> None:
    import_module("ttsweb.urls")
    unnamed = [
        f"{request.__name__}.{name}"
        for request in _subclasses(StrictSerializer)
        for name, field in request().fields.items()
        for choice in [getattr(field, "child", field)]
        if isinstance(choice, serializers.ChoiceField)
        and "is not one of: " not in choice.error_messages["invalid_choice"]
    ]

    assert unnamed == []
    assert str(JobCreateSerializer().fields["format"].error_messages["invalid_choice"]).endswith(
        f"is not one of: {', '.join(FORMATS)}."
    )


def _subclasses(base: type[Any]) -> list[type[Any]]:
    below = base.__subclasses__()
    return [*below, *(one for child in below for one in _subclasses(child))]


def serve_raising(error: Exception) -> Response:
    class RaisingView(EchoView):
        def get(self, request: Request) -> Response:
            raise error

    return serve(factory.get("/"), RaisingView)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Http404("secret path"), 404, "not_found"),
        (PermissionDenied("secret reason"), 403, "permission_denied"),
        (RequestDataTooBig("exceeded settings.secret"), 413, "body_too_large"),
        (TooManyFilesSent("Too many."), 400, "too_many_files"),
        (OSError(errno.ENOSPC, "No space left on device"), 507, "storage_full"),
        (exceptions.Throttled(wait=1.4), 429, "throttled"),
        (exceptions.NotAuthenticated(), 403, "not_authenticated"),
    ],
)
def test_an_error_of_the_framework_is_a_problem(error: Exception, status: int, code: str) -> None:
    response = serve_raising(error)
    assert (response.status_code, response.data["code"]) == (status, code)
    assert "secret" not in str(response.data)
    assert status != 413 or "bytes" in response.data["detail"]
    assert response.get("Retry-After") == ("2" if status == 429 else None)
    assert errors_of(response) == []


def test_an_error_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        serve_raising(ZeroDivisionError())
