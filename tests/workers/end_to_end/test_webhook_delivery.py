"""Webhooks from real worker processes, on both pairs of services, to a server of this machine."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.utils import timezone
from standardwebhooks import Webhook

from synth.jobs.submit import Order, submit_job
from synth.models import RenderJob, WebhookDelivery
from synth.webhooks.endpoints import create_endpoint, secret_of
from synth.webhooks.events import tell_test
from tests.factories import make_delivery, make_endpoint, make_user
from tests.ttsweb.http.listeners import Arrived, Listener, listening
from tests.workers.pairs import Pair, new_voice, wait_encoded, wait_ended, wait_for
from ttsweb import work

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


def test_what_happens_to_voices_and_jobs_is_told(
    pair: Pair, server: Listener, settings: Any
) -> None:
    settings.ALLOW_PRIVATE_URLS = True
    owner = make_user()
    create_endpoint(owner, {"url": server.url, "events": ["voice.ready", "job.failed"]})
    pair.start_worker(**ALLOWED).wait_ready()
    voice = new_voice()
    type(voice).objects.update(owner=owner)
    version = wait_encoded(voice)
    order = Order(text="Ox 1.", voice=voice, webhook_url=server.url + "done")
    job, _ = submit_job(order, owner=owner)
    wait_ended(job)

    secret = secret_of(owner).secret
    messages = [(one.path, verified(secret, one)) for one in server.wait_arrived(2)]

    paths = sorted(path for path, _ in messages)
    assert paths == ["/", "/done"], "the endpoint does not want job.succeeded"
    shown = {message["type"]: message["data"] for _, message in messages}
    assert (shown["voice.ready"]["id"], shown["voice.ready"]["frames"]) == (
        str(voice.pk),
        version.frames,
    )
    assert shown["job.succeeded"]["id"] == str(job.pk)
    assert shown["job.succeeded"]["status"] == RenderJob.Status.SUCCEEDED
    assert shown["job.succeeded"]["audio_url"] == f"/api/v1/jobs/{job.pk}/audio"
    assert "Ox" not in json.dumps(shown)
    for row in WebhookDelivery.objects.all():
        wait_status(row, Status.DELIVERED)


@pytest.mark.thorough
def test_message_that_is_refused_once_arrives_the_next_time(pair: Pair, server: Listener) -> None:
    server.answers = [(500, {}, b""), (200, {}, b"")]
    owner = make_user()
    pair.start_worker(role="cpu", **ALLOWED).wait_ready()

    row = tell_test(make_endpoint(owner, url=server.url))
    server.wait_arrived(1)
    waiting = wait_status(row, Status.QUEUED)
    assert (waiting.response_status, waiting.error_code) == (500, "url_status")
    assert waiting.not_before > timezone.now(), "it would be sent again at once"
    WebhookDelivery.objects.update(not_before=timezone.now())

    first, second = server.wait_arrived(2)
    done = wait_status(row, Status.DELIVERED)
    assert (done.attempts, done.error_code) == (2, "")
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == str(row.pk)
    for arrived in (first, second):
        assert verified(secret_of(owner).secret, arrived)["type"] == "test"


@pytest.mark.thorough
def test_worker_killed_while_it_sends_costs_a_second_message_with_the_same_id(
    pair: Pair, server: Listener
) -> None:
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
def test_lost_message_of_the_broker_costs_a_moment(
    pair: Pair, server: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.start_worker(role="cpu", **ALLOWED).wait_ready()
    monkeypatch.setattr(work, "_send", lambda *_, **__: True)

    row = tell_test(make_endpoint(url=server.url))

    wait_status(row, Status.DELIVERED)
    assert len(server.arrived) == 1


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


@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_private_address_is_not_sent_to_unless_that_is_allowed(
    pair: Pair, server: Listener
) -> None:
    pair.start_worker(role="cpu").wait_ready()

    row = make_delivery(url=server.url)

    assert wait_status(row, Status.FAILED).error_code == "url_private_address"
    assert server.arrived == []
