"""Webhooks as a worker sends them: who may have its turn, and what each answer means."""

from __future__ import annotations

import datetime as dt
import json
import socket
from collections.abc import Iterator
from email.utils import format_datetime
from typing import Any
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from pytest_django import Settings
from standardwebhooks import Webhook

from synth.models import WebhookDelivery
from synth.transitions.webhooks import resend_delivery
from synth.webhooks import rotate_secret, secret_of
from tests.factories import make_delivery, make_endpoint, make_user
from tests.ttsweb.http.listeners import Listener, listening
from tests.workers.conftest import MiniatureProcess
from ttsweb import leases
from ttsweb.work import Kind
from workers import sweep
from workers.delivery import MOST_PER_OWNER, MOST_PER_SITE, retry_after_seconds, take_deliveries
from workers.process import claiming, worker_process
from workers.process.worker_process import DELIVERY_THREADS

pytestmark = pytest.mark.django_db(transaction=True)

Status = WebhookDelivery.Status


@pytest.fixture
def process(settings: Settings) -> MiniatureProcess:
    """A worker of files, without an engine, that may send to this machine."""
    settings.ALLOW_PRIVATE_URLS = True
    return MiniatureProcess(None, role="cpu")


@pytest.fixture
def server() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


@pytest.fixture
def owner(db: None) -> User:
    return make_user()


def send(process: MiniatureProcess, row: WebhookDelivery) -> tuple[str, str]:
    """Have a worker send a delivery that waits; return its status and error code then."""
    assert take_deliveries(process) == 1
    process.run_all()
    row.refresh_from_db()
    return row.status, row.error_code


def test_message_arrives_signed(process: MiniatureProcess, server: Listener, owner: User) -> None:
    row = make_delivery(owner, url=server.url + "in?a=b")
    assert send(process, row) == (Status.DELIVERED, "")
    assert (row.response_status, row.attempts) == (200, 1)
    (arrived,) = server.arrived
    assert (arrived.method, arrived.path) == ("POST", "/in?a=b")
    assert arrived.headers["content-type"] == "application/json"
    assert arrived.headers["webhook-id"] == str(row.pk)
    assert arrived.body.decode() == row.body
    assert Webhook(secret_of(owner).secret).verify(arrived.body, arrived.headers)


def test_rotated_secret_has_a_day(process: MiniatureProcess, server: Listener, owner: User) -> None:
    old = secret_of(owner).secret
    new = rotate_secret(owner).secret
    send(process, make_delivery(owner, url=server.url))
    for secret in (old, new):
        Webhook(secret).verify(server.arrived[0].body, server.arrived[0].headers)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_good_answer_is_a_delivery(
    status: int, process: MiniatureProcess, server: Listener
) -> None:
    server.answers, row = [(status, {}, b"")], make_delivery(url=server.url)
    assert send(process, row) == (Status.DELIVERED, "")
    assert row.response_status == status


@pytest.mark.parametrize(
    ("status", "code"),
    [
        *((status, "url_status") for status in (500, 404, 429)),
        *((status, "url_redirects") for status in (301, 302, 303, 307, 308)),
    ],
)
def test_any_other_answer_is_tried_again_and_no_redirect_followed(
    status: int, code: str, process: MiniatureProcess, server: Listener
) -> None:
    row = make_delivery(url=server.url)
    with listening() as inner:
        server.answers = [(status, {"Location": inner.url}, b"")]
        assert send(process, row) == (Status.QUEUED, code)
        assert inner.arrived == []
    assert row.response_status == status
    assert ("redirect" in row.error_message) == (code == "url_redirects")
    assert row.not_before > timezone.now()
    assert not process.held.of(Kind.DELIVERY)


def test_pause_that_receivers_ask_is_kept(process: MiniatureProcess, server: Listener) -> None:
    server.answers, row = [(503, {"Retry-After": "120"}, b"")], make_delivery(url=server.url)
    pause, before = dt.timedelta(seconds=120), timezone.now()
    send(process, row)
    assert before + pause <= row.not_before <= timezone.now() + pause


def test_pauses_are_read_in_both_forms() -> None:
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=100)
    found = retry_after_seconds({"retry-after": format_datetime(moment, usegmt=True)})
    assert found is not None and 97 < found <= 100
    for value, seconds in (("7", 7), ("Wed, 21 Oct 2015 07:28:00 GMT", 0)):
        assert retry_after_seconds({"retry-after": value}) == seconds
    for value in ("", "soon", "-1", "1.5", "²", "Wed, 99 Oct 2015 07:28:00 GMT"):
        assert retry_after_seconds({"retry-after": value}) is None
    assert retry_after_seconds({}) is None


def test_url_gone_is_switched_off(process: MiniatureProcess, server: Listener, owner: User) -> None:
    server.answers = [(410, {}, b"")]
    endpoint = make_endpoint(owner, url=server.url)
    found = send(process, make_delivery(owner, url=server.url))
    assert found == (Status.FAILED, "endpoint_gone")
    endpoint.refresh_from_db()
    assert not endpoint.enabled


def test_secret_of_another_key_is_said_and_tried_again_unsent(
    process: MiniatureProcess, server: Listener, owner: User, settings: Settings
) -> None:
    secret_of(owner)
    settings.SECRET_KEY = "the key of another host, which is long enough to sign"
    row = make_delivery(owner, url=server.url)
    assert send(process, row) == (Status.QUEUED, "secret_unreadable")
    assert "TTS_SECRET_KEY_FALLBACKS" in row.error_message
    assert server.arrived == []


