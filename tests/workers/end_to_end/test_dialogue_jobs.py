"""Jobs with several speakers, with real workers: each says its own words with its own voice."""

from __future__ import annotations

import pytest

from synth.jobs.removal import delete_job
from synth.models import Export, RenderJob, Take
from tests.workers.clips import wav_bytes
from tests.workers.pairs import Pair, assert_whole, new_voice, submit, wait_ended, wait_for
from voices.models import StoredClip, VoiceVersion
from voices.removal import delete_voice
from voices.submit import NewClip

ADA, BOB = "An ox is here now.", "A fox is there too."
LONG = "This sentence is long enough to stand alone."
DIALOG = f"<|speaker:0|>{ADA} <|speaker:3|>{BOB} <|speaker:0|>{BOB}"


def takes_of(job: RenderJob) -> list[object]:
    return list(job.segments.order_by("index").values_list("take_id", flat=True))


def seconds_of(job: RenderJob) -> float:
    return Export.objects.get(job=job).duration_seconds


def test_speakers_of_a_job_have_the_takes_that_they_have_alone(pair: Pair) -> None:
    ada, bob = new_voice("Ada"), new_voice("Bob", content=wav_bytes(seconds=1.7))
    VoiceVersion.objects.update(encoded_at="2026-01-01T00:00:00Z")  # as if encoded once: jobs wait
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
    ada = new_voice("Ada")
    VoiceVersion.objects.update(encoded_at="2026-01-01T00:00:00Z")
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


@pytest.mark.thorough
def test_job_fails_with_the_name_of_the_voice_that_was_deleted(pair: Pair) -> None:
    ada, bob = new_voice("Ada"), new_voice("Bob", content=wav_bytes(seconds=1.7))
    VoiceVersion.objects.update(encoded_at="2026-01-01T00:00:00Z")
    job = submit(text=DIALOG, voices={0: ada, 3: bob})
    delete_voice(bob)

    job.refresh_from_db()

    assert (job.status, job.error_code) == (RenderJob.Status.FAILED, "voice_deleted")
    assert "'Bob'" in job.error_message
