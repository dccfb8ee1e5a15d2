"""The policy that browsers are given: strict on all pages, with two exceptions in the admin."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.factories import make_ended_job, make_user
from ttsweb.http.csp import HEADER

pytestmark = pytest.mark.django_db(transaction=True)


def read_policy(path: str, client: Client | None = None) -> dict[str, list[str]]:
    text = (client or Client()).get(path).headers[HEADER]
    parts = [part.split() for part in text.split(";")]
    return {name: sources for name, *sources in parts}


@pytest.fixture
def boss() -> User:
    return make_user("boss", is_superuser=True)


@pytest.mark.parametrize(
    "path",
    [
        "/", "/about", "/healthz", "/api/v1/docs", "/api/v1/docs?script=", "/api/v1/schema",
        "/api/v1/jobs", "/api/v1/nowhere", "/nowhere", "/administer", "/static/ttsweb/page.css",
    ],
)  # fmt: skip
def test_everything_outside_the_admin_is_strict(path: str) -> None:
    policy = read_policy(path)

    assert policy["default-src"] == ["'self'"]
    assert policy["script-src"] == ["'self'"]
    assert policy["style-src"] == ["'self'"]
    assert policy["object-src"] == ["'none'"]
    assert policy["base-uri"] == ["'none'"]
    assert policy["form-action"] == ["'self'"]
    assert policy["frame-ancestors"] == ["'none'"]


@pytest.mark.parametrize(
    "path",
    ["/studio", "/admin/login/", "/admin/", "/admin/voices/voice/add/", "/admin/synth/renderjob/"],
)
def test_the_admin_is_given_what_its_scripts_need_and_no_more(path: str, boss: User) -> None:
    client = Client()
    client.force_login(boss)
    policy = read_policy(path, client)

    strict = read_policy("/about")
    changed = {name for name in strict | policy if strict.get(name) != policy.get(name)}
    assert changed == {"script-src", "style-src"}
    assert policy["script-src"] == ["'self'", "'unsafe-eval'"]
    assert policy["style-src"] == ["'self'", "'unsafe-inline'"]


def test_audio_keeps_the_policy_of_its_own(boss: User) -> None:
    job = make_ended_job(boss)
    client = Client()
    client.force_login(boss)
    policy = read_policy(f"/api/v1/jobs/{job.pk}/audio", client)
    assert policy == {"default-src": ["'none'"], "sandbox": []}
