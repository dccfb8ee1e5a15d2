"""Letting go: what a deletion takes with it, and what it leaves because others use it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from pytest_django import Settings

from synth.jobs.removal import delete_job
from synth.jobs.submit import Order, submit_job
from synth.models import Export, JobVoice, RenderJob, Segment, Take
from synth.transitions.claims import claim_segments
from synth.transitions.jobs import cancel_job
from synth.transitions.segments import fail_segment
from tests.factories import (
    CODEC_FINGERPRINT,
    finish_segment,
    make_ended_job,
    make_job,
    make_take,
    make_voice,
)
from tests.voices.clips import clip_bytes
from voices.models import CacheEviction, ReferenceClip, StoredClip, VoiceVersion
from voices.removal import delete_voice
from voices.submit import NewClip, create_voice

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

Listing = Callable[[], list[str]]


def submit_with_reference(content: bytes = b"") -> RenderJob:
    clip = NewClip("What is said.", content=content or clip_bytes("wav"))
    job, _ = submit_job(Order("Hello there.", reference=clip), owner=None)
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
        [claim] = claim_segments(worker="w1", limit=9, codec_fingerprint=CODEC_FINGERPRINT)
        fail_segment(claim, code="x", message="x")

    assert stored_objects() == []
    assert not StoredClip.objects.exists()
    assert not ReferenceClip.objects.exists()
    assert CacheEviction.objects.count() == 1


def test_reference_stays_while_the_file_is_still_to_be_made(stored_objects: Listing) -> None:
    job = submit_with_reference()
    make_ready(job)
    [claim] = claim_segments(worker="w1", limit=9, codec_fingerprint=CODEC_FINGERPRINT)

    finish_segment(claim, make_take())

    assert len(stored_objects()) == 1


def test_reference_is_kept_when_the_setting_says_so(
    stored_objects: Listing, settings: Settings
) -> None:
    settings.KEEP_INLINE_REFERENCES = True

    cancel_job(submit_with_reference().pk)

    assert len(stored_objects()) == 1
    assert ReferenceClip.objects.count() == 1


def test_reference_with_the_bytes_of_a_voice_leaves_the_voice_its_clip(
    stored_objects: Listing,
) -> None:
    content = clip_bytes("flac")
    voice = create_voice(
        name="Ada",
        consent_statement="She agreed.",
        by="tester",
        clips=[NewClip("What is said.", content=content)],
    )

    cancel_job(submit_with_reference(content).pk)

    assert len(stored_objects()) == 1
    assert voice.versions.get().clips.count() == 1
    delete_voice(voice)
    assert stored_objects() == []


def test_deleted_job_takes_its_file_and_its_own_takes(stored_objects: Listing) -> None:
    job = make_ended_job()
    stored_take(list(job.segments.all()))
    assert len(stored_objects()) == 3

    delete_job(job)

    assert stored_objects() == []
    assert not Segment.objects.exists()
    assert not Export.objects.exists()


def test_take_that_another_job_uses_outlives_a_deleted_job(stored_objects: Listing) -> None:
    first, second = make_job(), make_job()
    take = stored_take([first.segments.get(), second.segments.get()])

    delete_job(first)

    assert Take.objects.get() == take
    assert len(stored_objects()) == 2
    delete_job(second)
    assert stored_objects() == []


def test_deleted_job_leaves_the_version_of_a_voice(stored_objects: Listing) -> None:
    voice = make_voice()

    delete_job(make_job(voice=voice))

    assert voice.versions.get().clips.count() == 1


def test_worker_that_renders_for_a_deleted_job_finds_its_claim_gone() -> None:
    job = make_job()
    [claim] = claim_segments(worker="w1", limit=1, codec_fingerprint=CODEC_FINGERPRINT)

    delete_job(job)

    assert not finish_segment(claim, make_take())


def test_deleting_a_voice_fails_what_waits_for_it_and_what_is_rendered() -> None:
    voice = make_voice("Ada")
    running, waiting, other = make_job(voice=voice), make_job(voice=voice), make_job()
    ids = [running.segments.get().pk]
    [claim] = claim_segments(worker="w1", limit=9, codec_fingerprint=CODEC_FINGERPRINT, ids=ids)

    assert delete_voice(voice)

    for job in (running, waiting, other):
        job.refresh_from_db()
    for job in (running, waiting):
        assert (job.status, job.error_code) == ("failed", "voice_deleted")
        assert "Ada" in job.error_message
    assert other.status == "queued"
    assert not finish_segment(claim, make_take())


def test_deleted_voice_has_no_clips_and_is_evicted_from_every_worker() -> None:
    voice = make_voice(versions=2)
    fingerprints = set(StoredClip.objects.values_list("fingerprint", flat=True))

    assert delete_voice(voice)
    assert not delete_voice(voice)

    evicted = set(CacheEviction.objects.values_list("clip_fingerprint", flat=True))
    assert evicted == fingerprints
    assert not ReferenceClip.objects.exists()
    assert not StoredClip.objects.exists()


def test_name_of_a_deleted_voice_is_free_again() -> None:
    delete_voice(make_voice("Ada"))

    assert make_voice("ada").pk
