"""A worker's line to its site: which addresses it takes, whom it trusts, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from synth.accounts.access import create_key
from tests.factories import make_user
from tests.workers.remote.sites import Line, certificate
from ttsweb.commands.base import CommandError
from workers.kinds import SiteAwayError, SiteRefusedError
from workers.remote import messages as m
from workers.remote.connection import Connection
from workers.remote.options import ServerUnfitError, check_server


@pytest.mark.parametrize(
    "url", ["https://tts.example.org/", "http://127.0.0.1:8000", "http://[::1]:8000", "http://localhost"]
)  # fmt: skip
def test_https_and_this_machine_are_taken(url: str) -> None:
    assert check_server(url) == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://tts.example.org", "use https://"),
        ("http://192.168.1.20:8000", "use https://"),
        ("tts.example.org", "is not an address"),
        ("ftp://tts.example.org", "is not an address"),
        ("https://", "is not an address"),
        ("https://[", "is not an address"),
        ("https://a:99999999", "is not an address"),
        ("https://ada:secret@tts.example.org", "no user name"),
        ("https://tts.example.org/?key=1", "no user name"),
    ],
)
def test_other_addresses_are_refused_with_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(ServerUnfitError, match=sentence):
        check_server(url)


@pytest.mark.parametrize(
    ("options", "changed", "sentence"),
    [
        ({"role": "cpu"}, {}, "--role cpu needs its database"),
        ({"role": "all"}, {}, "--role all needs its database"),
        ({"queues": "synth"}, {}, "leave them out"),
        ({"concurrency": 2}, {}, "leave them out"),
        ({"key": ""}, {}, "needs a key"),
        ({}, {"TRANSCRIBER": "a.b:c"}, "TTS_TRANSCRIBER is for workers with a database"),
        ({"server": "http://tts.example.org"}, {}, "use https://"),
    ],
)
def test_what_does_not_go_with_a_server_is_refused(
    options: dict[str, Any], changed: dict[str, Any], sentence: str, settings: Settings
) -> None:
    settings.API_KEY = ""
    for name, value in changed.items():
        setattr(settings, name, value)
    with pytest.raises(CommandError, match=sentence):
        call_command("worker", **{"server": "https://127.0.0.1:9", "key": "tts_x", **options})


@pytest.fixture
def key(transactional_db: None) -> str:
    return create_key(make_user("operator", is_staff=True), "home", scopes=["worker"])[1]


@pytest.fixture
def line(live_server: LiveServer) -> Iterator[Line]:
    made = Line(live_server.url)
    yield made
    made.close()


def begin(connection: Connection) -> m.Welcome:
    return connection.call("begin", m.Begin("a", ""), m.Welcome)


def test_site_that_is_away_is_asked_again_and_then_answers(line: Line, key: str) -> None:
    connection = Connection(line.url, key, name="gpu")
    line.mode = "cut"
    for _ in range(3):
        with pytest.raises(SiteAwayError, match="no answer from"):
            begin(connection)
    line.mode = "open"

    assert begin(connection).lease_seconds > 0
    assert not connection.refusal


def test_threads_share_no_connection_and_each_keeps_its_own(line: Line, key: str) -> None:
    connection = Connection(line.url, key, name="gpu")
    for _ in range(3):
        thread = Thread(target=lambda: [begin(connection) for _ in range(2)])
        thread.start()
        thread.join()
    assert line.connections == 3
    assert line.passed["begin"] == 6


@pytest.mark.parametrize("status", ["302", "401", "403", "404", "405", "500", "530"])
def test_proxy_that_answers_for_a_moment_in_place_of_the_site_ends_no_worker(
    line: Line, key: str, status: str
) -> None:
    connection = Connection(line.url, key, name="gpu")
    begin(connection)
    line.mode = status
    with pytest.raises(SiteAwayError) as caught:
        begin(connection)
    assert not isinstance(caught.value, SiteRefusedError)
    line.mode = "open"

    assert begin(connection).lease_seconds > 0


@pytest.mark.parametrize("status", ["302", "401", "404"])
def test_address_at_which_no_site_ever_answered_is_refused(line: Line, status: str) -> None:
    line.mode = status
    with pytest.raises(SiteRefusedError, match="does not let this worker in"):
        begin(Connection(line.url, "tts_x", name="gpu"))


def test_key_that_opens_nothing_is_refused_for_good(line: Line) -> None:
    connection = Connection(line.url, "tts_none", name="gpu")

    with pytest.raises(SiteRefusedError, match="This API key does not exist"):
        begin(connection)
    with pytest.raises(SiteRefusedError):
        begin(connection)
    assert line.passed["begin"] == 1


def test_certificate_is_checked(
    live_server: LiveServer, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, authority = certificate(tmp_path)
    line = Line(live_server.url, context=context)
    with pytest.raises(SiteRefusedError, match="cannot be trusted"):
        begin(Connection(line.url, key, name="gpu"))
    assert not line.passed

    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    welcome = begin(Connection(line.url, key, name="gpu"))
    line.close()

    assert welcome.lease_seconds > 0
