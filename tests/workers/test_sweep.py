"""The sweep frees what was lost and lets everything else be; of many workers one does a round."""

from __future__ import annotations

import datetime as dt
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from synth.models import RenderJob, Segment, SweepTurn, WorkerStatus
from tests.factories import (
    CODEC_FINGERPRINT,
    make_export,
    make_job,
    make_segment,
    make_stored_clip,
    make_version,
    make_voice,
)
from ttsweb import leases, work
from voices.models import CacheEviction, ClipCodes, ReferenceClip, StoredClip, VoiceVersion
from workers import sweep, turns

pytestmark = pytest.mark.django_db(transaction=True)
AGO = dt.timedelta(hours=2)


def claimed(*, ago: dt.timedelta, **fields: Any) -> dict[str, Any]:
    """Return the columns of a claim whose lease ended `ago`."""
    return {
        "claimed_by": "dead",
        "claim_token": uuid.uuid4(),
        "lease_until": leases.database_now() - ago,
        "attempts": 1,
        **fields,
    }


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []

    def note(task: str, queue: str) -> bool:
        messages.append(task)
        return True

    monkeypatch.setattr(work, "_send", note)
    return messages


def test_of_two_sweeps_at_once_one_does_the_round_and_a_turn_comes_again_by_its_row() -> None:
    assert turns.take_turn("sweep", seconds=0.01) is not None
    time.sleep(0.02)
    overdue = turns.take_turn("sweep", seconds=10)
    assert overdue is not None and overdue < dt.timedelta(seconds=5)
    assert turns.take_turn("sweep", seconds=10) is None


def test_living_workers_may_renew_first_after_a_time_without_sweeps() -> None:
    segment = make_segment(**claimed(ago=dt.timedelta(seconds=1), status="claimed"))
    turns.take_turn("sweep", seconds=0)
    SweepTurn.objects.update(next_at=leases.database_now() - AGO)

    assert sweep.sweep_if_due()
    segment.refresh_from_db()
    assert segment.status == "claimed"
    SweepTurn.objects.update(next_at=leases.database_now())
    assert sweep.sweep_if_due()
    segment.refresh_from_db()
    assert segment.status == "queued"


def test_outage_before_the_first_round_of_all_is_seen_too() -> None:
    sweep.start_clock()
    SweepTurn.objects.update(next_at=leases.database_now() - AGO)
    segment = make_segment(**claimed(ago=dt.timedelta(seconds=1), status="claimed"))
    sweep.start_clock()  # a second worker starts
    assert sweep.sweep_if_due()
    segment.refresh_from_db()
    assert segment.status == "claimed"


def test_expired_claims_are_freed_and_living_ones_are_not() -> None:
    second = dt.timedelta(seconds=1)
    lost = make_segment(**claimed(ago=second, status="claimed"))
    held = make_segment(**claimed(ago=-dt.timedelta(hours=1), status="claimed"))
    version = make_version(status="encoding", **claimed(ago=second))
    export = make_export(status="claimed", **claimed(ago=second))

    assert sweep.sweep_if_due()

    for row in (lost, held, version, export):
        row.refresh_from_db()
    assert (lost.status, held.status) == ("queued", "claimed")
    assert (version.status, export.status) == ("pending", "queued")
    assert (lost.attempts, lost.losses) == (0, 1)
    assert (version.attempts, version.losses) == (0, 1)
    assert (export.attempts, export.losses) == (0, 1)


def test_claim_lost_for_the_last_time_fails_with_a_sentence() -> None:
    second = dt.timedelta(seconds=1)
    segment = make_segment(**claimed(ago=second, status="claimed") | {"losses": 4})
    sweep.sweep_if_due()
    segment.refresh_from_db()
    assert (segment.status, segment.error_code) == ("failed", "worker_lost")
    assert "log" in segment.error_message


def test_restarted_worker_frees_its_own_claims_and_nobody_elses() -> None:
    later = -dt.timedelta(hours=1)
    own = make_segment(**claimed(ago=later, status="claimed"))
    other = make_segment(**claimed(ago=later, status="claimed") | {"claimed_by": "other"})
    codes = ClipCodes.objects.create(
        clip=make_stored_clip(), codec_fingerprint="c", **claimed(ago=later)
    )

    sweep.free_own("dead")

    for row in (own, other, codes):
        row.refresh_from_db()
    assert (own.status, other.status) == ("queued", "claimed")
    assert codes.claim_token is None


def test_job_that_was_cancelled_or_whose_version_failed_unseen_ends() -> None:
    cancelled = make_job(cancel_requested=True)
    version = make_version(status="failed", error_code="clip_silent", error_message="Silent.")
    failed = make_job(version=version)
    sweep.sweep_if_due()
    for job in (cancelled, failed):
        job.refresh_from_db()
    assert cancelled.status == RenderJob.Status.CANCELLED
    assert (failed.status, failed.error_code) == (RenderJob.Status.FAILED, "clip_silent")


