"""Pages of other origins: which may read answers, whoever answers; their preflights; no cookies."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from django.test import Client
from pytest_django import Settings

from ttsweb.configuration.builders import cors_origins
from ttsweb.configuration.env import SettingError
from ttsweb.configuration.library import CORS_PATHS
from ttsweb.http.headers import CorsHeaders
from ttsweb.http.problems import send_problem

ORIGIN = "https://chat.example.org"
ALLOW = "Access-Control-Allow-Origin"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os",
}


@pytest.fixture
def allowed(settings: Settings) -> Settings:
    """One origin that may call, as with TTS_CORS_ORIGINS."""
    settings.CORS_ALLOWED_ORIGINS, settings.CORS_URLS_REGEX = [ORIGIN], CORS_PATHS
    return settings


def test_preflight_is_answered_without_a_key_and_allows_no_cookies(allowed: Settings) -> None:
    for path in ("/v1/audio/speech", "/api/v1/jobs", "/openai/deployments/x/audio/speech", "/v1/?"):
        answer = Client().options(path, headers={"Origin": ORIGIN} | PREFLIGHT)
        assert (answer.status_code, answer.headers[ALLOW]) == (200, ORIGIN), path
        assert "POST" in answer.headers["Access-Control-Allow-Methods"]
        headers = answer.headers["Access-Control-Allow-Headers"].split(", ")
        assert {"authorization", "api-key", "xi-api-key", "content-type", "*"} <= set(headers)
        assert "Access-Control-Allow-Credentials" not in answer.headers
        assert "origin" in answer.headers["Vary"].lower()


@pytest.mark.django_db
def test_answers_say_that_the_origin_may_read_them_and_our_headers(allowed: Settings) -> None:
    answer = Client().get("/v1/models", headers={"Origin": ORIGIN})
    assert (answer.status_code, answer.headers[ALLOW]) == (401, ORIGIN)
    shown = answer.headers["Access-Control-Expose-Headers"].split(", ")
    assert {"X-TTS-Ignored", "X-TTS-Model", "X-TTS-Voice", "TTS-Job-Id"} <= set(shown)


@pytest.mark.django_db
def test_others_are_told_nothing(allowed: Settings, settings: Settings) -> None:
    for origin, path in (
        ("https://evil.example.org", "/v1/models"), (f"{ORIGIN}:444", "/v1/models"),
        ("null", "/v1/models"), (ORIGIN, "/healthz"), (ORIGIN, "/admin/login/"),
    ):  # fmt: skip
        answer = Client().get(path, headers={"Origin": origin})
        assert ALLOW not in answer.headers, (origin, path)
    settings.CORS_URLS_REGEX = "(?!)"  # as without TTS_CORS_ORIGINS
    answer = Client().options("/v1/models", headers={"Origin": ORIGIN} | PREFLIGHT)
    assert (answer.status_code, ALLOW in answer.headers) == (401, False)


def test_answers_outside_django_have_the_same_headers(allowed: Settings) -> None:
    async def early(scope: Any, receive: Any, send: Any) -> None:
        headers = {ALLOW: "set"} if scope["path"].endswith("/set") else {}
        await send_problem(send, 413, "body_too_large", "Too large.", headers, scope["path"])

    async def run(path: str, origin: str) -> httpx.Response:
        transport = httpx.ASGITransport(app=CorsHeaders(early))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(path, headers={"Origin": origin} if origin else {})

    for path, origin, wanted in (
        ("/v1/audio/speech", ORIGIN, [ORIGIN]), ("/v1/audio/speech", "https://evil.org", []),
        ("/v1/audio/speech", "", []), ("/admin/", ORIGIN, []), ("/v1/set", ORIGIN, ["set"]),
    ):  # fmt: skip
        answer = asyncio.run(run(path, origin))
        assert answer.headers.get_list(ALLOW) == wanted, (path, origin)
        exposes = "access-control-expose-headers" in answer.headers
        assert exposes == (wanted == [ORIGIN]), (path, origin)


def test_star_allows_all(allowed: Settings) -> None:
    allowed.CORS_ALLOW_ALL_ORIGINS = True
    answer = Client().options("/v1/models", headers={"Origin": "https://any.org"} | PREFLIGHT)
    assert (answer.status_code, answer.headers[ALLOW]) == (200, "*")


def test_origins_are_read_without_a_path() -> None:
    read = cors_origins([f"{ORIGIN}/", "http://localhost:3000", "moz-extension://a-b", "*"])
    assert read == [ORIGIN, "http://localhost:3000", "moz-extension://a-b", "*"]
    for wrong in ("chat.example.org", "https://", f"{ORIGIN}/page", "https://a.org?x", "*.org"):
        with pytest.raises(SettingError, match="TTS_CORS_ORIGINS"):
            cors_origins([wrong])
