"""Hand an e-mail notice to the server that the operator has named."""

from __future__ import annotations

import json
import smtplib
import ssl
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any

from django.conf import settings

from synth.models import WebhookDelivery
from synth.models.webhooks import MAIL
from ttsweb.configuration.builders import MailServer

SEND_SECONDS = 15.0
TAKEN = 250
_NEAR = ("localhost", "127.0.0.1", "::1")
_NOUNS = {"batch": "Batch", "book": "Book"}
# What a person wants to know at once; the rest is on the page of the thing. Never what is said.
_SHOWN = ("status", "error_message")


class MailError(Exception):
    """The server did not take a message: a stable code and a sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def send_mail(row: WebhookDelivery) -> int:
    """Hand over the message of a delivery; return the server's status.

    A message that is sent twice, as its worker was killed before it could write that down, has the
    same Message-ID, by which mail programs know it again.

    Raises:
        MailError: mail_refused is final; mail_deferred, mail_login_refused, mail_not_encrypted,
            mail_unreachable and mail_off are not.
    """
    if settings.SMTP is None:
        raise MailError("mail_off", "TTS_SMTP_URL is not set on this worker.")
    try:
        with _connect(settings.SMTP) as server:
            server.send_message(_message(row, settings.SMTP))
    except smtplib.SMTPRecipientsRefused as error:
        raise _refusal(*next(iter(error.recipients.values()))) from error
    except smtplib.SMTPAuthenticationError as error:
        sentence = f"The mail server refused the log-in ({error.smtp_code})."
        raise MailError("mail_login_refused", sentence) from error
    except smtplib.SMTPResponseException as error:
        raise _refusal(error.smtp_code, error.smtp_error) from error
    except (smtplib.SMTPNotSupportedError, UnicodeError, ValueError) as error:
        sentence = "The mail server does not take this address."
        raise MailError("mail_refused", sentence) from error
    except (OSError, smtplib.SMTPException) as error:
        sentence = f"The mail server could not be reached: {type(error).__name__}."
        raise MailError("mail_unreachable", sentence) from error
    return TAKEN


def _connect(mail: MailServer) -> smtplib.SMTP:
    context = ssl.create_default_context()
    if mail.is_tls:
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            mail.host, mail.port, timeout=SEND_SECONDS, context=context
        )
    else:
        server = smtplib.SMTP(mail.host, mail.port, timeout=SEND_SECONDS)
    try:
        server.ehlo()
        is_secret = mail.is_tls
        if not mail.is_tls and server.has_extn("starttls"):
            server.starttls(context=context)
            server.ehlo()
            is_secret = True
        if mail.user:
            if not is_secret and mail.host not in _NEAR:
                sentence = "The mail server offers no encryption; the password is not sent to it."
                raise MailError("mail_not_encrypted", sentence)
            server.login(mail.user, mail.password)
    except BaseException:
        server.close()
        raise
    return server


def _refusal(status: int, said: bytes | str) -> MailError:
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    code = "mail_refused" if 500 <= status < 600 else "mail_deferred"
    return MailError(code, f"The mail server answered {status}: {text[:200]}")


def _message(row: WebhookDelivery, mail: MailServer) -> EmailMessage:
    data: dict[str, Any] = json.loads(row.body)["data"]
    is_books = row.event == WebhookDelivery.Event.BOOK_BATCH_ENDED
    noun = "Batch of books" if is_books else _NOUNS.get(str(data.get("kind")), "Job")
    status = str(data.get("status", row.event.partition(".")[2]))
    lines = [f"{noun} {data.get('id', row.about)}"]
    lines += [f"{name.replace('_', ' ')}: {data[name]}" for name in _SHOWN if data.get(name)]
    lines += ["", "You asked for this notice on the page of your account, and can end it there."]
    message = EmailMessage()
    message["From"], message["To"] = mail.sender, row.url.removeprefix(MAIL)
    message["Subject"] = f"{noun} {status}"
    message["Message-ID"] = f"<{row.pk}@{mail.sender.partition('@')[2]}>"
    message["Date"], message["Auto-Submitted"] = formatdate(), "auto-generated"
    message.set_content("\n".join(lines) + "\n")
    return message
