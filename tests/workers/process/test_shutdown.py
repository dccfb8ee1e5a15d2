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
    make_stored_clip,
    make_transcript,
    make_user,
    make_voice,
    stored,
)
from tests.workers.conftest import MiniatureProcess
from tests.workers.process.conftest import ready_job, segments_of
from ttsweb import leases
from ttsweb.work import Kind
from voices import transitions
from voices.models import ClipCodes, Transcript, VoiceVersion
from workers.process.claiming import take_work
from workers.process.run_worker import drain

pytestmark = pytest.mark.django_db


def hold_everything(process: MiniatureProcess) -> None:
    """Claim a row of every kind."""
    ready_job(process)
    make_voice(ready=False)
    make_transcript(make_user())
    export = make_export(status="queued")
    make_delivery()
    make_book(state="importing")
    make_book_file(make_book(job=export.job), status="queued")
    take_work(process)
    codec = process.host.engine.codec_fingerprint
    row, token = transitions.claim_codes(make_stored_clip(), codec, worker="mini")
    assert token is not None
    process.held.add(Kind.CODES, row.pk, token)


def test_every_kind_of_claim_is_handed_back_unspent(process: MiniatureProcess) -> None:
    hold_everything(process)
    claims = process.held.of(*Kind)
    assert {claim.kind for claim in claims} == set(Kind)

    for claim in claims:
        leases.hand_back(claim.kind.model, claim)

    for model in (Segment, Export, BookFile, Transcript, WebhookDelivery):
        rows = model._default_manager.values_list("status", "attempts")
        assert set(rows) == {("queued", 0)}, model
    assert BookSource.objects.get(state="importing").attempts == 0
    assert VoiceVersion.objects.get(status="pending").attempts == 0
    assert not ClipCodes.objects.filter(claim_token__isnull=False).exists()


def test_segment_of_a_cancelled_job_is_not_queued_again(process: MiniatureProcess) -> None:
    job = ready_job(process)
    take_work(process)
    cancel_job(job.pk)

    leases.hand_back(Segment, segments_of(process)[0])

    assert stored(job, "status") == stored(job.segments.get(), "status") == ("cancelled",)


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
