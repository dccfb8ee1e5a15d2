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
from ttsweb.http.api import ApiProblem, StrictSerializer, check_query
from ttsweb.http.parsers import BoundedJSONParser

factory = APIRequestFactory()


class PartSerializer(StrictSerializer):
    """An inner object."""

    text = serializers.CharField()
    number = serializers.IntegerField(default=1)


class WholeSerializer(StrictSerializer):
    """A request with an inner object, a list of them, and a field that only answers have."""

    name = serializers.CharField()
    part = PartSerializer(required=False)
    parts = PartSerializer(many=True, required=False)
    made = serializers.CharField(read_only=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse one name."""
        if attrs["name"] == "both":
            raise serializers.ValidationError("Not both.", code="ambiguous")
        if attrs["name"] == "stop":
            raise ApiProblem(409, "not_now", "Not now.", attr="name", retry_after=7)
        return attrs


class EchoView(APIView):
    """Answer with what was understood."""

    authentication_classes = ()
    permission_classes = ()
    parser_classes = (BoundedJSONParser, MultiPartParser)

    def get(self, request: Request) -> Response:
        """Take `wait` and nothing else."""
        check_query(request, ("wait",))
        return Response({})

    def post(self, request: Request) -> Response:
        """Validate the body."""
        serializer = WholeSerializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return Response(serializer.validated_data)


def serve(request: Any, view: type[APIView] = EchoView) -> Response:
    """Return the rendered answer of a view."""
    response: Response = view.as_view()(request)
    response.render()
    return response


def post(body: Any, **options: Any) -> Response:
    """Return the answer to a JSON request."""
    return serve(factory.post("/", body, **({"format": "json"} | options)))


def errors_of(response: Response) -> list[tuple[str | None, str]]:
    """Return (attr, code) of each error."""
    assert response["Content-Type"] == "application/problem+json"
    assert response.data["status"] == response.status_code
    assert {"type", "title", "status", "detail", "code", "errors"} == set(response.data)
    return [(item["attr"], item["code"]) for item in response.data["errors"]]


def test_a_good_request_is_understood() -> None:
    assert post({"name": "x", "parts": [{"text": "a"}]}).data == {
        "name": "x",
        "parts": [{"text": "a", "number": 1}],
    }


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


def test_an_unknown_field_of_a_form_is_refused_too() -> None:
    response = post({"name": "x", "speed": "1"}, format="multipart")

    assert errors_of(response) == [("speed", "unknown_field")]


def test_a_problem_carries_status_code_field_and_time() -> None:
    response = post({"name": "stop"})

    assert (response.status_code, response.data["code"]) == (409, "not_now")
    assert response["Retry-After"] == "7"
    assert errors_of(response) == [("name", "not_now")]


def test_an_unknown_query_parameter_is_refused() -> None:
    good = serve(factory.get("/?wait=1"))
    bad = serve(factory.get("/?wait=1&wiat=2"))

    assert good.status_code == 200
    assert errors_of(bad) == [("wiat", "unknown_field")]


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        ("{", "application/json", 400, "parse_error"),
        ('{"name": NaN}', "application/json", 400, "parse_error"),
        (b"\xff\xfe", "application/json", 400, "parse_error"),
        ("[" * 100_000, "application/json", 400, "parse_error"),
        ("name=x", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        ("<name/>", "text/xml", 415, "unsupported_media_type"),
        ("x", "multipart/form-data", 400, "parse_error"),
    ],
)
def test_a_body_that_cannot_be_read_is_a_problem(
    body: Any, content_type: str, status: int, code: str
) -> None:
    response = serve(factory.generic("POST", "/", body, content_type=content_type))

    assert (response.status_code, response.data["code"]) == (status, code)
    assert errors_of(response) == []


def test_another_method_is_a_405() -> None:
    response = serve(factory.delete("/"))

    assert (response.status_code, response.data["code"]) == (405, "method_not_allowed")
    assert response["Allow"] == "GET, POST, HEAD, OPTIONS"


@pytest.mark.parametrize(
    ("method", "content_type", "sentence"),
    [
        ("POST", "text/xml", "'text/xml' is not accepted here; set the header `Content-Type` to "),
        (
            "POST",
            "",
            "A body without content type is not accepted here; set the header `Content-Type` to ",
        ),
        ("DELETE", "application/json", "DELETE is not possible at this address; use GET, POST, "),
    ],
)
def test_what_is_refused_says_what_to_send_instead(
    method: str, content_type: str, sentence: str
) -> None:
    response = serve(factory.generic(method, "/", "<name/>", content_type=content_type))

    assert sentence in response.data["detail"]


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


def test_what_accept_asks_for_does_not_matter() -> None:
    response = serve(factory.get("/", HTTP_ACCEPT="text/html"))

    assert response.status_code == 200


def serve_raising(error: Exception) -> Response:
    """Return the answer of a view that raises."""

    class RaisingView(EchoView):
        def get(self, request: Request) -> Response:
            raise error

    return serve(factory.get("/"), RaisingView)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Http404("secret path"), 404, "not_found"),
        (PermissionDenied("secret reason"), 403, "permission_denied"),
        (RequestDataTooBig("Too big."), 413, "body_too_large"),
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
    assert errors_of(response) == []


def test_a_body_over_the_limit_is_told_without_names_of_django() -> None:
    theirs = "Request body exceeded settings.DATA_UPLOAD_MAX_MEMORY_SIZE."

    detail = serve_raising(RequestDataTooBig(theirs)).data["detail"]

    assert "bytes" in detail and "settings." not in detail


def test_a_throttled_request_says_when_to_come_back() -> None:
    response = serve_raising(exceptions.Throttled(wait=1.4))

    assert response["Retry-After"] == "2"


def test_an_error_of_ours_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        serve_raising(ZeroDivisionError())
