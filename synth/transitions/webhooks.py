"""Move webhook deliveries: claim, deliver, try again later, give up, send once more."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from synth.models import WebhookDelivery, WebhookEndpoint
from ttsweb import leases
from ttsweb.leases import Claim
from ttsweb.work import Kind, enqueue

WEBHOOK_HOURS = 24.0  # for which a failed message is sent again: a receiver may be away for a night

Status = WebhookDelivery.Status
FINAL = (Status.DELIVERED, Status.FAILED)
FIRST_PAUSE_SECONDS = 5.0
PAUSE_FACTOR = 3.0  # 5 s, 15 s, 45 s, 2 min, 7 min, 20 min, 1 h, 3 h, then every 4 h
LONGEST_PAUSE_SECONDS = 4 * 3600.0
JITTER = 0.2  # of the pause, so that what failed together does not come again together
# A server may ask to be tried sooner than that, but not all day long without a pause.
LEAST_SHARE_OF_PAUSE = 0.1


def claimable_deliveries() -> QuerySet[WebhookDelivery]:
    """Return the deliveries that wait for a CPU worker now, those that waited longest first."""
    return leases.claimable(WebhookDelivery).order_by("not_before", "pk")


def finish_delivery(claim: Claim, *, response_status: int) -> bool:
    """Move CLAIMED -> DELIVERED; False when the claim is gone."""
    columns = {"response_status": response_status, "error_code": "", "error_message": ""}
    return leases.end(WebhookDelivery, claim, Status.DELIVERED, **columns)


def postpone_delivery(
    claim: Claim,
    *,
    code: str,
    message: str,
    response_status: int | None = None,
    retry_after_seconds: float | None = None,
) -> bool:
    """Move CLAIMED -> QUEUED for a later attempt, or -> FAILED where that would be too late.

    Args:
        retry_after_seconds: how long the server asked to be left alone.

    Returns:
        Whether the claim was still ours.
    """
    row = leases.held(WebhookDelivery, claim).values_list("attempts", "give_up_at").first()
    if row is None:
        return False
    attempts, last_moment = row
    pause = pause_seconds(attempts)
    if retry_after_seconds is not None:
        pause = max(retry_after_seconds, LEAST_SHARE_OF_PAUSE * pause)
    if pause > (last_moment - leases.database_now()).total_seconds():
        return fail_delivery(claim, code=code, message=message, response_status=response_status)
    why: dict[str, Any] = {"error_code": code, "error_message": message}
    return leases.hand_back(
        WebhookDelivery, claim, delay_seconds=pause, spend_attempt=True,
        response_status=response_status, **why,
    )  # fmt: skip


def pause_seconds(attempts: int) -> float:
    """Return how long to wait after so many attempts, at random within JITTER."""
    pause = FIRST_PAUSE_SECONDS * PAUSE_FACTOR ** min(attempts - 1, 20)
    return min(pause, LONGEST_PAUSE_SECONDS) * random.uniform(1 - JITTER, 1 + JITTER)


def fail_delivery(
    claim: Claim, *, code: str, message: str, response_status: int | None = None
) -> bool:
    """Move CLAIMED -> FAILED; False when the claim is gone."""
    return leases.fail(
        WebhookDelivery, claim, code=code, message=message, response_status=response_status
    )


def fail_gone_delivery(claim: Claim, *, response_status: int) -> bool:
    """Fail a delivery whose URL wants no more, and switch off its owner's endpoints there."""
    message = (
        f"The URL answered with {response_status}: it takes no more messages. The endpoint "
        "with this URL was switched off; switch it on when the URL takes messages again."
    )
    with transaction.atomic():
        failed = fail_delivery(
            claim, code="endpoint_gone", message=message, response_status=response_status
        )
        if failed:
            owner_id, url = WebhookDelivery.objects.values_list("owner_id", "url").get(pk=claim.pk)
            WebhookEndpoint.objects.filter(owner_id=owner_id, url=url).update(enabled=False)
    return failed


def fail_deliveries_to(endpoint: WebhookEndpoint) -> int:
    """Fail what waits for an endpoint that was switched off or deleted; return how many.

    What a job or a batch sends to the same URL by its own wish stays.
    """
    by_request = Q(job__webhook_url=endpoint.url) | Q(batch__webhook_url=endpoint.url)
    requested = WebhookDelivery.objects.filter(by_request, owner_id=endpoint.owner_id)
    queued = WebhookDelivery.objects.filter(owner_id=endpoint.owner_id, status=Status.QUEUED)
    waiting = queued.filter(~Q(pk__in=requested.values("pk")), url=endpoint.url)
    return waiting.update(
        status=Status.FAILED,
        error_code="endpoint_disabled",
        error_message="The endpoint was switched off or deleted before this message was delivered.",
        finished_at=leases.database_now(),
    )


def resend_delivery(delivery_id: uuid.UUID) -> bool:
    """Send a delivery at once and, where that fails, with all its time before it.

    The message keeps its id and its body. Returns False while it is being sent.
    """
    with transaction.atomic():
        rows = WebhookDelivery.objects.filter(pk=delivery_id).exclude(status=Status.CLAIMED)
        columns = leases.untried() | {"give_up_at": give_up_at(), "finished_at": None}
        moved = rows.update(status=Status.QUEUED, **columns)
        if moved:
            enqueue(Kind.DELIVERY, [delivery_id])
    return bool(moved)


def free_lost_deliveries(lost: Q) -> int:
    """Give back deliveries whose claim meets `lost`: they are sent again, until their time ends."""
    rows = WebhookDelivery.objects.filter(lost, status=Status.CLAIMED)
    failed = rows.filter(give_up_at__lt=leases.database_now()).update(
        status=Status.FAILED,
        error_code="worker_lost",
        error_message="The worker that sent this message stopped before the URL answered.",
        finished_at=leases.database_now(),
        **leases.free(spend_attempt=True),
    )
    return failed + rows.update(
        status=Status.QUEUED, **leases.free(spend_attempt=True, not_before=leases.database_now())
    )


def give_up_at() -> dt.datetime:
    """Return until when a message that begins its way now is tried."""
    return leases.database_now() + dt.timedelta(hours=WEBHOOK_HOURS)
