"""Webhooks from real worker processes, on both pairs of services, to a server of this machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook

from synth.models import WebhookDelivery
from synth.webhooks import create_endpoint, secret_of, tell_test
from tests.factories import make_delivery, make_endpoint, make_user
from tests.ttsweb.http.listeners import Arrived, Listener, listening
from tests.workers.pairs import Pair, new_voice, submit, wait_encoded, wait_ended, wait_for

Status = WebhookDelivery.Status
ALLOWED = {"TTS_ALLOW_PRIVATE_URLS": "1"}


@pytest.fixture
def server() -> Iterator[Listener]:
    """The receiver."""
    with listening() as listener:
        yield listener


def wait_status(row: WebhookDelivery, status: Status) -> WebhookDelivery:
    """Return a delivery once it is so far."""
    found = WebhookDelivery.objects.filter(pk=row.pk, status=status)
    wait_for(found.exists, what=f"the delivery is {status}")
    return found.get()


def hold(is_over: threading.Event) -> Any:
    """Return an answer that does not come before `is_over`."""

    def answer(connection: socket.socket) -> None:
        is_over.wait(120)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    return answer


def verified(secret: str, arrived: Arrived) -> Any:
    """Return a message once its signature is found to be good."""
    return Webhook(secret).verify(arrived.body, arrived.headers)


def test_what_happens_to_voices_and_jobs_is_said(
    pair: Pair, server: Listener, settings: Any
) -> None:
    settings.ALLOW_PRIVATE_URLS = True
    owner = make_user()
    create_endpoint(owner, {"url": server.url, "events": ["voice.ready", "job.failed"]})
    pair.start_worker(**ALLOWED).wait_ready()
    voice = new_voice()
    type(voice).objects.update(owner=owner)
    version = wait_encoded(voice)
    job = submit(voice, owner=owner, webhook_url=server.url + "done")
    wait_ended(job)

    secret = secret_of(owner).secret
    messages = [(one.path, verified(secret, one)) for one in server.wait_arrived(2)]

    paths = sorted(path for path, _ in messages)
    assert paths == ["/", "/done"], "the endpoint does not want job.succeeded"
    shown = {message["type"]: message["data"] for _, message in messages}
    ready, ended = shown["voice.ready"], shown["job.succeeded"]
    assert (ready["id"], ready["frames"]) == (str(voice.pk), version.frames)
    audio = f"/api/v1/jobs/{job.pk}/audio"
    assert (ended["id"], ended["status"], ended["audio_url"]) == (str(job.pk), "succeeded", audio)
    assert "Ox" not in json.dumps(shown)
    for row in WebhookDelivery.objects.all():
        wait_status(row, Status.DELIVERED)


@pytest.mark.thorough
def test_worker_killed_while_it_sends_costs_a_second_message(pair: Pair, server: Listener) -> None:
    is_over = threading.Event()
    server.answers = [hold(is_over), (200, {}, b"")]
    worker = pair.start_worker("w1", role="cpu", **ALLOWED).wait_ready()
    row = tell_test(make_endpoint(url=server.url))
    server.wait_arrived(1)
    worker.kill()
    is_over.set()
    assert WebhookDelivery.objects.get().status == Status.CLAIMED
    pair.start_worker("w2", role="cpu", **ALLOWED)
    first, second = server.wait_arrived(2)
    wait_status(row, Status.DELIVERED)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert len(server.arrived) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_receivers_that_take_their_time_hold_up_nobody_else(pair: Pair, server: Listener) -> None:
    is_over = threading.Event()
    owner = make_user()
    with listening() as slow:
        slow.answers = [hold(is_over)]
        pair.start_worker(role="cpu", **ALLOWED).wait_ready()
        held = [make_delivery(owner, url=f"{slow.url}{number}") for number in range(30)]
        slow.wait_arrived(2)

        rows = [make_delivery(owner, url=server.url), make_delivery(url=server.url)]
        for row in rows:
            wait_status(row, Status.DELIVERED)
        sent = WebhookDelivery.objects.filter(pk__in=[row.pk for row in held])
        assert not sent.filter(status=Status.DELIVERED).exists()
        assert len(slow.arrived) == 2

        is_over.set()
        for row in held:
            wait_status(row, Status.DELIVERED)
