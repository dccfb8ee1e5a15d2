"""Jobs with real workers: speakers and pauses, the times of a file, clocks and turns."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from django.core.files.storage import default_storage
from rest_framework.test import APIClient

from synth.contract import AudioArray
from synth.jobs.removal import delete_job
from synth.models import Export, ExportCues, RenderJob, Segment, Take
from synth.transitions.claims import claim_segments
from synth.transitions.segments import fail_segment, reopen_segments
from tests.factories import CODEC_FINGERPRINT, make_job, make_user
from tests.workers.clips import wav_bytes
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, assert_whole, new_voice, submit, wait_ended, wait_for
from tests.workers.rendering.takes_support import RATE, make_export_of, render_with
from ttsweb import leases
from voices.models import StoredClip, Voice, VoiceVersion
from voices.objects import delete_voice
from voices.submit import NewClip

in_database = pytest.mark.django_db(transaction=True)


def tone(num_samples: int, hertz: float) -> AudioArray:
    t = np.arange(num_samples) / RATE
    return np.asarray(0.4 * np.cos(2 * np.pi * hertz * t), dtype=np.float32)


TAKES = [tone(11_111, 300), tone(777, 500), tone(30_001, 700), tone(24_000, 900)]
PAUSES = [333, 0, 1_001, 250]
QUICK = [(1.0, None), (0.25, 16_000), (4.0, 44_100), (1.3, None), (1.0, 16_000)]


def make_file(process: MiniatureProcess, **options: Any) -> tuple[RenderJob, Export]:
    """Return a job of four tones with odd lengths and pauses, and its file."""
    job = make_job(segments=4, owner=make_user(), **{"format": "flac"} | options)
    for index, pause in enumerate(PAUSES):
        Segment.objects.filter(index=index).update(pause_after_ms=pause)
    render_with(TAKES)
    export = make_export_of(process)
    job.refresh_from_db()
    return job, export


def body(job: RenderJob) -> dict[str, Any]:
    client = APIClient()
    client.force_authenticate(job.owner)
    answer = client.get(f"/api/v1/jobs/{job.pk}/timestamps")
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def read(export: Export) -> tuple[AudioArray, int]:
    samples, rate = soundfile.read(default_storage.path(export.key), dtype="float32")
    return samples, rate


# Every other pair of these finds what one of the quick ones finds.
THOROUGH = [pytest.param(speed, rate, marks=pytest.mark.thorough)
            for speed in (0.25, 0.7, 1.0, 1.3, 4.0) for rate in (None, 16_000, 44_100)
            if (speed, rate) not in QUICK]  # fmt: skip


@in_database
@pytest.mark.parametrize(("speed", "sample_rate"), [*QUICK, *THOROUGH])
def test_segments_are_heard_from_their_first_sample_to_their_last(
    process: MiniatureProcess, speed: float, sample_rate: int | None
) -> None:
    job, export = make_file(process, speed=speed, sample_rate=sample_rate)

    samples, rate = read(export)
    shown = body(job)
    is_spoken = np.zeros(len(samples), dtype=bool)
    for one in shown["segments"]:
        is_spoken[one["start_sample"] : one["end_sample"]] = True
        near = samples[one["start_sample"] : one["start_sample"] + rate // 100]
        assert np.abs(near).max() > 0.1, "it begins later than is told"
    # Resampling rings for a few samples where a sound begins at once.
    spread = 80 if sample_rate else 0
    is_near = np.convolve(is_spoken, np.ones(2 * spread + 1), mode="same") > 0
    assert shown["sample_rate"] == rate == (sample_rate or RATE)
    assert not samples[~is_near].any()
    assert shown["seconds"] == export.duration_seconds == len(samples) / rate
    pause = len(samples) - shown["segments"][-1]["end_sample"]
    assert pause == pytest.approx(0.25 * rate / speed, abs=1)


@in_database
def test_times_at_own_pace_are_the_sums_of_takes_and_pauses(process: MiniatureProcess) -> None:
    job, _ = make_file(process)
    position, expected = 0, []
    for take, pause in zip(TAKES, PAUSES, strict=True):
        expected.append((position, position + len(take)))
        position += len(take) + round(pause * RATE / 1000)
    names = ("start_sample", "end_sample", "start", "end")
    shown = [tuple(one[name] for name in names) for one in body(job)["segments"]]
    assert shown == [(start, end, start / RATE, end / RATE) for start, end in expected]


@in_database
@pytest.mark.parametrize("speed", [0.8, 1.0])
def test_failed_segment_is_neither_heard_nor_told(process: MiniatureProcess, speed: float) -> None:
    job = make_job(segments=3, format="wav", owner=make_user(), speed=speed)
    first = claim_segments(worker="gpu", limit=1, codec_fingerprint=CODEC_FINGERPRINT)
    fail_segment(first[0], code="bad", message="It is bad.")
    render_with(TAKES[:2])
    export = make_export_of(process)
    samples, rate = read(export)
    shown = body(job)
    starts = [round(position / speed) for position in (0, len(TAKES[0]) + 7_200)]
    job.refresh_from_db()
    assert job.status == RenderJob.Status.PARTIAL
    found = [(one["index"], one["start_sample"]) for one in shown["segments"]]
    assert found == [(1, starts[0]), (2, starts[1])]
    assert shown["seconds"] == len(samples) / rate


@in_database
def test_file_that_is_made_again_is_told_anew(process: MiniatureProcess) -> None:
    job, export = make_file(process)
    before = body(job)["segments"]
    segment = Segment.objects.get(index=0)
    reopen_segments([segment.pk])
    RenderJob.objects.update(status="running")
    export.delete()
    render_with([tone(5_000, 300)])
    make_export_of(process)
    after = body(job)["segments"]
    assert ExportCues.objects.count() == 1
    assert after[0]["end_sample"] == 5_000
    assert before[1]["start_sample"] - after[1]["start_sample"] == 11_111 - 5_000


ADA, BOB = "An ox is here now.", "A fox is there too."
LONG = "This sentence is long enough to stand alone."
DIALOG = f"<|speaker:0|>{ADA} <|speaker:3|>{BOB} <|speaker:0|>{BOB}"


def takes_of(job: RenderJob) -> list[object]:
    return list(job.segments.order_by("index").values_list("take_id", flat=True))


def seconds_of(job: RenderJob) -> float:
    return Export.objects.get(job=job).duration_seconds


def new_voices() -> tuple[Voice, Voice]:
    """Return two voices as if they had been encoded once: jobs wait for them."""
    voices = new_voice("Ada"), new_voice("Bob", content=wav_bytes(seconds=1.7))
    VoiceVersion.objects.update(encoded_at="2026-01-01T00:00:00Z")
    return voices


def test_speakers_of_a_job_have_the_takes_that_they_have_alone(pair: Pair) -> None:
    ada, bob = new_voices()
    dialog = submit(text=DIALOG, voices={0: ada, 3: bob})
    pair.start_worker().wait_ready()
    wait_ended(dialog)
    assert_whole(dialog)
    rendered = Take.objects.count()

    # Seeds are those of the same words by the same speaker, whoever else speaks in the job.
    ada_alone = submit(ada, text=f"{ADA}\n\n{BOB}")
    bob_alone = submit(text=f"<|speaker:3|>{BOB}", voices={3: bob})
    wait_ended(ada_alone, bob_alone)

    assert_whole(ada_alone, bob_alone)
    first, second, third = takes_of(dialog)
    assert len({first, second, third}) == 3
    assert takes_of(ada_alone) == [first, third]
    assert takes_of(bob_alone) == [second]
    assert Take.objects.count() == rendered == 3


@pytest.mark.thorough
def test_other_pauses_change_the_file_and_render_nothing(pair: Pair) -> None:
    ada, _ = new_voices()
    text = f"{LONG} {BOB} {BOB}\n\n{LONG}"
    usual = submit(ada, text=text)
    pair.start_worker().wait_ready()
    wait_ended(usual)
    rendered = Take.objects.count()
    slow = submit(ada, text=text, pauses={"sentence": 1300, "paragraph": 0})
    wait_ended(slow)
    assert_whole(usual, slow)
    assert takes_of(slow) == takes_of(usual)
    assert Take.objects.count() == rendered == 2
    # 300 and 700 ms before, 1300 and 0 ms now.
    assert seconds_of(slow) - seconds_of(usual) == pytest.approx(0.3, abs=0.001)


@pytest.mark.thorough
def test_clips_of_several_speakers_go_with_their_job(pair: Pair) -> None:
    ada = new_voice("Ada")
    VoiceVersion.objects.update(encoded_at="2026-01-01T00:00:00Z")
    clips = {
        1: NewClip("Said by one.", content=wav_bytes(seconds=1.6)),
        2: NewClip("Said by another.", content=wav_bytes(seconds=1.8)),
    }
    text = f"{ADA} <|speaker:1|>{BOB} <|speaker:2|>{BOB}"
    job = submit(ada, text=text, references=clips)
    pair.start_worker()
    wait_ended(job)

    assert_whole(job)
    assert len(set(takes_of(job))) == 3
    left = StoredClip.objects.exclude(original_key="")
    wait_for(lambda: left.count() == 1, what="the audio of the job's own clips is gone")
    assert StoredClip.objects.count() == 3, "their codes stay as long as the job"
    delete_job(job)
    wait_for(lambda: StoredClip.objects.count() == 1, what="the job's own clips are gone")
    assert not VoiceVersion.objects.filter(voice=None).exists()


@in_database
def test_job_fails_with_the_name_of_the_voice_that_was_deleted() -> None:
    ada, bob = new_voices()
    job = submit(text=DIALOG, voices={0: ada, 3: bob})
    delete_voice(bob)
    job.refresh_from_db()
    assert (job.status, job.error_code) == (RenderJob.Status.FAILED, "voice_deleted")
    assert "'Bob'" in job.error_message


@pytest.mark.thorough
def test_deadline_stops_a_long_job_keeps_what_is_spoken_and_frees_the_worker(pair: Pair) -> None:
    worker, voice = pair.start_with_voice()
    job = submit(voice, sentences=400)
    wait_for(Segment.objects.filter(status=Segment.Status.DONE).exists, what="some of it is spoken")

    RenderJob.objects.update(deadline_at=leases.database_now())
    wait_ended(job)

    rows = Segment.objects.filter(job=job)
    export = Export.objects.get()
    info = soundfile.info(default_storage.path(export.key))
    assert (job.status, job.error_code) == (RenderJob.Status.PARTIAL, "deadline_passed")
    assert job.segments_done == rows.filter(status="done").count() < 400
    left = set(rows.exclude(status="done").values_list("status", "error_code"))
    assert left == {("failed", "deadline_passed")}
    assert len(ExportCues.objects.get().cues) == job.segments_done
    assert info.frames / info.samplerate == export.duration_seconds
    following = submit(voice, sentences=1, first=1000)
    wait_ended(following)
    assert_whole(following)
    assert worker.stop() == 0


@pytest.mark.thorough
def test_job_whose_time_is_over_is_deleted_with_its_bytes(pair: Pair) -> None:
    _, voice = pair.start_with_voice()
    job, kept = submit(voice, sentences=2, retention_seconds=3600), submit(voice, first=10)
    wait_ended(job, kept)
    keys = [Export.objects.get(job=job).key]
    for take in Take.objects.filter(segments__job=job):
        keys += [take.codes_key, take.audio_key]
        assert take.size_bytes == sum(map(default_storage.size, keys[-2:]))
    paths = [Path(default_storage.path(key)) for key in keys]
    assert all(path.exists() for path in paths)
    assert job.finished_at is not None
    assert job.expires_at == job.finished_at + dt.timedelta(seconds=3600)

    RenderJob.objects.filter(pk=job.pk).update(expires_at=leases.database_now())

    wait_for(lambda: not RenderJob.objects.filter(pk=job.pk).exists(), what="the job is deleted")
    wait_for(lambda: not any(path.exists() for path in paths), what="its bytes are deleted")
    kept.refresh_from_db()
    assert kept.expires_at is None
    assert_whole(kept)


BOOKS, SENTENCES = 8, 5


@pytest.mark.thorough
def test_sentence_of_one_user_ends_long_before_the_books_of_another(pair: Pair) -> None:
    worker, voice = pair.start_with_voice(TTS_ENGINE_SLOTS=1)
    books = [submit(voice, sentences=SENTENCES, first=100 * n) for n in range(BOOKS)]
    of_books = Segment.objects.filter(job__in=books)
    wait_for(of_books.filter(status="done").exists, what=f"{worker.name} renders the books")
    before = of_books.filter(status="done").count()
    sentence = submit(voice, first=9_000, owner=make_user("other"))
    wait_ended(sentence)
    segment = sentence.segments.get()
    meanwhile = of_books.filter(
        finished_at__gt=sentence.created_at, finished_at__lt=segment.finished_at
    ).count()
    assert_whole(sentence)
    assert before < BOOKS * SENTENCES / 4, "the books were nearly done already"
    assert meanwhile < BOOKS * SENTENCES / 2