def test_message_of_a_row_that_nobody_took_is_sent_again_once(
    sent: list[str],
) -> None:
    old = leases.database_now() - AGO
    job = make_job(segments=2)
    Segment.objects.update(sent_at=old, not_before=old)
    version = make_version(status="pending", sent_at=old, not_before=old)
    export = make_export(status="queued", sent_at=None, not_before=old)

    assert sweep.resend() == 4
    assert sent == [
        "workers.encode_voice_version",
        "workers.render_segments",
        "workers.assemble",
    ]
    for row in (*job.segments.all(), version, export):
        row.refresh_from_db()
        assert row.sent_at is not None and row.sent_at > old
    assert sweep.resend() == 0


def test_row_that_waits_for_its_voice_or_was_sent_lately_is_not_sent(
    sent: list[str],
) -> None:
    make_job(version=make_version(status="pending"))
    make_job()
    VoiceVersion.objects.update(sent_at=leases.database_now())
    ready = RenderJob.objects.filter(voices__version__status="ready")
    waiting = RenderJob.objects.filter(voices__version__status="pending")
    Segment.objects.filter(job__in=ready).update(sent_at=leases.database_now())
    Segment.objects.filter(job__in=waiting).update(not_before=leases.database_now() - AGO)

    assert sweep.resend() == 0
    assert sent == []


def test_resending_stops_at_the_first_message_that_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[str] = []

    def away(task: str, queue: str) -> bool:
        tries.append(task)
        return False

    monkeypatch.setattr(work, "_send", away)
    old = leases.database_now() - AGO
    for _ in range(3):
        make_version(status="pending", sent_at=old, not_before=old)

    assert sweep.resend() == 0
    assert len(tries) == 1


def test_old_temporary_files_go_and_young_ones_stay(tmp_path: Path) -> None:
    for name in ("old.part", "young.part", "old.flac", "folder.part/inside", "busy.part/inside"):
        path = tmp_path / "deep" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    for name in ("old.part", "old.flac", "folder.part/inside", "folder.part", "busy.part"):
        os.utime(tmp_path / "deep" / name, (0, 0))

    assert sweep.remove_old_temporaries(tmp_path) == 2

    left = sorted(path.name for path in (tmp_path / "deep").iterdir())
    assert left == ["busy.part", "old.flac", "young.part"]


def test_leftovers_are_removed_after_their_grace(settings: Settings) -> None:
    unused, young, used = make_stored_clip(), make_stored_clip(), make_version().clips.get().stored
    old = leases.database_now() - AGO
    StoredClip.objects.exclude(pk=young.pk).update(created_at=old)
    eviction = CacheEviction.objects.create(clip_fingerprint="a")
    CacheEviction.objects.update(created_at=old)

    sweep.tidy()

    assert set(StoredClip.objects.values_list("pk", flat=True)) == {young.pk, used.pk}
    assert not CacheEviction.objects.filter(pk=eviction.pk).exists()
    assert not StoredClip.objects.filter(pk=unused.pk).exists()


@pytest.mark.parametrize("keep", [True, False])
def test_clip_of_an_ended_job_is_kept_only_if_that_is_wanted(
    settings: Settings, keep: bool
) -> None:
    settings.KEEP_INLINE_REFERENCES = keep
    make_job(version=make_version(), status="succeeded")
    make_job(version=make_version())
    make_job(voice=make_voice(), status="succeeded")
    sweep.tidy()
    assert ReferenceClip.objects.count() == (3 if keep else 2)
    assert StoredClip.objects.count() == (3 if keep else 2)


def make_status(name: str, *, seen_ago: float, **fields: object) -> WorkerStatus:
    now = leases.database_now()
    values: dict[str, object] = {"role": "gpu", "state": "ready", "started_at": now}
    seen = now - dt.timedelta(seconds=seen_ago)
    return WorkerStatus.objects.create(name=name, last_seen_at=seen, **(values | fields))


def test_worker_that_fell_silent_is_not_shown_as_running(settings: Settings) -> None:
    settings.LEASE_SECONDS = 1
    silent = make_status("silent", seen_ago=11)
    living = make_status("living", seen_ago=1)
    failed = make_status("failed", seen_ago=11, state="failed", detail="No checkpoint.")

    sweep.tidy()

    for row in (silent, living, failed):
        row.refresh_from_db()
    assert (silent.state, living.state, failed.state) == ("stopped", "ready", "failed")
    assert failed.detail == "No checkpoint."


def test_voice_of_an_old_codec_is_encoded_again(sent: list[str]) -> None:
    make_voice()
    assert sweep.reopen_stale("me", CODEC_FINGERPRINT) == 0
    assert sweep.reopen_stale("me", "n" * 64) == 1
    assert VoiceVersion.objects.get().status == "pending"


@pytest.mark.parametrize(("seen_ago", "count"), [(0.0, 0), (600.0, 1)])
def test_workers_of_two_checkpoints_do_not_undo_each_other(
    sent: list[str], seen_ago: float, count: int
) -> None:
    make_voice()
    make_status("old", seen_ago=seen_ago, codec_fingerprint=CODEC_FINGERPRINT)
    assert sweep.reopen_stale("me", "n" * 64) == count
