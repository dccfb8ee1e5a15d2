"""A voice that may not speak any more: nothing of its jobs is claimed, finished or kept waiting."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.utils import timezone

from synth.jobs.retry import RetryRefusedError, check_voice, choose
from synth.models import RenderJob, Segment
from synth.transitions.claims import claimable_segments
from synth.transitions.jobs import stop_silenced_jobs
from tests.factories import (
    CODEC_FINGERPRINT,
    claim,
    finish_segment,
    make_job,
    make_take,
    make_user,
    make_voice,
    stored,
)
from ttsweb.refusals import SubmitRejectedError
from voices.access import note_use, speaking_version
from voices.models import Voice, VoiceVersion
from voices.objects import delete_voice
from voices.submit import update_voice

pytestmark = pytest.mark.django_db


Deed = Callable[[Voice], object]


def unshare(voice: Voice) -> None:
    update_voice(voice, by="owner", changes={"shared": False})


def withdraw(voice: Voice) -> None:
    update_voice(voice, by="owner", changes={"consent_withdrawn": True})


DEEDS = [
    (delete_voice, "voice_deleted"),
    (withdraw, "consent_withdrawn"),
    (unshare, "voice_not_shared"),
]
silencing = pytest.mark.parametrize(("deed", "code"), DEEDS)


@pytest.fixture
def voice() -> Voice:
    """A voice that its owner shares."""
    return make_voice(owner=make_user(), shared=True)


@pytest.fixture
def job(voice: Voice) -> RenderJob:
    """Somebody else's job of three segments in that voice."""
    return make_job(segments=3, voice=voice, owner=make_user())


@silencing
def test_job_ends_at_once_and_what_is_rendered_changes_nothing(
    voice: Voice, job: RenderJob, deed: Deed, code: str
) -> None:
    done, rendering = claim(2)
    finish_segment(done, make_take())

    deed(voice)

    assert list(job.segments.order_by("pk").values_list("status", "error_code")) == [
        ("done", ""),
        ("failed", code),
        ("failed", code),
    ]
    assert not finish_segment(rendering, make_take())
    assert job.exports.exists(), "what was spoken before is kept"
    assert claim() == []


@silencing
def test_job_without_anything_spoken_fails_with_the_reason(
    voice: Voice, job: RenderJob, deed: Deed, code: str
) -> None:
    deed(voice)

    assert stored(job, "status", "error_code") == (RenderJob.Status.FAILED, code)
    assert voice.name in job.error_message


@silencing
def test_segment_that_is_opened_again_is_not_claimed_and_then_closed(
    voice: Voice, job: RenderJob, deed: Deed, code: str
) -> None:
    deed(voice)
    RenderJob.objects.filter(pk=job.pk).update(status="running", segments_failed=2)
    Segment.objects.filter(pk=job.segments.earliest("pk").pk).update(status="queued")

    assert not claimable_segments(CODEC_FINGERPRINT).exists()
    assert claim() == []
    assert [stop_silenced_jobs(), stop_silenced_jobs()] == [1, 0]
    assert stored(job, "status", "error_code") == (RenderJob.Status.FAILED, code)


@silencing
def test_nothing_of_the_job_is_tried_or_chosen_again(
    voice: Voice, job: RenderJob, deed: Deed, code: str
) -> None:
    segment = job.segments.earliest("pk")
    take = make_take([segment])
    deed(voice)
    segment.refresh_from_db()

    with pytest.raises(RetryRefusedError) as retried:
        check_voice(job.voices.get())
    with pytest.raises(RetryRefusedError) as chosen:
        choose(segment, take.pk)

    assert (retried.value.code, chosen.value.code) == (code, code)


@pytest.mark.parametrize(
    ("deed", "code"),
    [
        (delete_voice, "voice_not_found"),
        (withdraw, "consent_withdrawn"),
        (unshare, "voice_not_found"),
    ],
)
def test_job_that_is_being_written_meanwhile_is_refused(
    voice: Voice, deed: Deed, code: str
) -> None:
    version = speaking_version(voice)
    deed(voice)

    with pytest.raises(SubmitRejectedError) as caught:
        note_use(version, make_user())

    assert caught.value.code == code


def test_shares_end_for_others_and_not_for_owner_superuser_and_system(voice: Voice) -> None:
    mine = make_job(voice=voice, owner=voice.owner)
    admin = make_job(voice=voice, owner=make_user(is_superuser=True))
    system = make_job(voice=voice)
    other = make_job(voice=voice, owner=make_user())

    unshare(voice)

    assert {one.job_id for one in claim(9)} == {mine.pk, admin.pk, system.pk}
    assert stored(other, "error_code") == ("voice_not_shared",)


def test_consent_given_again_lets_the_voice_speak(voice: Voice) -> None:
    withdraw(voice)
    with pytest.raises(SubmitRejectedError, match="consent"):
        speaking_version(voice)
    withdrawn_at = Voice.objects.get().consent_withdrawn_at
    assert withdrawn_at is not None
    assert withdrawn_at <= timezone.now()

    update_voice(voice, by="anna", changes={"consent_withdrawn": False})

    assert speaking_version(voice)
    assert stored(voice, "consent_withdrawn_at", "consent_by") == (None, "anna")


def test_deleted_voice_is_not_encoded_any_more() -> None:
    voice = make_voice(ready=False)
    VoiceVersion.objects.update(status="encoding", claim_token="0" * 32)

    delete_voice(voice)

    found = stored(VoiceVersion.objects.get(), "status", "error_code", "claim_token")
    assert found == ("failed", "voice_deleted", None)
