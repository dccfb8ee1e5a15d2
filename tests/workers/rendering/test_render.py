"""A claimed segment ends with one take, with a sentence, or back in the queue; never twice."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.contract import SegmentAudio
from synth.engine.errors import DeviceOutOfMemoryError, PromptTooLongError
from synth.jobs.removal import delete_job
from synth.models import RenderJob, Segment, Take
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import free_lost_segments
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit
from ttsweb.work import Kind
from voices.models import ClipCodes, Voice, VoiceVersion
from voices.removal import delete_voice
from workers.process.claiming import take_segments, take_work
from workers.process.pump import stop_unwanted
from workers.rendering import render as render_module
from workers.rendering import render as takes_module
from workers.rendering.codes import unpack_codes

pytestmark = pytest.mark.django_db(transaction=True)


def render(process: MiniatureProcess) -> None:
    """Render everything that can be claimed."""
    take_segments(process)
    process.run_all()


def one_segment() -> Segment:
    return Segment.objects.get()


def test_segment_ends_with_a_take_and_its_objects(process: MiniatureProcess, ready: Voice) -> None:
    job = submit(ready, text="Ox.")

    render(process)

    segment, take = one_segment(), Take.objects.get()
    audio, rate = soundfile.read(default_storage.open(take.audio_key), dtype="float32")
    info = soundfile.info(default_storage.path(take.audio_key))
    codes = unpack_codes(
        default_storage.open(take.codes_key).read(), {"content_key": take.content_key}
    )
    assert (segment.status, segment.take, segment.claimed_by) == ("done", take, "mini")
    assert codes.shape == (10, take.frames)
    assert (rate, info.channels, info.subtype) == (take.sample_rate, 1, "PCM_24")
    assert len(audio) == round(take.audio_seconds * rate)
    job.refresh_from_db()
    assert (job.status, job.segments_done) == (RenderJob.Status.RUNNING, 1)
    assert len(process.held) == 0


def test_same_request_again_is_not_rendered_again(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(ready, text="Ox.")
    render(process)
    submit(ready, text="Ox.")

    monkeypatch.setattr(process.host.engine, "submit", None)
    render(process)

    assert Take.objects.count() == 1
    assert set(Segment.objects.values_list("status", flat=True)) == {"done"}


def test_another_seed_is_another_take(process: MiniatureProcess, ready: Voice) -> None:
    submit(ready, text="Ox.")
    submit(ready, text="Ox.", seed=1)

    render(process)

    assert Take.objects.count() == 2


def test_take_whose_audio_is_gone_is_rendered_again_for_all_who_have_it(
    process: MiniatureProcess, ready: Voice
) -> None:
    submit(ready, text="Ox.")
    render(process)
    default_storage.delete(Take.objects.get().audio_key)
    submit(ready, text="Ox.")

    render(process)

    take = Take.objects.get()
    assert default_storage.exists(take.audio_key)
    assert take.segments.count() == 2


def test_same_text_rendered_twice_at_once_gives_one_take_and_no_waste(
    process: MiniatureProcess, ready: Voice, settings: Settings
) -> None:
    job = submit(ready, text="Ox.\n\nOx.\n\nOx.")

    render(process)
    render(process)  # those that waited for it

    job.refresh_from_db()
    assert (job.takes_rendered, job.takes_reused) == (1, 2)
    files = [path for path in (settings.STORAGE_DIR / "takes").rglob("*") if path.is_file()]
    assert Take.objects.count() == 1
    assert Take.objects.get().segments.count() == 3
    assert len(files) == 2


def test_error_of_the_text_fails_at_once_with_its_sentence(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(ready, text="Ox.")
    error = PromptTooLongError(positions=9, limit=5)
    fail_with(monkeypatch, error)

    render(process)

    segment = one_segment()
    job.refresh_from_db()
    assert (segment.status, segment.error_code) == ("failed", "prompt_too_long")
    assert segment.error_message == str(error)
    assert (job.status, job.error_code) == (RenderJob.Status.FAILED, "prompt_too_long")


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(render_module, "store_take", fail)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DeviceOutOfMemoryError("No memory is left."), "out_of_memory"),
        (RuntimeError("surprise"), "unexpected_error"),
    ],
)
def test_error_that_may_pass_is_tried_a_bounded_number_of_times(
    process: MiniatureProcess,
    ready: Voice,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    code: str,
) -> None:
    submit(ready, text="Ox.")
    fail_with(monkeypatch, error)
    start = one_segment().not_before

    for attempt in (1, 2, 3):
        Segment.objects.update(not_before=start)
        take_work(process)
        process.run_all()
        assert one_segment().attempts == attempt

    assert (one_segment().status, one_segment().error_code) == ("failed", code)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_outage_spends_no_attempt_and_leaves_no_object(
    process: MiniatureProcess,
    ready: Voice,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    submit(ready, text="Ox.")

    def fail(*arguments: object) -> str:
        raise OSError(number, "no")

    monkeypatch.setattr(takes_module, "store_flac", fail)
    render(process)

    files = [path for path in (settings.STORAGE_DIR / "takes").rglob("*") if path.is_file()]
    assert (one_segment().status, one_segment().attempts) == ("queued", 0)
    assert files == []
    assert process.may_claim is (number != errno.ENOSPC)


def test_audio_that_is_not_finite_fails_its_segment_alone(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(ready, text="Ox.\n\nOx two.\n\nOx three.")
    store = takes_module.store_take
    spoiled: list[str] = []

    def spoil_one(key: str, rendered: SegmentAudio) -> Take:
        if not spoiled:
            spoiled.append(key)
            rendered = replace(rendered, audio=np.full_like(rendered.audio, np.nan))
        return store(key, rendered)

    monkeypatch.setattr(render_module, "store_take", spoil_one)
    render(process)

    codes = sorted(job.segments.values_list("status", "error_code"))
    assert codes == [("done", ""), ("done", ""), ("failed", "audio_not_finite")]


def test_row_that_cannot_be_written_fails_alone(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(ready, text="Ox.\n\nOx two.\n\nOx three.", priority=RenderJob.Priority.BULK)
    add = takes_module.add_takes
    refused: list[str] = []

    def refuse_one(stored: list[Take]) -> dict[str, Take]:
        refused[:] = refused or [stored[0].content_key]
        if any(take.content_key == refused[0] for take in stored):
            raise RuntimeError("surprise")
        return add(stored)

    monkeypatch.setattr(render_module, "add_takes", refuse_one)
    render(process)

    statuses = sorted(job.segments.values_list("status", "attempts"))
    files = [path for path in default_storage_folder("takes").rglob("*") if path.is_file()]
    assert statuses == [("done", 1), ("done", 1), ("queued", 1)]
    assert len(files) == 4


def test_claims_that_are_handed_back_while_takes_are_stored_leave_no_objects(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(ready, text="Ox.\n\nOx two.\n\nOx three.", priority=RenderJob.Priority.BULK)
    store = takes_module.store_take
    stored: list[Take] = []

    def store_and_stop(key: str, rendered: SegmentAudio) -> Take:
        stored.append(store(key, rendered))
        process.handing_back.set()
        return stored[-1]

    monkeypatch.setattr(render_module, "store_take", store_and_stop)
    take_segments(process)
    while not process.handing_back.is_set():
        process.run_next()

    assert stored
    assert not Take.objects.exists()
    assert not [path for path in default_storage_folder("takes").rglob("*") if path.is_file()]


def default_storage_folder(name: str) -> Path:
    return Path(default_storage.path(name))


def test_cancelled_job_stops_its_segments_within_moments(
    process: MiniatureProcess, ready: Voice
) -> None:
    job = submit(ready, text="x" * 60)
    take_segments(process)
    process.run_next()
    (claim,) = process.held.of(Kind.SEGMENT)

    cancel_job(job.pk)
    stop_unwanted(process)
    process.run_all()

    job.refresh_from_db()
    assert claim.future is not None and claim.future.cancelled()
    assert one_segment().status == "cancelled"
    assert job.status == RenderJob.Status.CANCELLED
    assert Take.objects.count() == 0


def test_job_cancelled_before_its_segment_begins_renders_nothing(
    process: MiniatureProcess, ready: Voice
) -> None:
    job = submit(ready, text="Ox.")
    take_segments(process)
    cancel_job(job.pk)

    process.run_all()

    job.refresh_from_db()
    assert job.status == RenderJob.Status.CANCELLED


def test_segment_that_another_worker_took_over_is_not_written(
    process: MiniatureProcess, ready: Voice, make_process: Callable[..., MiniatureProcess]
) -> None:
    submit(ready, text="Ox.")
    take_segments(process)
    process.run_next()
    free_lost_segments(_any_claim())
    other = make_process(name="other")
    take_segments(other)

    process.run_all()
    assert one_segment().status == "claimed"
    other.run_all()

    assert (one_segment().status, one_segment().claimed_by) == ("done", "other")
    assert Take.objects.count() == 1


def _any_claim() -> Any:
    from django.db.models import Q

    return Q(claim_token__isnull=False)


def test_job_deleted_while_it_is_rendered_leaves_no_objects(
    process: MiniatureProcess, ready: Voice, settings: Settings
) -> None:
    job = submit(ready, text="Ox.")
    take_segments(process)
    process.run_next()

    delete_job(job)
    process.run_all()

    files = [path for path in (settings.STORAGE_DIR / "takes").rglob("*") if path.is_file()]
    assert Take.objects.count() == 0
    assert files == []


def test_codes_that_are_gone_are_made_again_and_the_job_waits(
    process: MiniatureProcess, ready: Voice
) -> None:
    ClipCodes.objects.all().delete()
    assert process.codes is not None
    process.codes.cache.evict(VoiceVersion.objects.get().clips.get().stored.fingerprint)
    submit(ready, text="Ox.")

    render(process)
    assert (one_segment().status, one_segment().attempts) == ("queued", 0)
    assert VoiceVersion.objects.get().status == "pending"
    Segment.objects.update(not_before=one_segment().job.created_at)
    for _ in range(2):
        take_work(process)
        process.run_all()

    assert one_segment().status == "done"


def test_segment_being_rendered_when_its_voice_is_deleted_leaves_no_take(
    process: MiniatureProcess, ready: Voice
) -> None:
    submit(ready, text="Ox.")
    take_segments(process)
    process.run_next()

    delete_voice(ready)
    process.run_all()

    assert (one_segment().status, one_segment().error_code) == ("failed", "voice_deleted")
    assert not Take.objects.exists()
