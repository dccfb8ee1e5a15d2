"""Voices over their whole life, with real workers: encoded once, found again, let go of."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import IO

import numpy as np
import pytest

from synth.jobs.removal import delete_job
from synth.models import RenderJob, Segment, Take, WorkerStatus
from synth.transitions.jobs import cancel_job
from tests.factories import make_user
from tests.workers.clips import wav_bytes
from tests.workers.pairs import (
    Pair,
    RunningWorker,
    assert_whole,
    counter,
    new_voice,
    submit,
    wait_all_slots_busy,
    wait_encoded,
    wait_ended,
    wait_for,
)
from voices.models import ClipCodes, StoredClip, Voice, VoiceVersion
from voices.objects import delete_voice
from voices.portable import export_voice, import_voice
from voices.submit import NewClip, update_voice


def objects(pair: Pair, *folders: str) -> list[str]:
    """Return the objects in some folders of the storage."""
    storage = pair.data_dir / "storage"
    found = [path for name in folders for path in (storage / name).rglob("*.*")]
    return sorted(str(path.relative_to(storage)) for path in found)


def inline(content: bytes | None = None) -> NewClip:
    """Return a clip that comes with a job."""
    return NewClip(transcript="Said in it.", content=content or wav_bytes(seconds=1.5))


def wait_gone(pair: Pair) -> None:
    """Return once no clip that came with a job is left, as a row or as bytes."""
    wait_for(lambda: not StoredClip.objects.exists(), what="the clip's row is gone")
    wait_for(lambda: not objects(pair, "clips", "codes"), what="the clip's bytes are gone")


def wait_audio_gone(pair: Pair) -> None:
    """Return once no audio of a clip that came with a job is left; its codes are."""
    wait_for(lambda: not objects(pair, "clips"), what="the clip's audio is gone")
    clip = StoredClip.objects.get()
    assert (clip.original_key, clip.used_key) == ("", "")
    assert len(objects(pair, "codes")) == 1


@pytest.mark.thorough
def test_twelve_first_jobs_of_one_reference_cost_one_encoder_run(pair: Pair) -> None:
    jobs = [submit(text=f"Ox {number}.", reference=inline()) for number in range(12)]
    for name in ("w1", "w2"):
        pair.start_worker(name)
    wait_ended(*jobs)
    assert_whole(*jobs)
    assert counter("encoder_run") == 1
    wait_audio_gone(pair)


@pytest.mark.thorough
def test_reference_that_came_with_a_job_goes_however_the_job_ends(pair: Pair) -> None:
    first = submit(text="Ox.", reference=inline())
    worker = pair.start_worker().wait_ready()
    wait_ended(first)
    wait_audio_gone(pair)
    worker.stop()
    pair.start_worker().wait_ready()

    again = submit(text="Ox.", reference=inline())
    wait_ended(again)
    assert_whole(first, again)
    assert first.segments.get().take_id == again.segments.get().take_id
    assert counter("encoder_run") == 1  # across jobs and a restart
    wait_audio_gone(pair)

    silence = wav_bytes(np.zeros((36_000, 1), dtype=np.float32))
    failed = submit(text="Ox.", reference=inline(silence))
    wait_ended(failed)
    assert (failed.status, failed.error_code) == (RenderJob.Status.FAILED, "clip_silent")
    wait_audio_gone(pair)

    cancelled = submit(text="An ox and a fox. " * 12, reference=inline())
    busy = Segment.objects.filter(job=cancelled, status=Segment.Status.CLAIMED)
    wait_for(busy.exists, what="the job is rendered", poll=0.005)
    cancel_job(cancelled.pk)
    wait_ended(cancelled)
    assert cancelled.status == RenderJob.Status.CANCELLED
    wait_audio_gone(pair)
    assert counter("encoder_run") == 1

    for job in (first, again, failed, cancelled):
        assert objects(pair, "codes")
        delete_job(job)
    wait_gone(pair)


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_voice_is_encoded_once_for_each_codec_and_then_found(pair: Pair) -> None:
    worker, voice = pair.start_with_voice("w1")
    first = submit(voice, text="Ox one.")
    wait_ended(first)
    second = submit(voice, text="Ox two.")
    wait_ended(second)
    wait_for(lambda: counter("memory_hit") >= 2, what="the hits are counted")
    assert (counter("encoder_run"), counter("storage_hit")) == (1, 0)

    worker.stop()
    worker = pair.start_worker("w1").wait_ready()
    third = submit(voice, text="Ox three.")
    wait_ended(third)
    wait_for(lambda: counter("storage_hit") == 1, what="the hit is counted")
    assert counter("encoder_run") == 1

    worker.stop()
    waiting = submit(voice, text="Ox four.")
    pair.start_worker("w1", CODEC_ENCODE_DTYPE="bfloat16")
    wait_ended(waiting)
    assert counter("encoder_run") == 2
    assert VoiceVersion.objects.get().codec_fingerprint == (
        WorkerStatus.objects.get(pk="w1").codec_fingerprint
    )
    assert_whole(first, second, third, waiting)


@pytest.mark.thorough
def test_deleted_voice_leaves_every_workers_memory(pair: Pair) -> None:
    for name in ("w1", "w2"):
        pair.start_worker(name, TTS_ENGINE_SLOTS=1)
    for worker in pair.workers:
        worker.wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=16)

    def remembered() -> list[int]:
        rows = WorkerStatus.objects.order_by("name").values_list("figures", flat=True)
        return [row.get("codes_cache_entries", 0) for row in rows]

    wait_for(lambda: remembered() == [1, 1], what="both workers hold the codes")
    wait_ended(job)
    delete_voice(voice)

    wait_for(lambda: remembered() == [0, 0], what="no worker holds them any more")
    assert objects(pair, "clips", "codes") == []


# What ends a job in a voice, by the code that its segments get, empty for a cancel.
DEEDS: dict[str, Callable[[Voice, RenderJob], object]] = {
    "": lambda _, job: cancel_job(job.pk),
    "voice_deleted": lambda voice, _: delete_voice(voice),
    "consent_withdrawn": lambda voice, _: change(voice, "consent_withdrawn", True),
    "voice_not_shared": lambda voice, _: change(voice, "shared", False),
}


def change(voice: Voice, name: str, value: bool) -> Voice:
    update_voice(voice, by="owner", changes={name: value})
    return voice


def speak_with_all_slots(pair: Pair, slots: int, texts: int) -> tuple[RunningWorker, Voice, Voice]:
    """Return a worker that renders a long job with one voice in all its slots, and another one."""
    worker, voice = pair.start_with_voice("w1", TTS_ENGINE_SLOTS=slots)
    other = new_voice("Other", content=wav_bytes(seconds=1.2))
    wait_encoded(other)
    Voice.objects.filter(pk=voice.pk).update(owner=make_user(), shared=True)
    voice.refresh_from_db()
    text = "\n\n".join(f"{number} oxen and a fox. " + "An ox. " * 30 for number in range(texts))
    bulk = {"priority": RenderJob.Priority.BULK, "max_retakes": 0}
    submit(voice, text=text, owner=make_user(), **bulk)
    wait_all_slots_busy(worker, slots)
    return worker, voice, other


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("pair", "code"),
    [
        *(("files", code) for code in DEEDS),
        pytest.param("services", "voice_deleted", marks=[pytest.mark.redis, pytest.mark.postgres]),
    ],
    indirect=["pair"],
)
def test_voice_silenced_while_all_slots_speak_it_begins_no_more(pair: Pair, code: str) -> None:
    worker, voice, other = speak_with_all_slots(pair, 8, 200)
    job = RenderJob.objects.get()

    assert DEEDS[code](voice, job)
    rows = Segment.objects.filter(job=job).order_by("pk")
    outcomes = list(rows.values_list("status", "error_code", "take"))
    takes = Take.objects.count()
    idle = WorkerStatus.objects.filter(
        pk="w1", figures__slots_in_use=0, figures__segments_in_flight=0
    )
    wait_for(idle.exists, what="the engine has dropped all of it")
    after = submit(other, sentences=2)
    wait_ended(job, after)

    assert list(rows.values_list("status", "error_code", "take")) == outcomes
    ending = ("failed", code) if code else ("cancelled", "")
    assert {row[:2] for row in outcomes} <= {("done", ""), ending}
    unheard = [row for row in outcomes if row[:2] == ending and row[2] is None]
    assert len(unheard) > 8 * 4, "the worker spoke nearly all of it before"
    assert_whole(after)
    unspoken = [take for take in Take.objects.all() if not take.segments.exists()]
    assert (unspoken, Take.objects.count()) == ([], takes + 2)
    has_audio = any(row[0] == "done" for row in outcomes)
    end = ("partial" if has_audio else "failed") if code else "cancelled"
    assert (job.status, job.error_code) == (end, code)
    assert worker.popen.poll() is None


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_deleted_voice_leaves_memory_and_storage_while_all_slots_speak_with_it(pair: Pair) -> None:
    _, voice, other = speak_with_all_slots(pair, 4, 60)
    job = RenderJob.objects.get()
    delete_voice(voice)
    after = submit(other, sentences=1)
    wait_ended(job, after)
    figures = WorkerStatus.objects.filter(pk="w1", figures__codes_cache_entries=1)
    wait_for(figures.exists, what="only the other voice is left in memory")
    fingerprint = StoredClip.objects.get().fingerprint
    assert all(fingerprint in path for path in objects(pair, "clips", "codes"))


def exported(voice: Voice) -> IO[bytes]:
    """Return a file with the voice's archive."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller reads it
    version = voice.current_version
    assert version is not None
    file.writelines(export_voice(voice, version))
    return file


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_voice_exported_deleted_and_imported_speaks_without_an_encoder_run(pair: Pair) -> None:
    worker, voice = pair.start_with_voice("w1")
    before = wait_encoded(voice)
    with exported(voice) as file:
        delete_voice(voice)
        assert not ClipCodes.objects.exists()
        back = import_voice(file, by="tester")
        version = back.current_version
        assert version is not None
        assert (version.status, version.frames) == ("ready", before.frames)
        assert version.warnings == before.warnings
        first = submit(back, text="Ox one.")
        wait_ended(first)

        worker.stop()
        delete_voice(back)
        waiting = import_voice(file, by="tester", name="Later")
    assert waiting.current_version is not None
    assert waiting.current_version.status == "pending"  # nobody has the codec loaded
    pair.start_worker("w1")
    wait_encoded(waiting)
    second = submit(waiting, text="Ox two.")
    wait_ended(second)

    assert_whole(first, second)
    assert counter("encoder_run") == 1
