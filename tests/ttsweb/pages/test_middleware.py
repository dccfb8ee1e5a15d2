"""What nobody caught is a problem below /api/, OpenAI's error below /v1/, a page elsewhere."""

from __future__ import annotations

import pytest
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import HttpResponse
from django.test import Client, RequestFactory
from pytest_django import Settings

from ttsweb.configuration.env import SETTINGS
from ttsweb.pages import middleware

requests = RequestFactory()


@pytest.mark.parametrize("path", ["/api/", "/api/v1/nothing", "/api/v1/voices/", "/api/v2/jobs"])
def test_an_api_address_that_leads_nowhere_is_a_problem_and_another_one_a_page(path: str) -> None:
    response = Client().get(path)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    assert response["Content-Type"] == "application/problem+json"
    page = Client().get("/nothing")
    assert page.status_code == 404
    assert page["Content-Type"].startswith("text/html")
    assert "There is nothing at this address." in page.content.decode()


def test_a_host_that_is_not_allowed_is_told_the_setting(settings: Settings) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]

    for path in ("/api/v1/jobs", "/v1/models", "/about"):
        text = Client().get(path, headers={"host": "tts.lan:8000"}).content.decode()
        assert "TTS_ALLOWED_HOSTS=localhost,tts.lan" in text, path
    error = Client().get("/v1/models", headers={"host": "evil.example"})
    assert (error.status_code, error.json()["error"]["code"]) == (400, "host_not_allowed")
    problem = Client().get("/api/v1/jobs", headers={"host": "[fe80::1]"})
    assert (problem.status_code, problem.json()["code"]) == (400, "host_not_allowed")
    assert "TTS_ALLOWED_HOSTS=localhost,[fe80::1] " in problem.json()["detail"]
    for odd in ("<b>", "a b", "x" * 5000):
        page = Client().get("/about", headers={"host": odd})
        assert page.status_code == 400
        assert "<b>" not in page.content.decode() and len(page.content) < 5000


def test_a_program_in_a_container_reaches_a_server_that_nobody_has_configured(
    settings: Settings,
) -> None:
    settings.ALLOWED_HOSTS = SETTINGS["TTS_ALLOWED_HOSTS"].default.split(",")
    page = Client().get("/about", headers={"host": "host.docker.internal:8000"})
    assert page.status_code == 200


@pytest.mark.parametrize(
    ("broken", "path"),
    [
        ("ttsweb.pages.front.render", "/licences"),
        ("ttsweb.pages.overview.StatsView.initial", "/api/v1/stats"),
    ],
)
def test_a_failure_of_ours_says_where_more_is_said_and_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, broken: str, path: str
) -> None:
    def fail(*arguments: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(broken, fail)
    response = Client(raise_request_exception=False).get(path)

    text = response.content.decode()
    assert response.status_code == 500
    assert "log has the details" in text and "secret" not in text
    assert not path.startswith("/api/") or response.json()["code"] == "server_error"


def test_a_form_without_its_token_says_what_to_do() -> None:
    response = Client(enforce_csrf_checks=True).post("/admin/login/", {"username": "x"})
    assert response.status_code == 403
    assert "load the page again" in response.content.decode()


def test_a_refused_request_is_a_problem_or_a_page_with_its_status() -> None:
    for error, status in ((RequestDataTooBig("Too big."), 413), (SuspiciousOperation("x"), 400)):
        for path in ("/api/v1/voices", "/admin/"):
            assert middleware.bad_request(requests.get(path), error).status_code == status

    secret = PermissionError("secret")
    api = middleware.permission_denied(requests.get("/api/v1/x"), secret)
    page = middleware.permission_denied(requests.get("/admin/"), secret)
    assert (api.status_code, page.status_code) == (403, 403)
    assert api["Content-Type"] == "application/problem+json"
    assert page["Content-Type"].startswith("text/html")
    assert isinstance(page, HttpResponse)
    assert "no permission for this page" in page.content.decode()
