"""A claimed segment ends with one take, with a sentence, or back in the queue; never twice."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
from django.core.files.storage import default_storage
from django.db.models import Q

from synth.contract import FinishReason, SegmentAudio, Timings
from synth.engine.errors import DeviceOutOfMemoryError, PromptTooLongError
from synth.jobs.removal import delete_job
from synth.models import RenderJob, Segment, Take
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import free_lost_segments
from tests.factories import make_segment, stored
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import submit
from tests.workers.rendering.takes_support import save_take, stored_files
from ttsweb.work import Kind
from voices.models import ClipCodes, Voice, VoiceVersion
from voices.objects import delete_voice
from workers.process.claiming import take_segments, take_work
from workers.process.held_claims import HeldClaim
from workers.process.pump import stop_unwanted
from workers.rendering.codes import unpack_codes
from workers.site import segments as takes_module
from workers.site.segments import (
    NotFiniteAudioError,
    add_takes,
    drop_unused_take,
    find_takes,
    store_take,
)

pytestmark = pytest.mark.django_db
THREE = "Ox.\n\nOx two.\n\nOx three."


def one_segment() -> Segment:
    return Segment.objects.get()


def test_segment_ends_with_a_take_and_its_objects(process: MiniatureProcess, ready: Voice) -> None:
    job = submit(ready, text="Ox.")

    process.render_all()

    take = Take.objects.get()
    audio, rate = soundfile.read(default_storage.open(take.audio_key), dtype="float32")
    info = soundfile.info(default_storage.path(take.audio_key))
    content = default_storage.open(take.codes_key).read()
    codes = unpack_codes(content, {"content_key": take.content_key})
    assert stored(one_segment(), "status", "take", "claimed_by") == ("done", take, "mini")
    assert codes.shape == (10, take.frames)
    assert (rate, info.channels, info.subtype) == (take.sample_rate, 1, "PCM_24")
    assert len(audio) == round(take.audio_seconds * rate)
    assert stored(job, "status", "segments_done") == (RenderJob.Status.RUNNING, 1)
    assert len(process.held) == 0


def test_same_request_again_is_not_rendered_again_and_another_seed_is_another_take(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(ready, text="Ox.")
    submit(ready, text="Ox.", seed=1)
    process.render_all()
    submit(ready, text="Ox.")

    monkeypatch.setattr(process.host.engine, "submit", None)
    process.render_all()

    assert Take.objects.count() == 2
    assert set(Segment.objects.values_list("status", flat=True)) == {"done"}


def test_take_whose_audio_is_gone_is_rendered_again_for_all_who_have_it(
    process: MiniatureProcess, ready: Voice
) -> None:
    submit(ready, text="Ox.")
    process.render_all()
    default_storage.delete(Take.objects.get().audio_key)
    submit(ready, text="Ox.")

    process.render_all()

    take = Take.objects.get()
    assert default_storage.exists(take.audio_key)
    assert take.segments.count() == 2


def test_same_text_rendered_twice_at_once_gives_one_take_and_no_waste(
    process: MiniatureProcess, ready: Voice
) -> None:
    job = submit(ready, text="Ox.\n\nOx.\n\nOx.")

    process.render_all()
    process.render_all()  # those that waited for it

    assert stored(job, "takes_rendered", "takes_reused") == (1, 2)
    assert Take.objects.get().segments.count() == 3
    assert len(stored_files("takes")) == 2


def fail_with(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(takes_module, "store_take", Mock(side_effect=error))


def test_error_of_the_text_fails_at_once_with_its_sentence(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(ready, text="Ox.")
    error = PromptTooLongError(positions=9, limit=5)
    fail_with(monkeypatch, error)

    process.render_all()

    found = stored(one_segment(), "status", "error_code", "error_message")
    assert found == ("failed", "prompt_too_long", str(error))
    assert stored(job, "status", "error_code") == (RenderJob.Status.FAILED, "prompt_too_long")


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

    assert stored(one_segment(), "status", "error_code") == ("failed", code)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_outage_spends_no_attempt_and_leaves_no_object(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    submit(ready, text="Ox.")
    monkeypatch.setattr(takes_module, "store_flac", Mock(side_effect=OSError(number, "no")))

    process.render_all()

    assert stored(one_segment(), "status", "attempts") == ("queued", 0)
    assert stored_files("takes") == []
    assert process.may_claim is (number != errno.ENOSPC)


def test_audio_that_is_not_finite_fails_its_segment_alone(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(ready, text=THREE)
    spoiled: list[str] = []

    def spoil_one(key: str, rendered: SegmentAudio, *, decoder: str) -> Take:
        if not spoiled:
            spoiled.append(key)
            rendered = replace(rendered, audio=np.full_like(rendered.audio, np.nan))
        return store_take(key, rendered, decoder=decoder)

    monkeypatch.setattr(takes_module, "store_take", spoil_one)
    process.render_all()

    codes = sorted(job.segments.values_list("status", "error_code"))
    assert codes == [("done", ""), ("done", ""), ("failed", "audio_not_finite")]


def test_row_that_cannot_be_written_fails_alone(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(ready, text=THREE, priority=RenderJob.Priority.BULK)
    refused: list[str] = []

    def refuse_one(takes: list[Take]) -> dict[str, Take]:
        refused[:] = refused or [takes[0].content_key]
        if any(take.content_key == refused[0] for take in takes):
            raise RuntimeError("surprise")
        return add_takes(takes)

    monkeypatch.setattr(takes_module, "add_takes", refuse_one)
    process.render_all()

    statuses = sorted(job.segments.values_list("status", "attempts"))
    assert statuses == [("done", 1), ("done", 1), ("queued", 1)]
    assert len(stored_files("takes")) == 4


def test_claims_that_are_handed_back_while_takes_are_stored_leave_no_objects(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(ready, text=THREE, priority=RenderJob.Priority.BULK)
    made: list[Take] = []

    def store_and_stop(key: str, rendered: SegmentAudio, *, decoder: str) -> Take:
        made.append(store_take(key, rendered, decoder=decoder))
        process.handing_back.set()
        return made[-1]

    monkeypatch.setattr(takes_module, "store_take", store_and_stop)
    take_segments(process)
    while not process.handing_back.is_set():
        process.run_next()

    assert made
    assert not Take.objects.exists()
    assert not stored_files("takes")


def test_job_cancelled_before_its_segment_begins_renders_nothing(
    process: MiniatureProcess, ready: Voice
) -> None:
    job = submit(ready, text="Ox.")
    take_segments(process)
    cancel_job(job.pk)

    process.run_all()

    assert stored(job, "status") == (RenderJob.Status.CANCELLED,)


def begin(process: MiniatureProcess, voice: Voice, *, text: str = "Ox.") -> RenderJob:
    """Return a job whose segment the engine has begun."""
    job = submit(voice, text=text)
    take_segments(process)
    process.run_next()
    return job


def test_claim_that_is_lost_while_it_is_settled_is_held_no_longer(
    process: MiniatureProcess, ready: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(process, ready)
    looks = iter([False])  # lost from the second look on, as another thread may find at any moment
    is_lost = property(lambda _: next(looks, True), lambda *_: None)
    monkeypatch.setattr(HeldClaim, "is_lost", is_lost)

    process.run_next()

    assert len(process.held) == 0


def test_cancelled_job_stops_its_segments_within_moments(
    process: MiniatureProcess, ready: Voice
) -> None:
    job = begin(process, ready, text="x" * 60)
    (claim,) = process.held.of(Kind.SEGMENT)

    cancel_job(job.pk)
    stop_unwanted(process)
    process.run_all()

    assert claim.future is not None and claim.future.cancelled()
    assert stored(one_segment(), "status") == stored(job, "status") == ("cancelled",)
    assert Take.objects.count() == 0


def test_segment_that_another_worker_took_over_is_not_written(
    process: MiniatureProcess, ready: Voice, make_process: Callable[..., MiniatureProcess]
) -> None:
    begin(process, ready)
    free_lost_segments(Q(claim_token__isnull=False))
    other = make_process(name="other")
    take_segments(other)

    process.run_all()
    assert one_segment().status == "claimed"
    other.run_all()

    assert stored(one_segment(), "status", "claimed_by") == ("done", "other")
    assert Take.objects.count() == 1


def test_job_deleted_while_it_is_rendered_leaves_no_objects(
    process: MiniatureProcess, ready: Voice
) -> None:
    job = begin(process, ready)

    delete_job(job)
    process.run_all()

    assert (Take.objects.count(), stored_files("takes")) == (0, [])


def test_segment_being_rendered_when_its_voice_is_deleted_leaves_no_take(
    process: MiniatureProcess, ready: Voice
) -> None:
    begin(process, ready)

    delete_voice(ready)
    process.run_all()

    assert stored(one_segment(), "status", "error_code") == ("failed", "voice_deleted")
    assert not Take.objects.exists()


def test_codes_that_are_gone_are_made_again_and_the_job_waits(
    process: MiniatureProcess, ready: Voice
) -> None:
    ClipCodes.objects.all().delete()
    assert process.codes is not None
    process.codes.cache.evict(VoiceVersion.objects.get().clips.get().stored.fingerprint)
    submit(ready, text="Ox.")

    process.render_all()
    assert stored(one_segment(), "status", "attempts") == ("queued", 0)
    assert VoiceVersion.objects.get().status == "pending"
    Segment.objects.update(not_before=one_segment().job.created_at)
    for _ in range(2):
        take_work(process)
        process.run_all()

    assert one_segment().status == "done"


KEY, OTHER = "a" * 64, "b" * 64
RENDERED = SegmentAudio(
    codes=np.zeros((10, 20), dtype=np.int16),
    audio=np.full(44_100, 0.5, dtype=np.float32),
    sample_rate=44_100,
    finish_reason=FinishReason.END,
    timings=Timings(0.1, 0.2, 0.3, 0.4),
)


def test_take_holds_what_was_rendered() -> None:
    take = save_take(KEY, RENDERED)

    assert (take.frames, take.sample_rate, take.audio_seconds) == (20, 44_100, 1.0)
    assert take.finish_reason == "end"
    assert take.measures["peak_dbfs"] == pytest.approx(-6.02, abs=0.01)
    assert take.measures["codec_seconds"] == 0.4
    assert find_takes([KEY]) == {KEY: take}


def test_take_without_its_audio_is_not_found_and_gets_it_back() -> None:
    first = save_take(KEY, RENDERED)
    default_storage.delete(first.audio_key)
    assert find_takes([KEY]) == {}

    again = save_take(KEY, RENDERED)

    assert again.pk == first.pk
    assert find_takes([KEY]) == {KEY: again}


def test_unused_take_goes_with_its_objects_and_a_used_one_stays() -> None:
    unused, used = save_take(KEY, RENDERED), save_take(OTHER, RENDERED)
    make_segment(take=used)

    for take in (unused, used):
        drop_unused_take(take)

    assert list(Take.objects.all()) == [used]
    assert not default_storage.exists(unused.audio_key)
    assert not default_storage.exists(unused.codes_key)
    assert default_storage.exists(used.audio_key)


def test_of_many_takes_with_one_name_the_first_stays_and_nothing_else() -> None:
    first, other, second = (store_take(key, RENDERED) for key in (KEY, OTHER, KEY))

    found = add_takes([first, other, second])
    later = save_take(KEY, RENDERED)

    assert {key: take.pk for key, take in found.items()} == {KEY: first.pk, OTHER: other.pk}
    assert (later.pk, later.audio_key) == (first.pk, first.audio_key)
    kept = {first.codes_key.rpartition("/")[2], first.audio_key.rpartition("/")[2]}
    assert {path.name for path in stored_files(f"takes/{KEY[:2]}/{KEY}")} == kept
    assert Take.objects.count() == 2


def test_writing_the_same_rows_again_changes_nothing() -> None:
    first = save_take(KEY, RENDERED)
    default_storage.delete(first.audio_key)
    takes = [store_take(KEY, RENDERED), store_take(OTHER, RENDERED)]

    once, again = add_takes(takes), add_takes(takes)

    assert once == again
    assert all(default_storage.exists(take.audio_key) for take in again.values())
    assert again[KEY].pk == first.pk


def test_number_of_queries_does_not_grow_with_the_takes(django_assert_num_queries: Any) -> None:
    for numbers in (range(2), range(10, 30)):
        takes = [store_take(f"{number:064}", RENDERED) for number in numbers]
        with django_assert_num_queries(4):
            add_takes(takes)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_audio_that_is_not_finite_is_refused_before_anything_is_stored(value: float) -> None:
    audio = RENDERED.audio.copy()
    audio[1000] = value

    with pytest.raises(NotFiniteAudioError):
        store_take(KEY, replace(RENDERED, audio=audio))

    assert stored_files("takes") == []


def test_audio_beyond_full_scale_is_cut_to_it() -> None:
    audio = np.linspace(-2, 2, 4410, dtype=np.float32)

    take = save_take(KEY, replace(RENDERED, audio=audio))

    kept, _ = soundfile.read(default_storage.path(take.audio_key), dtype="float32")
    assert np.allclose(kept, np.clip(audio, -1, 1), atol=2**-22)
    assert take.measures["peak_dbfs"] == pytest.approx(6.02, abs=0.01)
