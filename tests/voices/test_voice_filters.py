"""Filters of the voice list: read, or refused."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from tests.factories import make_version, make_voice
from voices.models import VoiceVersion

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/voices"


def names(client: APIClient, **query: str) -> set[str]:
    response = client.get(URL, query)
    assert response.status_code == 200, response.json()
    return {shown["name"] for shown in response.json()["results"]}


def test_list_is_filtered_by_what_a_voice_is(client: APIClient) -> None:
    make_voice("Ada", language="en-GB")
    make_voice("Adam", language="en")
    bob = make_voice("Bob", language="eng", archived=True)

    assert names(client) == {"Ada", "Adam", "Bob"}
    assert names(client, name="ada") == {"Ada"}
    assert names(client, name="Nobody") == set()
    assert names(client, language="en") == {"Ada", "Adam"}
    assert names(client, language="EN-gb") == {"Ada"}
    assert names(client, archived="true") == {"Bob"}
    assert client.get(f"{URL}/{bob.pk}").json()["archived"] is True
    assert names(client, archived="false", language="en-GB") == {"Ada"}


def test_list_is_filtered_by_the_status_of_the_newest_version(client: APIClient) -> None:
    make_voice("Ready")
    changed = make_voice("Changed")
    make_version(changed, status=VoiceVersion.Status.PENDING)
    failed = make_voice("Failed", ready=False)
    make_version(failed, status=VoiceVersion.Status.FAILED)
    make_voice("Empty", versions=0)

    assert names(client, status="ready") == {"Ready"}
    assert names(client, status="pending") == {"Changed"}
    assert names(client, status="failed,ready") == {"Failed", "Ready"}
    assert names(client, status="encoding") == set()


@pytest.mark.parametrize(
    "query",
    [
        {"status": "done"}, {"status": ""}, {"status": "ready,"}, {"name": ""}, {"name": "a\0"},
        {"language": "english language"}, {"language": ""}, {"language": "e"},
        {"archived": "1"}, {"archived": "True"}, {"archived": ""}, {"colour": "red"},
        {"limit": "0"}, {"limit": "abc"}, {"limit": "201"}, {"limit": "-1"}, {"page": "2"},
    ],
)  # fmt: skip
def test_filter_that_cannot_be_read_is_a_400(client: APIClient, query: dict[str, str]) -> None:
    response = client.get(URL, query)
    assert response.status_code == 400
    assert response.json()["errors"][0]["attr"] == next(iter(query))
