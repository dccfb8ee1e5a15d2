"""A job's file is the join of its takes with their pauses; it waits for what is missing."""

from __future__ import annotations

import errno
import hashlib
import threading
import uuid
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
from django.core.files.storage import default_storage
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

from synth.audio.writers import FileTooLongError
from synth.contract import AudioArray
from synth.models import Export, RenderJob, Segment, Take
from synth.transitions.claims import claim_segments
from synth.transitions.files import finish_exports
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import fail_segment, finish_segments
from tests.factories import CODEC_FINGERPRINT, finish_segment, make_job, make_voice
from tests.workers.conftest import WAIT_SECONDS, MiniatureProcess
from tests.workers.rendering.takes_support import render_with, rendered, save_take
from ttsweb.work import Kind
from workers import assemble as assemble_module
from workers.audio import mastering
from workers.process.claiming import take_exports

pytestmark = pytest.mark.django_db(transaction=True)
RATE = 8_000


def steady(level: float, rate: int = RATE) -> AudioArray:
    """Return half a second of one value."""
    return np.full(rate // 2, level, dtype=np.float32)


def render_all(*levels: float, rate: int = RATE) -> None:
    """Finish queued segments, each with a constant sound of its own."""
    render_with([steady(level, rate) for level in levels], rate=rate)


def take_of(level: float) -> Take:
    return save_take(f"{level:064.2f}", rendered(steady(level), rate=RATE))


@pytest.fixture
def job() -> RenderJob:
    """A job of three segments, all rendered, whose file is to be made."""
    made = make_job(segments=3, format="wav")
    Segment.objects.update(pause_after_ms=250)
    render_all(0.1, 0.2, 0.3)
    return made


def assemble(process: MiniatureProcess, *jobs: RenderJob) -> Export:
    """Make the files that wait; return one, with all jobs refreshed."""
    take_exports(process)
    process.run_all()
    for job in jobs:
        job.refresh_from_db()
    return Export.objects.all()[0]


def files_in(settings: Settings) -> list[Path]:
    return [path for path in (settings.STORAGE_DIR / "exports").rglob("*") if path.is_file()]


def test_file_is_the_takes_with_their_pauses(process: MiniatureProcess, job: RenderJob) -> None:
    export = assemble(process, job)
    content = Path(default_storage.path(export.key)).read_bytes()
    samples, rate = soundfile.read(default_storage.path(export.key), dtype="float32")
    expected = np.concatenate([np.r_[np.full(4_000, x), np.zeros(2_000)] for x in (0.1, 0.2, 0.3)])
    assert rate == RATE
    assert np.allclose(samples, expected, atol=2**-15)
    assert export.status == "done"
    assert (export.size_bytes, export.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert (export.duration_seconds, job.audio_seconds) == (2.25, 2.25)
    assert job.status == RenderJob.Status.SUCCEEDED


@pytest.mark.parametrize("speed", [0.25, 0.8, 2.0, 4.0])
def test_speed_changes_the_length_of_the_file_and_renders_nothing_again(
    process: MiniatureProcess, job: RenderJob, speed: float
) -> None:
    RenderJob.objects.update(speed=speed)
    takes = set(Take.objects.values_list("pk", "audio_key"))
    export = assemble(process, job)
    samples, rate = soundfile.read(default_storage.path(export.key))
    assert len(samples) / rate == pytest.approx(2.25 / speed)
    assert export.duration_seconds == job.audio_seconds == pytest.approx(len(samples) / rate)
    assert set(Take.objects.values_list("pk", "audio_key")) == takes
    assert job.segments_done == 3


def test_failed_segment_is_left_out_and_the_job_is_partial(process: MiniatureProcess) -> None:
    job = make_job(segments=2, format="flac")
    first, second = claim_segments(worker="gpu", limit=2, codec_fingerprint=CODEC_FINGERPRINT)
    fail_segment(first, code="bad", message="It is bad.")
    finish_segment(second, take_of(0.1))
    export = assemble(process, job)
    assert job.status == RenderJob.Status.PARTIAL
    assert export.duration_seconds == pytest.approx(0.8)


@pytest.mark.parametrize("damage", ["missing", "cut"])
def test_take_without_sound_audio_is_rendered_again_before_the_file_is_made(
    process: MiniatureProcess, job: RenderJob, damage: str
) -> None:
    path = Path(default_storage.path(Take.objects.order_by("created_at")[1].audio_key))
    path.unlink() if damage == "missing" else path.write_bytes(b"no flac at all")
    export = assemble(process)
    assert export.status == "queued"
    assert [segment.index for segment in Segment.objects.exclude(status="done")] == [1]
    assert assemble(process).status == "queued", "the file was made without the open segment"
    render_all(0.2)
    Export.objects.update(not_before=export.created_at)
    export = assemble(process, job)
    assert job.status == RenderJob.Status.SUCCEEDED
    assert (job.segments_done, export.duration_seconds) == (3, 2.25)


def test_takes_of_different_rates_are_not_joined(process: MiniatureProcess) -> None:
    job = make_job(segments=2)
    render_all(0.1)
    render_all(0.2, rate=16_000)
    assemble(process, job)
    assert (job.status, job.error_code) == (RenderJob.Status.FAILED, "mixed_sample_rates")


def test_error_fails_the_job_after_some_tries_or_at_once_and_a_full_disk_spends_none(
    process: MiniatureProcess, job: RenderJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        assemble_module, "make_file", Mock(side_effect=OSError(errno.ENOSPC, "full"))
    )
    export = assemble(process, job)
    assert (export.status, export.attempts, job.status) == ("queued", 0, "running")
    assert not process.may_claim
    assert list(process.scratch.iterdir()) == []
    process._paused_until = 0.0
    monkeypatch.setattr(assemble_module, "make_file", Mock(side_effect=RuntimeError("surprise")))
    for _ in range(3):
        Export.objects.update(not_before=export.created_at)
        assert job.status == RenderJob.Status.RUNNING
        assemble(process, job)
    assert (job.status, job.error_code) == (RenderJob.Status.FAILED, "unexpected_error")


def test_file_that_its_format_cannot_hold_fails_with_a_sentence(
    process: MiniatureProcess, job: RenderJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = FileTooLongError("Too long: choose flac.")
    monkeypatch.setattr(mastering, "open_writer", Mock(side_effect=error))
    assemble(process, job)
    assert (job.error_code, job.error_message) == ("file_too_long", "Too long: choose flac.")


def test_file_of_a_job_cancelled_meanwhile_is_removed(
    process: MiniatureProcess, job: RenderJob, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = mastering.make_file

    def cancel_then_make(*arguments: Any, **options: Any) -> object:
        cancel_job(job.pk)
        return make(*arguments, **options)

    monkeypatch.setattr(assemble_module, "make_file", cancel_then_make)
    take_exports(process)
    process.run_all()
    job.refresh_from_db()
    assert (job.status, files_in(settings)) == (RenderJob.Status.CANCELLED, [])


def test_long_take_goes_in_blocks(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mastering, "BLOCK_SAMPLES", 1_000)
    make_job(segments=1, format="flac")
    render_all(0.4)
    assert assemble(process).duration_seconds == pytest.approx(0.8)


def short_jobs(count: int, **fields: Any) -> list[RenderJob]:
    voice = make_voice()
    jobs = [make_job(segments=1, format="wav", voice=voice, **fields) for _ in range(count)]
    render_all(*[0.1] * count)
    return jobs


def ends_of(jobs: list[RenderJob]) -> list[str]:
    ends = {job.pk: job.status for job in RenderJob.objects.all()}
    return [ends[job.pk] for job in jobs]


def commits(queries: CaptureQueriesContext) -> int:
    return sum(one["sql"] == "COMMIT" for one in queries.captured_queries)


def test_short_files_are_made_with_few_queries_and_one_commit(process: MiniatureProcess) -> None:
    jobs = short_jobs(16, priority=RenderJob.Priority.BULK)
    with CaptureQueriesContext(connection) as queries:
        assert take_exports(process) == 16
        process.run_all()
    assert not RenderJob.objects.exclude(status=RenderJob.Status.SUCCEEDED).exists()
    assert Export.objects.filter(status="done", job__in=jobs).exclude(key="").count() == 16
    assert commits(queries) == 2  # one for all claims, one for all ends
    assert len(queries) <= 16 * 2 + 20


def test_damaged_take_or_lost_claim_holds_up_no_other_file_of_its_run(
    process: MiniatureProcess, settings: Settings
) -> None:
    jobs = short_jobs(4, priority=RenderJob.Priority.BULK)
    lost = take_of(0.3)
    Segment.objects.filter(job=jobs[1]).update(take=lost)
    default_storage.delete(lost.audio_key)
    take_exports(process)
    Export.objects.filter(job=jobs[0]).update(claim_token=uuid.uuid4())
    process.run_all()
    assert ends_of(jobs) == ["running", "running", "succeeded", "succeeded"]
    assert len(files_in(settings)) == 2
    assert Segment.objects.get(job=jobs[1]).status == Segment.Status.QUEUED


def test_job_whose_end_cannot_be_written_holds_up_no_other(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = short_jobs(3, priority=RenderJob.Priority.BULK)
    finish = finish_exports
    bad = Export.objects.get(job=jobs[2]).pk

    def refuse(files: dict[Any, Any]) -> set[Any]:
        if any(claim.pk == bad for claim in files):
            raise RuntimeError("surprise")
        return finish(files)

    monkeypatch.setattr("workers.assemble.finish_exports", refuse)
    take_exports(process)
    process.run_all()

    assert ends_of(jobs) == ["succeeded", "succeeded", "running"]
    assert Export.objects.get(pk=bad).status == Export.Status.QUEUED


def test_file_that_was_tried_before_is_made_alone(process: MiniatureProcess) -> None:
    jobs = short_jobs(3, priority=RenderJob.Priority.BULK)
    Export.objects.filter(job=jobs[0]).update(attempts=1)
    take_exports(process)
    tokens = dict(Export.objects.values_list("job", "claim_token"))
    assert tokens[jobs[0].pk] != tokens[jobs[1].pk] == tokens[jobs[2].pk]


def test_bulk_leaves_a_thread_for_a_file_that_somebody_waits_for(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.process.worker_process.WORKER_THREADS", 2)
    short_jobs(40, priority=RenderJob.Priority.BULK)
    assert take_exports(process) == 16
    assert take_exports(process) == 0
    urgent = short_jobs(1, priority=RenderJob.Priority.INTERACTIVE)
    assert take_exports(process) == 1
    assert Export.objects.get(job=urgent[0]).status == Export.Status.CLAIMED


def test_urgent_file_goes_before_bulk_that_waits_longer(process: MiniatureProcess) -> None:
    bulk = short_jobs(2, priority=RenderJob.Priority.BULK)
    urgent = short_jobs(1, priority=RenderJob.Priority.INTERACTIVE)
    take_exports(process)
    process.run_next()
    assert ends_of([*urgent, *bulk]) == ["succeeded", "running", "running"]


def test_bulk_file_waits_until_what_is_urgent_has_ended(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble_module, "URGENT_SECONDS", 600.0)
    urgent = process.held.add(Kind.SEGMENT, 1, uuid.uuid4(), priority=0)
    bulk = process.held.add(Kind.EXPORT, uuid.uuid4(), uuid.uuid4(), priority=10)
    waiting = threading.Thread(target=assemble_module.let_urgent_pass, args=(process, bulk))
    waiting.start()
    assert waiting.is_alive()
    process.held.drop(urgent)
    waiting.join(WAIT_SECONDS)
    assert not waiting.is_alive()


def test_many_jobs_that_end_together_get_their_files_with_one_commit() -> None:
    voice = make_voice()
    for _ in range(8):
        make_job(segments=1, voice=voice)
    claims = claim_segments(worker="gpu", limit=8, codec_fingerprint=CODEC_FINGERPRINT)
    take = take_of(0.1)
    with CaptureQueriesContext(connection) as queries:
        finish_segments([(claim, take) for claim in claims])
    assert Export.objects.filter(status="queued").exclude(sent_at=None).count() == 8
    assert commits(queries) == 1
