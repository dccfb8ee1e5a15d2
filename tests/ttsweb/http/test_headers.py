"""Headers of answers: what browsers may load, that a route will go, and what has not changed."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.urls import path as route
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from pytest_django import Settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from tests.factories import logged_in, make_ended_job, make_user
from ttsweb.configuration.library import CONTENT_POLICY_HEADER
from ttsweb.http.api import ApiProblem
from ttsweb.http.headers import StrictTransport, conditional, deprecated, weak_etag
from ttsweb.http.problems import send_problem

# --- content security policy: strict on all pages, with two exceptions in the admin ---------------

SELF, NONE = ["'self'"], ["'none'"]
STRICT = {
    "default-src": SELF, "script-src": SELF, "style-src": SELF, "form-action": SELF,
    "object-src": NONE, "base-uri": NONE, "frame-ancestors": NONE,
}  # fmt: skip


def read_policy(path: str, client: Client | None = None) -> dict[str, list[str]]:
    text = (client or Client()).get(path).headers[CONTENT_POLICY_HEADER]
    parts = [part.split() for part in text.split(";")]
    return {name: sources for name, *sources in parts}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    [
        "/", "/about", "/healthz", "/api/v1/docs", "/api/v1/docs?script=", "/api/v1/jobs",
        "/api/v1/nowhere", "/nowhere", "/administer", "/static/ttsweb/page.css",
    ],
)  # fmt: skip
def test_everything_outside_the_admin_is_strict(path: str) -> None:
    policy = read_policy(path)
    assert {name: policy[name] for name in STRICT} == STRICT


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    ["/studio", "/admin/login/", "/admin/", "/admin/voices/voice/add/", "/admin/synth/renderjob/"],
)
def test_the_admin_is_given_what_its_scripts_need_and_no_more(path: str) -> None:
    client = Client() if "login" in path else logged_in()  # who is logged in is sent on from there
    assert read_policy(path, client) == read_policy("/about") | {
        "script-src": ["'self'", "'unsafe-eval'"],
        "style-src": ["'self'", "'unsafe-inline'"],
    }


@pytest.mark.django_db
def test_audio_keeps_the_policy_of_its_own() -> None:
    boss = make_user("boss", is_superuser=True)
    policy = read_policy(f"/api/v1/jobs/{make_ended_job(boss).pk}/audio", logged_in(boss))
    assert policy == {"default-src": ["'none'"], "sandbox": []}


# --- a route that will go -------------------------------------------------------------------------

SINCE, SUNSET = dt.date(2027, 1, 1), dt.date(2027, 7, 1)
SUNSET_DATE = "Thu, 01 Jul 2027 00:00:00 GMT"
ABOUT = '<https://example.org>; rel="about"'
MORE = '</api/v2/it>; rel="successor-version", <https://example.org/how>; rel="deprecation"'


class OpenView(APIView):
    authentication_classes = ()
    permission_classes = ()


class PlainView(OpenView):
    @extend_schema(operation_id="read_it", responses={200: str})
    def get(self, request: Request) -> Response:
        return Response("it", headers={"Link": ABOUT})

    @extend_schema(operation_id="change_it", responses={200: str})
    def post(self, request: Request) -> Response:
        raise ApiProblem(409, "not_now", "Not now.")


@deprecated(since=SINCE, sunset=SUNSET, successor="/api/v2/it", more="https://example.org/how")
class OldView(PlainView):
    """A view that will go."""


@deprecated(since=SINCE)
class OpenEndedView(PlainView):
    """A view that will go some day."""


@pytest.mark.parametrize(
    ("view", "method", "status", "sunset", "links"),
    [
        (OldView, "get", 200, SUNSET_DATE, f"{ABOUT}, {MORE}"),
        (OldView, "post", 409, SUNSET_DATE, MORE),
        (OldView, "delete", 405, SUNSET_DATE, MORE), (OpenEndedView, "get", 200, None, ABOUT),
    ],
)  # fmt: skip
def test_every_answer_of_a_deprecated_view_announces_what_is_known_of_its_end(
    view: type[APIView], method: str, status: int, sunset: str | None, links: str
) -> None:
    answer = view.as_view()(getattr(APIRequestFactory(), method)("/"))
    said = (answer.get("Deprecation"), answer.get("Sunset"), answer.get("Link"))
    assert (answer.status_code, *said) == (status, "@1798761600", sunset, links)


def test_view_that_stays_announces_nothing_and_the_description_marks_the_others_alone() -> None:
    answer = PlainView.as_view()(APIRequestFactory().get("/"))
    assert "Deprecation" not in answer and "Sunset" not in answer
    patterns: list[Any] = [
        route("api/v1/old", OldView.as_view()), route("api/v1/plain", PlainView.as_view()),
    ]  # fmt: skip
    paths = SchemaGenerator(patterns=patterns).get_schema(request=None, public=True)["paths"]  # type: ignore[no-untyped-call]
    marked = {
        (path, method)
        for path, methods in paths.items()
        for method, it in methods.items()
        if it.get("deprecated")
    }
    assert marked == {("/api/v1/old", "get"), ("/api/v1/old", "post")}


def test_end_without_notice_is_refused() -> None:
    with pytest.raises(ValueError, match="90 days"):
        deprecated(since=SINCE, sunset=SINCE + dt.timedelta(days=89))


# --- weak tags: what matches, what does not, and what a 304 carries -------------------------------

DATA = {"id": 1, "status": "queued"}


def answer_to(header: str | None, data: Any = DATA) -> Response:
    """Return the rendered answer of a view to a GET with this If-None-Match."""

    class OneView(OpenView):
        def get(self, request: Any) -> Response:
            return conditional(request, Response(data, headers={"Retry-After": "2"}))

    headers = {} if header is None else {"If-None-Match": header}
    response: Response = OneView.as_view()(APIRequestFactory().get("/", headers=headers))
    response.render()
    return response


def test_answer_carries_a_weak_tag_that_follows_its_content() -> None:
    tag = answer_to(None)["ETag"]
    assert tag == weak_etag(DATA) == answer_to(None)["ETag"]
    assert tag.startswith('W/"') and tag.endswith('"')
    assert answer_to(None, DATA | {"status": "running"})["ETag"] != tag


@pytest.mark.parametrize("form", ["{tag}", "{strong}", '"other", {tag}', "*"])
def test_known_answer_is_a_304_without_a_body(form: str) -> None:
    tag = weak_etag(DATA)
    response = answer_to(form.format(tag=tag, strong=tag.removeprefix("W/")))

    assert (response.status_code, response.content) == (304, b"")
    assert response.headers.items() >= {
        "ETag": tag, "Retry-After": "2", "Cache-Control": "private, no-cache",
    }.items()  # fmt: skip
    assert "Content-Type" not in response


@pytest.mark.parametrize("header", ["", '"other"', 'W/"other"', "no quotes", '"'])
def test_another_tag_gets_the_whole_answer(header: str) -> None:
    response = answer_to(header)
    assert (response.status_code, response.data) == (200, DATA)


# --- HTTPS and nothing else: said by whoever answers, over HTTPS alone ----------------------------


async def refuse_early(scope: Any, receive: Any, send: Any) -> None:
    await send_problem(send, 413, "body_too_large", "Too large.", {})


@pytest.mark.parametrize(
    ("seconds", "headers", "said"),
    [
        (60, [(b"x-forwarded-proto", b"https")], [b"max-age=60"]),
        (60, [(b"x-forwarded-proto", b"http")], []),
        (60, [], []),  # a probe that asks past the proxy
        (0, [(b"x-forwarded-proto", b"https")], []),  # there is no proxy whose word counts
    ],
)
def test_answer_from_outside_django_asks_for_https_where_it_came_by_it(
    seconds: int, headers: list[tuple[bytes, bytes]], said: list[bytes]
) -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "path": "/api/v1/jobs", "headers": headers}
    asyncio.run(StrictTransport(refuse_early, seconds=seconds)(scope, None, send))  # type: ignore[arg-type]  # nothing is received

    found = [value for name, value in sent[0]["headers"] if name == b"strict-transport-security"]
    assert found == said


def test_django_s_own_answers_ask_for_https(settings: Settings) -> None:
    settings.SECURE_HSTS_SECONDS = 31_536_000
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    answer = Client().get("/healthz", headers={"X-Forwarded-Proto": "https"})
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    assert "Strict-Transport-Security" not in Client().get("/healthz").headers
