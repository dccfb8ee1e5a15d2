"""E-mail notices, handed to a real SMTP server: who is told of what, and what is tried again."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from synth.models import NoticeWish, WebhookDelivery
from synth.signals import batch_ended
from synth.transitions.webhooks import resend_delivery
from synth.webhooks import queue_job_messages
from tests.factories import make_batch, make_ended_job, make_user
from tests.workers.commands import free_port
from tests.workers.conftest import MiniatureProcess
from ttsweb import leases
from ttsweb.configuration.builders import mail_server
from ttsweb.configuration.env import SettingError
from workers.delivery import take_deliveries

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = "A marked text that is nobody else's."


@dataclass
class Mailbox:
    """A mail server: what it took, and what it answers."""

    messages: list[Message] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    users: list[tuple[bytes, bytes]] = field(default_factory=list)
    port: int = 0

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        if self.answers:
            return self.answers.pop(0)
        self.messages.append(message_from_bytes(envelope.content))
        return "250 taken"

    def let_in(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
        assert isinstance(data, LoginPassword)
        self.users.append((data.login, data.password))
        return AuthResult(success=data.password == b"p@ss word", handled=False)


@pytest.fixture
def mailbox(settings: Settings) -> Iterator[Mailbox]:
    box = Mailbox()
    box.port = free_port()
    authentic: dict[str, Any] = {"authenticator": box.let_in, "auth_require_tls": False}
    controller: Any = Controller(box, "127.0.0.1", box.port, **authentic)
    with contextlib.ExitStack() as stack:
        controller.start()
        stack.callback(controller.stop)
        url = f"smtp://tts:p%40ss%20word@127.0.0.1:{box.port}/?from=tts@example.org"
        settings.SMTP = mail_server(url)
        yield box


@pytest.fixture
def process() -> MiniatureProcess:
    return MiniatureProcess(None, role="cpu")


@pytest.fixture
def ann(message_folder: Any) -> User:
    user = make_user("ann", email="ann@example.net")
    NoticeWish.objects.create(user=user, about=["jobs", "batches"])
    return user


def end(job: Any) -> None:
    queue_job_messages(job.pk)


def send_all(process: MiniatureProcess) -> list[tuple[str, str]]:
    while take_deliveries(process):
        process.run_all()
    rows = WebhookDelivery.objects.order_by("created_at")
    return list(rows.values_list("status", "error_code"))


def test_user_is_told_once_of_what_was_asked_for_and_not_what_was_said(
    mailbox: Mailbox, process: MiniatureProcess, ann: User
) -> None:
    job = make_ended_job(ann, text=TEXT)
    end(job)
    end(make_ended_job(make_user("bob", email="bob@example.net")))  # who asked for nothing
    item = make_ended_job(ann, batch=make_batch(ann, "succeeded"))
    end(item)  # its batch tells for all of them
    batch_ended.send(None, batch_id=item.batch_id)

    assert send_all(process) == [("delivered", ""), ("delivered", "")]

    assert mailbox.users == [(b"tts", b"p@ss word")] * 2
    told, of_batch = sorted(mailbox.messages, key=lambda one: str(one["Subject"]), reverse=True)
    assert (told["From"], told["To"]) == ("tts@example.org", "ann@example.net")
    assert told["Subject"] == "Job succeeded"
    assert of_batch["Subject"] == "Batch succeeded"
    assert told["Auto-Submitted"] == "auto-generated"
    assert str(job.pk) in str(told.get_payload())
    assert TEXT not in told.as_string() + of_batch.as_string()


def test_failures_alone_and_nothing_without_a_server(
    mailbox: Mailbox, process: MiniatureProcess, ann: User, settings: Settings
) -> None:
    NoticeWish.objects.update(failures_only=True)
    end(make_ended_job(ann))
    end(make_ended_job(ann, status="failed", error_code="engine_failed", error_message="It broke."))
    smtp, settings.SMTP = settings.SMTP, None
    end(make_ended_job(ann, status="failed"))
    settings.SMTP = smtp
    ann.email = ""
    ann.save()
    end(make_ended_job(ann, status="failed"))

    assert send_all(process) == [("delivered", "")]

    (message,) = mailbox.messages
    assert message["Subject"] == "Job failed"
    assert "It broke." in str(message.get_payload())


def test_server_that_is_away_or_busy_is_tried_again_and_a_refusal_is_final(
    mailbox: Mailbox, process: MiniatureProcess, ann: User, settings: Settings
) -> None:
    end(make_ended_job(ann))
    row = WebhookDelivery.objects.get()
    right, wrong = settings.SMTP, mail_server("smtp://127.0.0.1:9/?from=tts@example.org")

    def attempt() -> tuple[str, str]:
        WebhookDelivery.objects.update(not_before=leases.database_now())
        return send_all(process)[0]

    settings.SMTP = wrong
    assert attempt() == ("queued", "mail_unreachable")
    settings.SMTP = None
    assert attempt() == ("queued", "mail_off")
    url = f"smtp://tts:bad@127.0.0.1:{mailbox.port}/?from=tts@example.org"
    settings.SMTP = mail_server(url)
    assert attempt() == ("queued", "mail_login_refused")
    settings.SMTP = right
    mailbox.answers = ["451 later", "550 no such box"]
    assert attempt() == ("queued", "mail_deferred")
    assert attempt() == ("failed", "mail_refused")
    assert resend_delivery(row.pk)
    assert attempt() == ("delivered", "")
    assert resend_delivery(row.pk)
    assert attempt() == ("delivered", "")

    first, second = mailbox.messages
    assert first["Message-ID"] == second["Message-ID"] == f"<{row.pk}@example.org>"


def test_wish_is_chosen_on_the_page_of_the_account(
    mailbox: Mailbox, ann: User, client: Client
) -> None:
    client.force_login(ann)
    form = {"act": "notices", "about": ["books", "other"], "failures_only": "on"}

    client.post("/account", form, HTTP_HOST="localhost")

    wish = NoticeWish.objects.get()
    assert (wish.about, wish.failures_only) == (["books"], True)
    page = client.get("/account", HTTP_HOST="localhost").content.decode()
    assert "ann@example.net" in page


def test_nobody_names_an_address_as_a_webhook(ann: User, client: Client) -> None:
    client.force_login(ann)
    body = {"url": "mailto:eve@example.org"}

    answer = client.post(
        "/api/v1/webhooks/endpoints", body, content_type="application/json", HTTP_HOST="localhost"
    )

    assert (answer.status_code, answer.json()["code"]) == (400, "url_scheme")


@pytest.mark.parametrize(
    "url",
    [
        "smtp://host", "http://host/?from=a@b", "smtp://host/?from=ab", "smtp://u@host/?from=a@b",
        "smtp://u:secret@host/?from=a@b&tls=no", "smtp://host/path?from=a@b", "host",
        "smtp://host/?from=a@b&from=c@d", "smtp://host:99999/?from=a@b",
        "smtp://host/?from=a@b%0d%0aBcc:c@d",
    ],
)  # fmt: skip
def test_setting_of_another_form_stops_the_start(url: str) -> None:
    with pytest.raises(SettingError, match=r"^TTS_SMTP_URL: expected") as caught:
        mail_server(url)
    assert "secret" not in str(caught.value)


def test_password_goes_to_no_other_machine_without_encryption(
    mailbox: Mailbox,
    process: MiniatureProcess,
    ann: User,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # This machine, by a name that is not known to be it.
    url = f"smtp://tts:secret@mail.example.org:{mailbox.port}/?from=tts@example.org"
    settings.SMTP = mail_server(url)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: _near(mailbox.port))
    end(make_ended_job(ann))

    assert send_all(process) == [("queued", "mail_not_encrypted")]
    assert mailbox.users == []


def _near(port: int) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
