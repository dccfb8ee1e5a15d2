"""Letting go: what a deletion takes with it, and what it leaves because others use it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.jobs.removal import delete_job
from synth.jobs.submit import Order, Sender, submit_job
from synth.models import Export, JobVoice, RenderJob, Segment, Take
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import fail_segment
from tests.factories import (
    CODEC_FINGERPRINT,
    claim,
    finish_segment,
    make_ended_job,
    make_job,
    make_take,
    make_voice,
)
from tests.voices.clips import clip_bytes
from voices.models import CacheEviction, ReferenceClip, StoredClip, VoiceVersion
from voices.objects import delete_voice
from voices.submit import NewClip, create_voice

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

Listing = Callable[[], list[str]]


def submit_with_reference(content: bytes = b"") -> RenderJob:
    clip = NewClip("What is said.", content=content or clip_bytes("wav"))
    job, _ = submit_job(Order("Hello there.", reference=clip), Sender(None))
    return job


def make_ready(job: RenderJob) -> None:
    """Do the encoder's part: the job's reference is ready."""
    VoiceVersion.objects.filter(pk__in=JobVoice.objects.filter(job=job).values("version")).update(
        status="ready", codec_fingerprint=CODEC_FINGERPRINT
    )


def stored_take(segments: list[Segment]) -> Take:
    """Return a take of these segments whose objects are in the storage."""
    take = make_take(segments)
    for key in (take.codes_key, take.audio_key):
        default_storage.save(key, ContentFile(b"x"))
    return take


@pytest.mark.parametrize("end", ["cancel", "fail", "delete"])
def test_reference_is_removed_however_its_job_ends(end: str, stored_objects: Listing) -> None:
    job = submit_with_reference()
    make_ready(job)
    assert len(stored_objects()) == 1
    if end == "cancel":
        cancel_job(job.pk)
    elif end == "delete":
        delete_job(job)
    else:
        [held] = claim(9)
        fail_segment(held, code="x", message="x")

    assert stored_objects() == []
    assert not StoredClip.objects.exists()
    assert not ReferenceClip.objects.exists()
    assert CacheEviction.objects.count() == 1


def test_reference_stays_while_the_file_is_still_to_be_made(stored_objects: Listing) -> None:
    make_ready(submit_with_reference())
    [held] = claim(9)

    finish_segment(held, make_take())

    assert len(stored_objects()) == 1


def test_reference_is_kept_when_the_setting_says_so(
    stored_objects: Listing, settings: Settings
) -> None:
    settings.KEEP_INLINE_REFERENCES = True

    cancel_job(submit_with_reference().pk)

    assert len(stored_objects()) == ReferenceClip.objects.count() == 1


def test_reference_with_the_bytes_of_a_voice_leaves_the_voice_its_clip(
    stored_objects: Listing,
) -> None:
    content = clip_bytes("flac")
    clips = [NewClip("What is said.", content=content)]
    voice = create_voice(name="Ada", consent_statement="She agreed.", by="tester", clips=clips)

    cancel_job(submit_with_reference(content).pk)

    assert len(stored_objects()) == voice.versions.get().clips.count() == 1
    delete_voice(voice)
    assert stored_objects() == []


def test_deleted_job_takes_its_file_and_its_own_takes_and_leaves_the_voice(
    stored_objects: Listing,
) -> None:
    voice = make_voice()
    job = make_ended_job(voice=voice)
    stored_take(list(job.segments.all()))
    assert len(stored_objects()) == 3

    delete_job(job)

    assert stored_objects() == []
    assert not Segment.objects.exists()
    assert not Export.objects.exists()
    assert voice.versions.get().clips.count() == 1


def test_take_that_another_job_uses_outlives_a_deleted_job(stored_objects: Listing) -> None:
    first, second = make_job(), make_job()
    take = stored_take([first.segments.get(), second.segments.get()])

    delete_job(first)
    assert Take.objects.get() == take
    assert len(stored_objects()) == 2
    delete_job(second)
    assert stored_objects() == []


def test_worker_that_renders_for_a_deleted_job_finds_its_claim_gone() -> None:
    job = make_job()
    [held] = claim(1)
    delete_job(job)
    assert not finish_segment(held, make_take())


def test_deleting_a_voice_fails_what_waits_for_it_and_what_is_rendered() -> None:
    voice = make_voice("Ada")
    running, waiting, other = make_job(voice=voice), make_job(voice=voice), make_job()
    [held] = claim(9, ids=[running.segments.get().pk])

    assert delete_voice(voice)

    for job in (running, waiting):
        job.refresh_from_db()
        assert (job.status, job.error_code) == ("failed", "voice_deleted")
        assert "Ada" in job.error_message
    other.refresh_from_db()
    assert other.status == "queued"
    assert not finish_segment(held, make_take())


def test_deleted_voice_has_no_clips_is_evicted_from_every_worker_and_its_name_is_free() -> None:
    voice = make_voice("Ada", versions=2)
    fingerprints = set(StoredClip.objects.values_list("fingerprint", flat=True))

    assert [delete_voice(voice), delete_voice(voice)] == [True, False]

    evicted = set(CacheEviction.objects.values_list("clip_fingerprint", flat=True))
    assert evicted == fingerprints
    assert not ReferenceClip.objects.exists()
    assert not StoredClip.objects.exists()
    assert make_voice("ada").pk
