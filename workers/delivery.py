"""Deliver webhooks and e-mail notices: whose turn it is, sending, what an answer means."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import smtplib
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate, parsedate_to_datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db.models import Q

from synth.models import WebhookDelivery
from synth.models.accounts import MAIL
from synth.transitions.webhooks import (
    claimable_deliveries,
    fail_gone_delivery,
    finish_delivery,
    postpone_delivery,
)
from synth.webhooks import secret_of, signed_headers, signing_secrets
from ttsweb import leases
from ttsweb.configuration.builders import MailServer
from ttsweb.encryption import SecretUnreadableError
from ttsweb.http.guarded_fetch import Answered, FetchError, post
from ttsweb.leases import Claim
from ttsweb.work import Kind
from workers.kinds import UNEXPECTED_MESSAGE, fail, retry_while_away, settle_errors
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

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


# Of the threads for deliveries: a server that takes its time must leave some for the others.
MOST_PER_SITE = 2
MOST_PER_OWNER = 4
GONE = 410
_SITE = re.compile(rf"[^:/?#]+://[^/?#]*|{MAIL}")
# What no later attempt can change: the same URL would be refused in the same way.
HOPELESS = ("url_invalid", "url_scheme", "url_private_address", "mail_refused")


def take_deliveries(process: WorkerProcess) -> int:
    """Claim deliveries that wait, and start on them; return how many."""
    claims = []
    with process.claim_lock:
        while process.room(Kind.DELIVERY):
            waiting = claimable_deliveries().exclude(_whose_turn_is_over(process))
            chosen = waiting.values_list("pk", flat=True).first()
            if chosen is None:
                break
            for claim in leases.claim(waiting, [chosen], worker=process.name):
                claims.append(process.held.add(Kind.DELIVERY, claim.pk, claim.token))
    for held in claims:
        process.run([held], deliver, held)
    return len(claims)


def deliver(process: WorkerProcess, claim: HeldClaim) -> None:
    """Send a claimed delivery and settle it by the answer."""
    with settle_errors(process, claim, _settle_known):
        row = WebhookDelivery.objects.select_related("owner").filter(pk=claim.pk).first()
        if row is None or claim.is_lost:
            return
        if row.url.startswith(MAIL):
            settle = partial(finish_delivery, claim, response_status=send_mail(row))
        else:
            settle = partial(_settle_answer, claim, _send(row))
        if not process.handing_back.is_set():
            retry_while_away(settle)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return how long an answer asks to wait, whether it says seconds or a moment; None if it does
    not, or not so that it can be read.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return max(0.0, (moment - dt.datetime.now(dt.UTC)).total_seconds())


def _whose_turn_is_over(process: WorkerProcess) -> Q:
    """Return the condition of what has its share of this process's threads already."""
    held = WebhookDelivery.objects.filter(pk__in=[one.pk for one in process.held.of(Kind.DELIVERY)])
    rows = list(held.values_list("url", "owner_id"))
    # Scheme, host and port of a URL as they are spelled in it.
    sites = Counter(found.group() if (found := _SITE.match(url)) else url for url, _ in rows)
    owners = Counter(owner_id for _, owner_id in rows)
    if sites.pop(MAIL, 0) >= MOST_PER_SITE:  # one server takes all mail
        return Q(url__startswith=MAIL) | _over(sites, owners)
    return _over(sites, owners)


def _over(sites: Counter[str], owners: Counter[int]) -> Q:
    over = Q(owner_id__in=[owner for owner, count in owners.items() if count >= MOST_PER_OWNER])
    for site, count in sites.items():
        if count >= MOST_PER_SITE:
            over |= Q(url=site) | Q(url__startswith=f"{site}/") | Q(url__startswith=f"{site}?")
    return over


def _send(row: WebhookDelivery) -> Answered:
    """Post a message, signed for this moment.

    Raises:
        FetchError: there is no answer, or the URL may not be used.
        SecretUnreadableError: the secret was encrypted with another key.
    """
    body = row.body.encode()
    signed = signed_headers(
        str(row.pk),
        timestamp=int(time.time()),
        body=body,
        signers=signing_secrets(secret_of(row.owner)),
    )
    return post(
        row.url,
        body=body,
        headers={"Content-Type": "application/json", **signed},
        seconds=SEND_SECONDS,
        allow_private=settings.ALLOW_PRIVATE_URLS,
    )


def _settle_answer(claim: Claim, answered: Answered) -> bool:
    status = answered.status
    logger.info("webhook answered: status=%d", status)
    if 200 <= status < 300:
        return finish_delivery(claim, response_status=status)
    if status == GONE:
        return fail_gone_delivery(claim, response_status=status)
    code, message = "url_status", f"The URL answered with the status {status}."
    if 300 <= status < 400:
        code = "url_redirects"
        message += " Webhooks do not follow redirects; use the URL that it redirects to."
    return postpone_delivery(
        claim,
        code=code,
        message=message,
        response_status=status,
        retry_after_seconds=retry_after_seconds(answered.headers),
    )


def _settle_known(claim: HeldClaim, error: Exception) -> bool:
    """Settle all errors: a message is tried again by pauses of its own, until its time is over."""
    code, message = "unexpected_error", UNEXPECTED_MESSAGE
    if isinstance(error, (FetchError, MailError, SecretUnreadableError)):
        logger.warning("delivery not taken: %s", error.code)
        code, message = error.code, str(error)
    else:
        logger.error("delivery failed unexpectedly", exc_info=error)
    if code in HOPELESS:
        return fail(claim, code, message)
    return postpone_delivery(claim, code=code, message=message)
