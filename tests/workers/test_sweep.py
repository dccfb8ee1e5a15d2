"""The sweep frees what was lost, deletes what is over, and lets everything else be."""

from __future__ import annotations

import datetime as dt
import os
import time
import uuid
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.jobs.removal import lock_jobs
from synth.models import Batch, Export, RenderJob, Segment, SweepTurn, Take, WorkerStatus
from tests.factories import (
    CODEC_FINGERPRINT,
    make_batch,
    make_ended_job,
    make_export,
    make_job,
    make_segment,
    make_stored_clip,
    make_user,
    make_version,
    make_voice,
    make_worker,
)
from ttsweb import leases, work
from voices.models import CacheEviction, ClipCodes, ReferenceClip, StoredClip, VoiceVersion
from workers import sweep
from workers.kinds import take_turn

pytestmark = pytest.mark.django_db(transaction=True)
AGO, SECOND = dt.timedelta(hours=2), dt.timedelta(seconds=1)


def claimed(*, hours: float = 0.0, **fields: Any) -> dict[str, Any]:
    """Return the columns of a claim whose lease has just ended, or lasts so long."""
    until = leases.database_now() - SECOND + dt.timedelta(hours=hours)
    claim = {"claimed_by": "dead", "claim_token": uuid.uuid4(), "lease_until": until}
    return claim | {"attempts": 1} | fields


def refreshed(*rows: Any) -> Any:
    for row in rows:
        row.refresh_from_db()
    return rows if len(rows) > 1 else rows[0]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    messages: list[str] = []

    def note(task: str, queue: str) -> bool:
        messages.append(task)
        return True

    monkeypatch.setattr(work, "_send", note)
    return messages


def test_of_two_sweeps_at_once_one_does_the_round_and_a_turn_comes_again_by_its_row() -> None:
    assert take_turn("sweep", seconds=0.01) is not None
    time.sleep(0.02)
    overdue = take_turn("sweep", seconds=10)
    assert overdue is not None and overdue < dt.timedelta(seconds=5)
    assert take_turn("sweep", seconds=10) is None


def test_living_workers_may_renew_first_after_a_time_without_sweeps() -> None:
    sweep.start_clock()  # an outage before the first round of all is seen too
    SweepTurn.objects.update(next_at=leases.database_now() - AGO)
    segment = make_segment(**claimed(status="claimed"))
    sweep.start_clock()  # a second worker starts
    for status in ("claimed", "queued"):
        assert sweep.sweep_if_due()
        assert refreshed(segment).status == status
        SweepTurn.objects.update(next_at=leases.database_now())


def test_clock_that_jumps_within_a_round_loses_no_living_claim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segment = make_segment(**claimed(hours=1, status="claimed"))
    now = leases.database_now

    def jump_after(name: str, *, seconds: float) -> dt.timedelta | None:
        overdue = take_turn(name, seconds=seconds)
        if name == sweep.SWEEP:
            monkeypatch.setattr(leases, "database_now", lambda: now() + AGO)
        return overdue

    monkeypatch.setattr(sweep, "take_turn", jump_after)
    assert sweep.sweep_if_due()
    assert refreshed(segment).status == "claimed"


def test_expired_claims_are_freed_and_living_ones_are_not() -> None:
    lost = make_segment(**claimed(status="claimed"))
    held = make_segment(**claimed(hours=1, status="claimed"))
    version = make_version(status="encoding", **claimed())
    export = make_export(status="claimed", **claimed())
    last = make_segment(**claimed(status="claimed", losses=4))
    assert sweep.sweep_if_due()
    rows = refreshed(lost, version, export, held)
    found = [(row.status, row.attempts, row.losses) for row in rows]
    assert found == [("queued", 0, 1), ("pending", 0, 1), ("queued", 0, 1), ("claimed", 1, 0)]
    assert (refreshed(last).status, last.error_code) == ("failed", "worker_lost")
    assert "log" in last.error_message


def test_restarted_worker_frees_its_own_claims_and_nobody_elses() -> None:
    own = make_segment(**claimed(hours=1, status="claimed"))
    other = make_segment(**claimed(hours=1, status="claimed", claimed_by="other"))
    codes = ClipCodes.objects.create(
        clip=make_stored_clip(), codec_fingerprint="c", **claimed(hours=1)
    )
    sweep.free_own("dead")
    refreshed(own, other, codes)
    assert (own.status, other.status, codes.claim_token) == ("queued", "claimed", None)


def test_job_that_was_cancelled_or_whose_version_failed_unseen_ends() -> None:
    cancelled = make_job(cancel_requested=True)
    version = make_version(status="failed", error_code="clip_silent", error_message="Silent.")
    failed = make_job(version=version)
    sweep.sweep_if_due()
    assert refreshed(cancelled).status == RenderJob.Status.CANCELLED
    assert (refreshed(failed).status, failed.error_code) == ("failed", "clip_silent")


