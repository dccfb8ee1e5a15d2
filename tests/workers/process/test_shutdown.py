"""A stopping worker gives everything back that it does not finish, whatever hangs."""

from __future__ import annotations

import threading
import time

import pytest
from pytest_django import Settings

from synth.models import BookFile, BookSource, Export, Segment, WebhookDelivery
from synth.transitions.jobs import cancel_job
from tests.factories import (
    make_book,
    make_book_file,
    make_delivery,
    make_export,
    make_job,
    make_stored_clip,
    make_version,
    make_voice,
)
from tests.workers.conftest import MiniatureProcess
from ttsweb.work import Kind
from voices import transitions
from voices.models import ClipCodes, VoiceVersion
from workers.process.claiming import take_work
from workers.process.held_claims import HeldClaim
from workers.process.run_worker import drain, hand_back

pytestmark = pytest.mark.django_db


def hold_everything(process: MiniatureProcess) -> None:
    """Claim a row of every kind."""
    codec = process.host.engine.codec_fingerprint
    make_job(version=make_version(codec_fingerprint=codec))
    make_voice(ready=False)
    export = make_export(status="queued")
    make_delivery()
    make_book(state="importing")
    make_book_file(make_book(job=export.job), status="queued")
    take_work(process)
    row, token = transitions.claim_codes(make_stored_clip(), codec, worker="mini")
    assert token is not None
    process.held.add(Kind.CODES, row.pk, token)


def test_every_kind_of_claim_is_handed_back_unspent(process: MiniatureProcess) -> None:
    hold_everything(process)
    claims: list[HeldClaim] = process.held.of(*Kind)
    assert {claim.kind for claim in claims} == set(Kind)

    for claim in claims:
        hand_back(claim)

    assert set(Segment.objects.values_list("status", "attempts")) == {("queued", 0)}
    assert Export.objects.get().attempts == 0
    assert BookSource.objects.get(state="importing").attempts == 0
    assert set(BookFile.objects.values_list("status", "attempts")) == {("queued", 0)}
    assert set(WebhookDelivery.objects.values_list("status", "attempts")) == {("queued", 0)}
    assert VoiceVersion.objects.get(status="pending").attempts == 0
    assert not ClipCodes.objects.filter(claim_token__isnull=False).exists()


def test_segment_of_a_cancelled_job_is_not_queued_again(process: MiniatureProcess) -> None:
    codec = process.host.engine.codec_fingerprint
    job = make_job(version=make_version(codec_fingerprint=codec))
    take_work(process)
    cancel_job(job.pk)

    hand_back(process.held.of(Kind.SEGMENT)[0])

    job.refresh_from_db()
    assert (job.status, job.segments.get().status) == ("cancelled", "cancelled")


@pytest.mark.django_db(transaction=True)
def test_drain_waits_for_work_and_ends_as_soon_as_it_is_done(
    process: MiniatureProcess, settings: Settings
) -> None:
    settings.DRAIN_SECONDS = 3600
    make_export(status="queued")
    take_work(process)
    (claim,) = process.held.of(Kind.EXPORT)
    threading.Timer(0.3, process.held.drop, [claim]).start()
    started = time.monotonic()

    drain(process, end_now=threading.Event())

    assert time.monotonic() - started > 0.25
    assert process.stopping.is_set()
    assert not process.may_claim


@pytest.mark.django_db(transaction=True)
def test_second_signal_does_not_wait(process: MiniatureProcess, settings: Settings) -> None:
    settings.DRAIN_SECONDS = 3600
    make_export(status="queued")
    take_work(process)
    end_now = threading.Event()
    end_now.set()

    drain(process, end_now=end_now)

    assert process.held.of(Kind.EXPORT), "it did not wait for what it holds"
