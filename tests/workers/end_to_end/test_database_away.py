"""A database connection that is ended in a request: 503, nothing is made, and then as ever."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import psycopg
import pytest
from django.db import InterfaceError, OperationalError, connection
from psycopg import sql

from synth.models import RenderJob
from tests.factories import make_voice
from tests.workers.pairs import Pair, wait_for
from tests.workers.web import served
from ttsweb.http.problems import AWAY_CODE, is_database_away
from voices.models import Voice

SPEECH = {"model": "tts-1", "input": "Ox.", "voice": "Ada"}
LOGIN = {"username": "listener", "password": "password"}
REQUESTS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("synth_renderjob", "POST", "/api/v1/jobs", {"json": {"text": "Ox.", "voice": "Ada"}}),
    ("synth_segment", "POST", "/api/v1/jobs", {"json": {"text": "Ox.", "voice": "Ada"}}),
    ("synth_apikey", "GET", "/api/v1/jobs", {}),
    ("voices_voice", "DELETE", "/api/v1/voices/{voice}", {}),
    ("voices_voice", "GET", "/v1/audio/voices", {}),
    ("synth_renderjob", "POST", "/v1/audio/speech", {"json": SPEECH}),
    ("auth_user", "POST", "/admin/login/", {"data": LOGIN}),
]


class Severed:
    """Hold a table until a request of the server waits for it, then end that connection."""

    def __init__(self, pair: Pair, table: str) -> None:
        self._name = pair.database["NAME"]
        self._table = table

    def run(self, send: Any) -> httpx.Response:
        """Return the answer to a request whose connection was ended in its middle."""
        url = os.environ["TTS_TEST_POSTGRES_URL"]
        with (
            psycopg.connect(url, dbname=self._name) as server,
            psycopg.connect(url, autocommit=True) as watcher,
            ThreadPoolExecutor(1) as pool,
        ):
            table = sql.Identifier(self._table)
            server.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
            answer = pool.submit(send)

            def end() -> bool:
                ended = watcher.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = %s AND wait_event_type = 'Lock'",
                    [self._name],
                ).fetchall()
                return bool(ended)

            wait_for(end, what="the request waits for the table, and is cut off")
            server.rollback()
            response: httpx.Response = answer.result(60)
            return response


@pytest.mark.redis
@pytest.mark.postgres
@pytest.mark.parametrize("pair", ["services"], indirect=True)
def test_connection_ended_in_a_request_is_a_503_that_leaves_nothing_half_done(pair: Pair) -> None:
    voice = make_voice("Ada")
    with served(pair) as client:
        token = httpx.get(f"{client.base_url}/admin/login/").cookies["csrftoken"]
        for table, method, path, body in REQUESTS:
            connection.close()  # ours must not wait for the table
            address = path.format(voice=voice.pk)
            headers = {"Cookie": f"csrftoken={token}", "X-CSRFToken": token}
            headers = headers if "admin" in path else {}

            def send(
                method: str = method, at: str = address, sent: Any = body, headers: Any = headers
            ) -> httpx.Response:
                return client.request(method, at, headers=headers, **sent)

            answer = Severed(pair, table).run(send)

            assert answer.status_code == 503, (path, answer.text)
            assert int(answer.headers["Retry-After"]) >= 1, path
            if path.startswith("/api/"):
                assert answer.headers["Content-Type"] == "application/problem+json"
                assert answer.json()["code"] == AWAY_CODE
            elif path.startswith("/v1/"):
                assert answer.json()["error"]["code"] == AWAY_CODE
            else:
                assert "database does not answer" in answer.text
            assert not RenderJob.objects.exists(), path
            assert Voice.objects.filter(deleted_at=None).exists(), path
            assert client.get("/api/v1/jobs").status_code == 200

        made = client.post("/api/v1/jobs", json={"text": "Ox.", "voice": "Ada"})
        assert made.status_code == 202, made.text


def test_table_that_is_not_there_is_no_database_that_is_away() -> None:
    with sqlite3.connect(":memory:") as base, pytest.raises(sqlite3.OperationalError) as caught:
        base.execute("SELECT * FROM nothing")
    error = OperationalError("no such table")
    error.__cause__ = caught.value
    locked = OperationalError("database is locked")
    locked.__cause__ = sqlite3.OperationalError("database is locked")

    assert not is_database_away(error)
    assert is_database_away(locked)
    assert is_database_away(InterfaceError("connection already closed"))
    assert not is_database_away(ValueError())
