"""Give tests of batches a voice and short ways to send items."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from tests.factories import make_voice
from voices.models import Voice

Post = Callable[..., Any]
Events = list[tuple[str, str, dict[str, Any]]]


def events_of(text: str) -> Events:
    """Return id, name and data of each event."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in fields:
            found.append((fields.get("id", ""), fields["event"], json.loads(fields["data"])))
    return found


def short(events: Events) -> list[tuple[str, int | None, str | None]]:
    """Return name, place and status of events."""
    return [(name, data.get("index"), data.get("status")) for _, name, data in events]


class Listener:
    """Ask for the events of batches below a path as often as it is called; `answer` is the last."""

    def __init__(self, client: APIClient, path: str) -> None:
        self.client, self.path = client, path
        self.answer: Any = None

    def __call__(self, batch: Any, last_id: str | None = None, query: str = "") -> Events:
        headers = {} if last_id is None else {"Last-Event-ID": last_id}
        path = f"/api/v1/{self.path}/{batch.pk}/events{query}"
        self.answer = self.client.get(path, headers=headers)
        return events_of(self.answer.content.decode())


@pytest.fixture
def ada(job_services: None) -> Voice:
    """A voice that may be used by all."""
    return make_voice("Ada")


@pytest.fixture
def post(api: APIClient, ada: Voice) -> Post:
    """A function that posts a batch in JSON; items may be texts."""

    def send(items: list[Any], *, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        entries = [{"text": one} if isinstance(one, str) else one for one in items]
        body = {"items": entries, "defaults": {"voice": "Ada"}, **fields}
        return api.post("/api/v1/batches", body, format="json", headers=headers)

    return send


@pytest.fixture
def post_lines(api: APIClient, ada: Voice) -> Post:
    """A function that posts JSONL as the body; lines may be bytes or objects."""

    def send(lines: list[Any], end: bytes = b"\n", **query: str) -> Any:
        given = {"defaults": json.dumps({"voice": "Ada"}), **query}
        body = b"".join(
            (one if isinstance(one, bytes) else json.dumps(one).encode()) + end for one in lines
        )
        return api.post(
            "/api/v1/batches", body, content_type="application/x-ndjson", query_params=given
        )

    return send