def test_message_of_a_row_that_nobody_took_is_sent_again_once(sent: list[str]) -> None:
    old = leases.database_now() - AGO
    job = make_job(segments=2)
    Segment.objects.update(sent_at=old, not_before=old)
    version = make_version(status="pending", sent_at=old, not_before=old)
    export = make_export(status="queued", sent_at=None, not_before=old)
    assert sweep.resend() == 4
    assert sent == ["workers.encode_voice_version", "workers.render_segments", "workers.assemble"]
    rows = refreshed(*job.segments.all(), version, export)
    assert all(row.sent_at is not None and row.sent_at > old for row in rows)
    assert sweep.resend() == 0


def test_row_that_waits_for_its_voice_or_was_sent_lately_is_not_sent(sent: list[str]) -> None:
    make_job(version=make_version(status="pending"))
    make_job()
    VoiceVersion.objects.update(sent_at=leases.database_now())
    ready = RenderJob.objects.filter(voices__version__status="ready")
    waiting = RenderJob.objects.filter(voices__version__status="pending")
    Segment.objects.filter(job__in=ready).update(sent_at=leases.database_now())
    Segment.objects.filter(job__in=waiting).update(not_before=leases.database_now() - AGO)
    assert (sweep.resend(), sent) == (0, [])


def test_resending_stops_at_the_first_failed_message(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []
    # What `append` returns is false.
    monkeypatch.setattr(work, "_send", lambda task, queue: tries.append(task))
    old = leases.database_now() - AGO
    for _ in range(3):
        make_version(status="pending", sent_at=old, not_before=old)
    assert (sweep.resend(), len(tries)) == (0, 1)


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
    make_stored_clip()
    young, used = make_stored_clip(), make_version().clips.get().stored
    old = leases.database_now() - AGO
    StoredClip.objects.exclude(pk=young.pk).update(created_at=old)
    eviction = CacheEviction.objects.create(clip_fingerprint="a")
    CacheEviction.objects.update(created_at=old)
    sweep.tidy()
    assert set(StoredClip.objects.values_list("pk", flat=True)) == {young.pk, used.pk}
    assert not CacheEviction.objects.filter(pk=eviction.pk).exists()


@pytest.mark.parametrize("keep", [True, False])
def test_clip_of_an_ended_job_is_kept_only_if_wanted(settings: Settings, keep: bool) -> None:
    settings.KEEP_INLINE_REFERENCES = keep
    make_job(version=make_version(), status="succeeded")
    make_job(version=make_version())
    make_job(voice=make_voice(), status="succeeded")
    sweep.tidy()
    assert ReferenceClip.objects.count() == (3 if keep else 2)
    assert StoredClip.objects.count() == (3 if keep else 2)


def test_rows_of_workers_that_never_come_back_go_after_a_day() -> None:
    day = 24 * 3600
    engine = {"engine_class": {"model": "m"}, "state": "stopped"}
    make_worker("pod-1", seconds_ago=3 * day, **engine)
    make_worker("pod-2", seconds_ago=2 * day, **engine)  # the last one with an engine
    make_worker("pod-3", seconds_ago=2 * day, role="cpu")  # silent, and said nothing at its end
    make_worker("pod-4", seconds_ago=day / 2, role="cpu", state="stopped")
    make_worker("pod-5", role="cpu")

    sweep.tidy()

    names = WorkerStatus.objects.values_list("name", flat=True)
    assert set(names) == {"pod-2", "pod-4", "pod-5"}


def test_worker_that_fell_silent_is_not_shown_as_running(settings: Settings) -> None:
    settings.LEASE_SECONDS = 1
    silent, living = make_worker("silent", seconds_ago=11), make_worker("living", seconds_ago=1)
    failed = make_worker("failed", seconds_ago=11, state="failed", detail="No checkpoint.")
    sweep.tidy()
    refreshed(silent, living, failed)
    assert (silent.state, living.state, failed.state) == ("stopped", "ready", "failed")
    assert failed.detail == "No checkpoint."


def test_voice_of_an_old_codec_is_encoded_again(sent: list[str]) -> None:
    make_voice()
    assert sweep.reopen_stale("me", CODEC_FINGERPRINT) == 0
    assert sweep.reopen_stale("me", "n" * 64) == 1
    assert VoiceVersion.objects.get().status == "pending"


@pytest.mark.parametrize(
    ("state", "seen_ago", "count"),
    [
        ("ready", 0.0, 0),
        ("ready", 600.0, 1),
        ("unloaded", 0.0, 0),
        ("warming", 0.0, 0),  # it loads for what waits for it
        ("stopped", 0.0, 1),
        ("failed", 0.0, 1),
    ],
)
def test_two_checkpoints_do_not_fight(
    sent: list[str], state: str, seen_ago: float, count: int
) -> None:
    make_voice()
    codec = {"codec_fingerprint": CODEC_FINGERPRINT}
    make_worker("old", seconds_ago=seen_ago, state=state, **codec)
    assert sweep.reopen_stale("me", "n" * 64) == count


pytestmark = pytest.mark.django_db(transaction=True)


def expired(**fields: Any) -> RenderJob:
    return make_ended_job(expires_at=leases.database_now() - SECOND, **fields)


def test_expired_job_goes_with_its_file_and_the_takes_that_no_other_job_uses() -> None:
    job, sharing, other = expired(), expired(), make_ended_job()
    other.segments.update(take=sharing.segments.get().take)
    take, path = job.segments.get().take, Path(default_storage.path(job.exports.get().key))
    assert sweep.delete_expired_jobs() == 2
    assert RenderJob.objects.get() == other
    assert Export.objects.get().job == other
    assert Take.objects.filter(segments__job=other).exists()
    assert take is not None and not Take.objects.filter(pk=take.pk).exists()
    assert not path.exists()


@pytest.mark.parametrize(
    ("status", "moment"),
    [("succeeded", None), ("succeeded", dt.timedelta(hours=1)), ("running", -SECOND)],
)
def test_job_whose_time_is_not_over_or_reopened_stays(
    status: str, moment: dt.timedelta | None
) -> None:
    make_ended_job(status=status, expires_at=moment and leases.database_now() + moment)
    assert sweep.delete_expired_jobs() == 0
    assert RenderJob.objects.exists()


def test_round_is_bounded_in_number_and_in_time_and_the_longest_overdue_goes_first() -> None:
    now = leases.database_now()
    jobs = [make_ended_job(expires_at=now - n * SECOND) for n in (1, 3, 2, 4, 5)]
    assert sweep.delete_expired_jobs(most=2) == 2
    assert sweep.delete_expired_jobs(within_seconds=0.0) == 1
    assert set(RenderJob.objects.values_list("pk", flat=True)) == {jobs[0].pk, jobs[2].pk}
    for _ in range(2):
        assert sweep.sweep_if_due()
        assert not RenderJob.objects.exists()
        SweepTurn.objects.update(next_at=leases.database_now())


@pytest.mark.parametrize("change", ["retried", "kept", "deleted"])
def test_job_that_changes_in_the_moment_of_its_deletion_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    expired()
    changes: dict[str, Any] = {
        "retried": {"status": "queued", "expires_at": None},
        "kept": {"expires_at": None},
    }

    def change_then_lock(rows: Any) -> Any:
        job = RenderJob.objects.all()
        job.update(**changes[change]) if change in changes else job.delete()
        return lock_jobs(rows)

    monkeypatch.setattr(sweep, "lock_jobs", change_then_lock)
    assert sweep.delete_expired_jobs() == 0
    assert RenderJob.objects.exists() == (change != "deleted")


def test_items_go_with_their_batch_and_not_before() -> None:
    past = leases.database_now() - SECOND
    batch = make_batch(status="failed", items=0)
    items = [make_ended_job(batch=batch, item_index=index, expires_at=past) for index in range(3)]
    key = default_storage.save("exports/batch.zip", default_storage.open(_key(items[0])))
    make_export(batch=batch, key=key)
    paths = [Path(default_storage.path(one)) for one in [key, *map(_key, items)]]
    assert sweep.delete_expired_jobs() == 0
    Batch.objects.filter(pk=batch.pk).update(expires_at=past)
    assert sweep.delete_expired_jobs() == 1
    assert not Batch.objects.exists() and not RenderJob.objects.exists()
    assert not any(path.exists() for path in paths)


def _key(job: RenderJob) -> str:
    return str(job.exports.get().key)


def test_end_of_a_jobs_time_is_shown_and_a_download_goes_on_to_its_end() -> None:
    owner = make_user()
    job = expired(owner=owner)
    client = APIClient()
    client.force_authenticate(owner)
    shown = client.get(f"/api/v1/jobs/{job.pk}").json()["expires_at"]
    answer: Any = client.get(f"/api/v1/jobs/{job.pk}/audio")
    sweep.delete_expired_jobs()
    assert dt.datetime.fromisoformat(shown) == job.expires_at
    assert b"".join(answer.streaming_content) == b"0123456789"
    assert client.get(f"/api/v1/jobs/{job.pk}/audio").status_code == 404
