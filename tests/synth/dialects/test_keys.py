"""Where clients of other services put their key, and which of several counts."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.api.authentication import presented_key
from tests.factories import make_voice

pytestmark = pytest.mark.django_db(transaction=True)

HEADERS = ({"Authorization": "Bearer {}"}, {"api-key": "{}"}, {"xi-api-key": " {} "})


def test_key_opens_the_calls_of_other_services_from_each_of_their_headers(
    job_services: None, operator: User
) -> None:
    make_voice("Ada")
    _, key = create_key(operator, "test")
    body = {"input": "Hello.", "voice": "Ada"}
    for header in HEADERS:
        client = APIClient(headers={name: value.format(key) for name, value in header.items()})
        assert client.get("/v1/models").status_code == 200, header
        assert client.post("/v1/audio/speech", body, format="json").status_code == 503, header
        is_bearer = "Authorization" in header  # our own API knows no other
        assert client.get("/api/v1/jobs").status_code == (200 if is_bearer else 401), header
        wrong = APIClient(headers={name: value.format("no") for name, value in header.items()})
        answer = wrong.get("/v1/models")
        # Who sends the key as ElevenLabs' clients do gets their errors at this address of two.
        shape, name = ("detail", "status") if "xi-api-key" in header else ("error", "code")
        assert (answer.status_code, answer.json()[shape][name]) == (401, "key_invalid"), header


def test_first_key_that_is_one_counts() -> None:
    rows: list[tuple[dict[str, str], str | None]] = [
        ({}, None), ({"authorization": "Basic YTpi"}, None), ({"authorization": "Bearer"}, ""),
        ({"authorization": "Bearer", "api-key": "a"}, "a"),
        ({"authorization": "Bearer b", "api-key": "a", "xi-api-key": "x"}, "b"),
        ({"authorization": "Basic YTpi", "xi-api-key": "x"}, "x"),
        ({"api-key": "", "xi-api-key": "x"}, "x"), ({"api-key": " "}, ""),
        ({"authorization": "bearer  b "}, "b"),
    ]  # fmt: skip
    for headers, key in rows:
        assert presented_key(headers) == key, headers