def test_receiver_that_is_away_or_does_not_answer_is_tried_again(
    process: MiniatureProcess, server: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("not foreseen")

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{free.getsockname()[1]}/"
    monkeypatch.setattr("workers.delivery.SEND_SECONDS", 0.3)
    server.answers = [lambda connection: connection.recv(1)]

    for url, code in ((away, "url_unreachable"), (server.url, "url_timeout")):
        assert send(process, make_delivery(url=url)) == (Status.QUEUED, code)
    monkeypatch.setattr("workers.delivery.post", broken)
    assert send(process, make_delivery()) == (Status.QUEUED, "unexpected_error")


@pytest.mark.parametrize("host", ["127.0.0.1", "hooks.example"])
def test_private_address_is_refused_when_it_is_sent(
    host: str,
    process: MiniatureProcess,
    server: Listener,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings.ALLOW_PRIVATE_URLS = False
    real = socket.getaddrinfo

    def lying(host: str, port: Any, *args: Any, **options: Any) -> Any:
        return real("127.0.0.1" if host == "hooks.example" else host, port, *args, **options)

    if host == "hooks.example":
        monkeypatch.setattr(socket, "getaddrinfo", lying)
        monkeypatch.setattr("ttsweb.http.guarded_fetch._as_address", lambda _: None)

    found = send(process, make_delivery(url=f"http://{host}:{server.port}/"))
    assert (found, server.arrived) == ((Status.FAILED, "url_private_address"), [])


def test_message_that_is_sent_again_keeps_its_id_and_its_body_as_it_was_written(
    process: MiniatureProcess, server: Listener
) -> None:
    body = json.dumps({"type": "test", "data": {"name": "Zoë 😀"}}, ensure_ascii=False)
    row = make_delivery(url=server.url, body=body)
    server.answers = [(500, {}, b""), (200, {}, b"")]
    send(process, row)
    WebhookDelivery.objects.update(not_before=timezone.now())
    assert send(process, row) == (Status.DELIVERED, "")
    assert row.attempts == 2
    assert resend_delivery(row.pk)
    send(process, row)
    first, second, _ = server.arrived
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body == body.encode()


def test_site_and_owner_have_a_share_of_the_threads(process: MiniatureProcess, owner: User) -> None:
    for number in range(5):
        make_delivery(owner, url=f"https://slow.example/{number}")
    assert take_deliveries(process) == MOST_PER_SITE
    fast = [make_delivery(owner, url=f"https://fast{number}.example/") for number in range(4)]
    assert take_deliveries(process) == MOST_PER_OWNER - MOST_PER_SITE
    others = [make_delivery(url="https://slow.example.org/x"), make_delivery()]
    assert take_deliveries(process) == len(others)
    for _ in range(DELIVERY_THREADS):
        make_delivery()
    assert take_deliveries(process) == DELIVERY_THREADS - MOST_PER_OWNER - len(others)
    assert take_deliveries(process) == 0
    held = {claim.pk for claim in process.held.of(Kind.DELIVERY)}
    assert held >= {fast[0].pk, fast[1].pk, others[0].pk, others[1].pk}


def test_deliveries_take_no_room_of_other_work(process: MiniatureProcess, owner: User) -> None:
    before = process.room(Kind.EXPORT)
    for number in range(DELIVERY_THREADS):
        make_delivery(url=f"https://hooks{number}.example/")
    assert claiming.take_work(process) == DELIVERY_THREADS
    assert process.room(Kind.EXPORT) == before
    assert process.room(Kind.DELIVERY) == 0


def test_message_starts_the_deliveries_that_wait(process: MiniatureProcess) -> None:
    row, later = make_delivery(), make_delivery(not_before=timezone.now() + dt.timedelta(hours=1))
    worker_process.set_current_process(process)
    try:
        claiming.look(Kind.DELIVERY)
    finally:
        worker_process.set_current_process(None)
    assert [claim.pk for claim in process.held.of(Kind.DELIVERY)] == [row.pk] != [later.pk]


def test_stopping_worker_hands_its_deliveries_back(process: MiniatureProcess) -> None:
    row = make_delivery()
    take_deliveries(process)
    (claim,) = process.held.of(Kind.DELIVERY)
    leases.hand_back(WebhookDelivery, claim)
    row.refresh_from_db()
    assert (row.status, row.attempts, row.claimed_by) == (Status.QUEUED, 0, "")


def test_sweep_frees_what_a_lost_worker_was_sending_and_rings_again(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = make_delivery()
    take_deliveries(process)
    send = Mock(return_value=True)
    monkeypatch.setattr("workers.sweep.send", send)
    assert sweep.free_own(process.name) == 1
    WebhookDelivery.objects.update(not_before=timezone.now() - dt.timedelta(hours=1))
    assert sweep.resend() == 1
    send.assert_called_once_with(Kind.DELIVERY, 1)
    row.refresh_from_db()
    assert row.status == Status.QUEUED


def test_delivery_deleted_meanwhile_is_nothing(process: MiniatureProcess, server: Listener) -> None:
    row = make_delivery(url=server.url)
    take_deliveries(process)
    row.delete()
    process.run_all()
    assert (server.arrived, len(process.held)) == ([], 0)
