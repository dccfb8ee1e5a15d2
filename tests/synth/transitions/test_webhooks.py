"""Each step of a delivery: one wins a claim, late writers change nothing, time runs out."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.db.models import Q
from django.utils import timezone

from synth.models import WebhookDelivery
from synth.transitions.webhooks import (
    claimable_deliveries,
    fail_deliveries_to,
    fail_delivery,
    fail_gone_delivery,
    finish_delivery,
    free_lost_deliveries,
    pause_seconds,
    postpone_delivery,
    resend_delivery,
)
from tests.factories import (
    claim_row,
    hold_row,
    make_delivery,
    make_endpoint,
    make_job,
    make_user,
    stored,
)
from ttsweb import leases
from ttsweb.leases import Claim

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

Status = WebhookDelivery.Status


def claimed(**fields: Any) -> tuple[WebhookDelivery, Claim]:
    """Return a delivery that is being sent, and the claim on it."""
    row = make_delivery(**fields)
    return row, hold_row(WebhookDelivery, row.pk)


def seconds_to_wait(row: WebhookDelivery) -> float:
    (not_before,) = stored(row, "not_before")
    return float((not_before - timezone.now()).total_seconds())


def test_one_worker_has_a_delivery_and_a_late_one_changes_nothing() -> None:
    row, claim = claimed()
    assert claim_row(WebhookDelivery, row.pk, worker="other") is None
    assert stored(row, "status", "claimed_by", "attempts", "claim_token") == (
        Status.CLAIMED, "w", 1, claim.token,
    )  # fmt: skip
    leases.hand_back(WebhookDelivery, claim)

    assert not finish_delivery(claim, response_status=200)
    assert not fail_delivery(claim, code="x", message="y")
    assert not postpone_delivery(claim, code="x", message="y")
    assert not fail_gone_delivery(claim, response_status=410)
    assert not leases.hand_back(WebhookDelivery, claim)
    assert stored(row, "status", "attempts", "error_code") == (Status.QUEUED, 0, "")


def test_delivery_is_not_claimed_before_its_time() -> None:
    row = make_delivery(not_before=timezone.now() + dt.timedelta(seconds=60))

    assert claim_row(WebhookDelivery, row.pk) is None
    assert not claimable_deliveries().exists()


def test_delivered_message_has_no_error_left() -> None:
    row, claim = claimed(error_code="url_status", error_message="It answered 500.")

    assert finish_delivery(claim, response_status=204)

    found = stored(row, "status", "response_status", "error_code", "claim_token")
    assert found == (Status.DELIVERED, 204, "", None)
    assert row.finished_at is not None


def test_pauses_grow_and_vary() -> None:
    found = [[pause_seconds(attempts) for _ in range(50)] for attempts in range(1, 30)]

    for attempts, pauses in enumerate(found):
        middle = min(5.0 * 3.0**attempts, 4 * 3600.0)
        assert all(0.79 * middle < pause < 1.21 * middle for pause in pauses)
        assert len(set(pauses)) > 1


def test_failed_attempt_waits_and_keeps_its_error() -> None:
    row, claim = claimed()

    assert postpone_delivery(claim, code="url_status", message="500.", response_status=500)

    assert stored(row, "status", "attempts", "response_status") == (Status.QUEUED, 1, 500)
    assert (row.error_code, row.error_message, row.finished_at) == ("url_status", "500.", None)
    assert 3 < seconds_to_wait(row) < 6.1


@pytest.mark.parametrize(
    ("asked", "attempts", "low", "high"),
    [(600.0, 0, 590, 601), (0.0, 0, 0.1, 1), (1.0, 0, 0.5, 1), (0.0, 20, 600, 10_000)],
)
def test_pause_that_the_server_asks_for_is_kept_but_not_none_without_end(
    asked: float, attempts: int, low: float, high: float
) -> None:
    row, claim = claimed(attempts=attempts)

    postpone_delivery(claim, code="url_status", message="503.", retry_after_seconds=asked)

    assert low < seconds_to_wait(row) <= high


@pytest.mark.parametrize("asked", [None, 3600.0])
def test_delivery_is_given_up_when_the_next_try_would_be_too_late(asked: float | None) -> None:
    left = 1.0 if asked is None else 3000.0
    row, claim = claimed(give_up_at=timezone.now() + dt.timedelta(seconds=left))

    postpone_delivery(claim, code="url_timeout", message="Too slow.", retry_after_seconds=asked)

    assert stored(row, "status", "error_code") == (Status.FAILED, "url_timeout")
    assert row.finished_at is not None


def test_url_that_is_gone_switches_its_owners_endpoint_off() -> None:
    owner, url = make_user(), "https://hooks.example/gone"
    own, others = make_endpoint(owner, url=url), make_endpoint(url=url)
    other = make_endpoint(owner)
    row, claim = claimed(owner=owner, url=url)

    assert fail_gone_delivery(claim, response_status=410)

    found = stored(row, "status", "error_code", "response_status")
    assert found == ("failed", "endpoint_gone", 410)
    assert [stored(one, "enabled") for one in (own, others, other)] == [(False,), (True,), (True,)]


def test_what_waits_for_an_endpoint_that_goes_fails_unless_a_job_asked_for_it() -> None:
    owner = make_user()
    endpoint = make_endpoint(owner)
    waiting = make_delivery(owner, url=endpoint.url)
    of_job = make_delivery(owner, url=endpoint.url, job=make_job(owner=owner))
    asked = make_delivery(
        owner, url=endpoint.url, job=make_job(owner=owner, webhook_url=endpoint.url)
    )
    others = make_delivery(url=endpoint.url)
    done = make_delivery(owner, url=endpoint.url, status=Status.DELIVERED)

    assert fail_deliveries_to(endpoint) == 2

    rows = WebhookDelivery.objects.in_bulk()
    assert {rows[waiting.pk].error_code, rows[of_job.pk].error_code} == {"endpoint_disabled"}
    assert [rows[one.pk].status for one in (asked, others, done)] == [
        Status.QUEUED, Status.QUEUED, Status.DELIVERED,
    ]  # fmt: skip


@pytest.mark.parametrize("status", [Status.QUEUED, Status.DELIVERED, Status.FAILED])
def test_delivery_is_sent_again_with_all_its_time(
    status: Status, sent_tasks: Callable[[str], list[str]]
) -> None:
    later = timezone.now() + dt.timedelta(hours=1)
    row = make_delivery(status=status, attempts=9, not_before=later, give_up_at=later)

    assert resend_delivery(row.pk)

    assert stored(row, "status", "attempts", "finished_at") == (Status.QUEUED, 0, None)
    assert row.give_up_at > timezone.now() + dt.timedelta(hours=23)
    assert claimable_deliveries().get() == row
    assert len(sent_tasks("deliver")) == 1


def test_delivery_that_is_being_sent_is_not_sent_again() -> None:
    row, claim = claimed()

    assert not resend_delivery(row.pk)
    assert finish_delivery(claim, response_status=200)


def test_lost_delivery_is_sent_again_until_its_time_is_over() -> None:
    row, _ = claimed(attempts=50)
    late, _ = claimed()
    WebhookDelivery.objects.filter(pk=late.pk).update(give_up_at=timezone.now())

    assert free_lost_deliveries(Q(claimed_by="w")) == 2

    assert stored(row, "status", "attempts", "claim_token") == (Status.QUEUED, 51, None)
    assert stored(late, "status", "error_code") == (Status.FAILED, "worker_lost")
