"""Segments over REST: what is shown of each, its audio, other takes, the choice among them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from rest_framework.test import APIClient

from synth.accounts.access import create_key
from synth.models import RenderJob, Segment, Take
from synth.transitions.jobs import cancel_job
from synth.transitions.takes import retake_seed
from tests.factories import make_ended_job, make_job, make_take, make_voice
from voices.models import Voice
from voices.objects import delete_voice

pytestmark = pytest.mark.django_db(transaction=True)
Status = RenderJob.Status
MEASURES = {"screen": [{"name": "too_short", "value": 0.1, "limit": 0.5}], "active_dbfs": -25.0}


@pytest.fixture
def voice() -> Voice:
    return make_voice()


@pytest.fixture
def job(operator: User, voice: Voice) -> RenderJob:
    """A job of one spoken segment, with the bytes of its take and of its file."""
    job = make_ended_job(operator, voice=voice)
    take = Take.objects.get()
    take.audio_key = default_storage.save(take.audio_key, ContentFile(b"fLaC-of-the-first"))
    take.quality_score, take.quality_flags, take.measures = 0.2, ["too_short"], MEASURES
    take.save()
    return job


def url(job: RenderJob, action: str = "", *, segment: int | None = None) -> str:
    pk = Segment.objects.get(job=job).pk if segment is None else segment
    return f"/api/v1/jobs/{job.pk}/segments/{pk}{action}"


def end_again(job: RenderJob, content: bytes = b"fLaC-of-the-second") -> Take:
    """Give the segment a new take, as a worker would."""
    take = make_take(quality_score=1.0)
    take.audio_key = default_storage.save(take.audio_key, ContentFile(content))
    take.save()
    segment = job.segments.get()
    segment.candidate_takes.add(take)
    found = {"seconds": 0.93, "score": 1.0, "flags": [], "measures": []}
    segment.candidates.append({"take": str(take.pk), "seed": segment.seed, **found})
    segment.status, segment.take = Segment.Status.DONE, take
    segment.save()
    RenderJob.objects.update(status=Status.SUCCEEDED, segments_done=1)
    return take


def test_segment_is_shown_with_what_the_screen_found(api: APIClient, job: RenderJob) -> None:
    answer = api.get(url(job))
    listed = api.get(f"/api/v1/jobs/{job.pk}/segments").json()["results"]

    shown, segment = answer.json(), job.segments.get()
    quality = {"score": 0.2, "flags": ["too_short"], "measures": MEASURES["screen"]}
    assert (shown["id"], shown["quality"], shown["candidates"]) == (segment.pk, quality, [])
    assert (shown["seed"], shown["attempts"], shown["retakes"]) == (segment.seed, 0, 0)
    assert listed == [shown]
    assert api.get(url(job), headers={"If-None-Match": answer["ETag"]}).status_code == 304
    # A flag that only shows in the job stands with the candidate.
    one = {"take": str(segment.take_id), "seed": 1, "seconds": 1.0, "score": 0.1, "measures": []}
    job.segments.update(candidates=[one | {"flags": ["too_short", "level"]}])
    quality = {"score": 0.1, "flags": ["too_short", "level"], "measures": []}
    assert api.get(url(job)).json()["quality"] == quality


def test_audio_of_a_segment_is_its_take_with_ranges(api: APIClient, job: RenderJob) -> None:
    def get(**headers: str) -> Any:
        return api.get(url(job, "/audio"), headers=headers)

    whole, part = get(), get(Range="bytes=0-3")

    assert (whole.status_code, whole["Content-Type"]) == (200, "audio/flac")
    assert whole.getvalue() == b"fLaC-of-the-first"
    assert (part.status_code, part.getvalue()) == (206, b"fLaC")
    assert get(**{"If-None-Match": whole["ETag"]}).status_code == 304
    assert get(Range="bytes=999-").status_code == 416


def test_every_candidate_can_be_heard_and_no_other_take(api: APIClient, job: RenderJob) -> None:
    old = Take.objects.get()
    api.post(url(job, "/render"))
    new, stranger = end_again(job), make_take()

    def heard(take: Take | None) -> Any:
        return api.get(url(job, "/audio"), {"take": str(take.pk)} if take else {})

    assert heard(old).getvalue() == b"fLaC-of-the-first"
    assert heard(new).getvalue() == heard(None).getvalue() == b"fLaC-of-the-second"
    assert heard(old)["ETag"] != heard(new)["ETag"]
    assert (heard(stranger).status_code, heard(stranger).json()["code"]) == (404, "take_not_found")
    default_storage.delete(old.audio_key)
    assert (heard(old).status_code, heard(old).json()["code"]) == (410, "audio_gone")


def test_audio_that_is_not_there_says_why(api: APIClient, operator: User, job: RenderJob) -> None:
    waiting = make_job(owner=operator)
    failed = make_job(owner=operator, status=Status.FAILED)
    failed.segments.update(status="failed", error_message="The text is too long.")

    first, second = api.get(url(waiting, "/audio")), api.get(url(failed, "/audio"))

    assert (first.status_code, first.json()["code"]) == (409, "segment_unfinished")
    assert "Retry-After" in first.headers
    assert (second.status_code, second.json()["code"]) == (404, "segment_without_audio")
    assert "too long" in second.json()["detail"]


def test_segment_is_rendered_again_with_the_next_seed_and_its_job_goes_on(
    api: APIClient, job: RenderJob, sent_tasks: Callable[[str], list[str]]
) -> None:
    seed = job.segments.get().seed

    answer = api.post(url(job, "/render"))

    shown = api.get(f"/api/v1/jobs/{job.pk}").json()
    assert (answer.status_code, answer["Location"]) == (202, url(job))
    assert answer.json()["seed"] == retake_seed(seed, 1)
    assert [one["seed"] for one in answer.json()["candidates"]] == [seed]
    assert (shown["status"], shown["segments_done"], shown["audio_url"]) == ("running", 0, None)
    assert len(sent_tasks("render_segments")) == 1


def test_sent_twice_it_is_rendered_once_and_nothing_else_can_be_asked_meanwhile(
    api: APIClient, job: RenderJob
) -> None:
    answers = [api.post(url(job, "/render"), {"seed": 5}) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202] * 3
    for body in ({"seed": 6}, {"text": "Other words."}):
        answer = api.post(url(job, "/render"), body)
        assert (answer.status_code, answer.json()["code"]) == (409, "segment_unfinished")
        assert "Retry-After" in answer.headers
    assert api.post(url(job, "/render")).status_code == 202
    end_again(job)

    last = api.post(url(job, "/render"), {"seed": 5})

    assert (last.status_code, last.json()["status"]) == (200, "done")
    assert len(last.json()["candidates"]) == 2


def test_other_words_are_spoken_with_the_seed_that_they_have_in_any_job(
    api: APIClient, job: RenderJob
) -> None:
    answer = api.post(url(job, "/render"), {"text": " Other\n words. "})
    other = make_job(segments=0)

    shown = answer.json()
    assert (answer.status_code, shown["spoken_text"]) == (202, "Other words.")
    assert (shown["candidates"], shown["retakes"]) == ([], 0)
    from synth.jobs.submit import segment_seed

    assert shown["seed"] == segment_seed(other.seed, "Other words.", 0)
    assert Take.objects.count() == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"seed": -1}, "out_of_range"),
        ({"seed": 2**63}, "out_of_range"),
        ({"seed": "5"}, "invalid"),
        ({"seed": None}, "null"),
        ({"seed": 1.0}, "invalid"),
        ({"text": 5}, "invalid"),
        ({"text": None}, "null"),
        ({"text": ""}, "text_empty"),
        ({"text": "…"}, "text_empty"),
        ({"text": "a\0b"}, "text_not_text"),
        ({"text": "a\ud800b"}, "text_not_text"),
        ({"text": "<|speaker:1|>Hello."}, "text_has_tags"),
        ({"text": "x" * 61}, "text_too_long"),
        ({"text": "x" * 10_000_000}, "body_too_large"),
        ({"wat": 1}, "unknown_field"),
        ([], "invalid"),
    ],
)
def test_bad_request_changes_nothing(api: APIClient, job: RenderJob, body: Any, code: str) -> None:
    before = list(Segment.objects.values())

    content = json.dumps(body)  # half a surrogate pair goes as an escape
    answer = api.post(url(job, "/render"), content, content_type="application/json")

    errors = [error["code"] for error in answer.json().get("errors", [])]
    assert answer.status_code in (400, 413)
    assert code in [answer.json()["code"], *errors]
    assert list(Segment.objects.values()) == before


def test_take_is_chosen_and_the_file_made_again(api: APIClient, job: RenderJob) -> None:
    old = Take.objects.get()
    api.post(url(job, "/render"))
    end_again(job)

    answers = [api.post(url(job, "/choose"), {"take": str(old.pk)}) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json()["quality"]["flags"] == ["too_short"]
    assert job.segments.get().take == old
    assert job.exports.count() == 1
    assert api.get(f"/api/v1/jobs/{job.pk}").json()["status"] == "running"


def test_take_that_is_none_of_the_segments_cannot_be_chosen(api: APIClient, job: RenderJob) -> None:
    for take in (make_take().pk, uuid.uuid4()):
        answer = api.post(url(job, "/choose"), {"take": str(take)})
        assert (answer.status_code, answer.json()["code"]) == (404, "take_not_found")
    wrong: list[dict[str, Any]] = [{"take": take} for take in (5, "x", None)]
    for body in ({}, *wrong, {"take": str(uuid.uuid4()), "a": 1}):
        assert api.post(url(job, "/choose"), body).status_code == 400


@pytest.mark.parametrize("action", ["/render", "/choose"])
def test_cancelled_job_or_deleted_voice_is_a_409_with_a_sentence(
    api: APIClient, operator: User, job: RenderJob, voice: Voice, action: str
) -> None:
    running = make_job(owner=operator, segments=1, status=Status.RUNNING)
    make_take(list(running.segments.all()))
    running.segments.update(status="done")
    RenderJob.objects.filter(pk=running.pk).update(segments_done=0)
    cancel_job(running.pk)
    delete_voice(voice)
    body = {"take": str(uuid.uuid4())} if action == "/choose" else {"seed": 5}

    cancelled = api.post(url(running, action), body)
    voiceless = api.post(url(job, action), body)

    assert (cancelled.status_code, cancelled.json()["code"]) == (409, "job_cancelled")
    assert (voiceless.status_code, voiceless.json()["code"]) == (409, "voice_deleted")
    assert voice.name in voiceless.json()["detail"]


def test_number_that_is_no_segment_of_the_job_is_a_404(
    api: APIClient, operator: User, job: RenderJob
) -> None:
    other = make_job(owner=operator).segments.get().pk

    for segment in (other, 0, 10**30):
        for action, method in (("", "get"), ("/audio", "get"), ("/render", "post")):
            answer = getattr(api, method)(url(job, action, segment=segment))
            assert (answer.status_code, answer.json()["code"]) == (404, "segment_not_found")


def test_key_needs_room_within_its_limits(operator: User, job: RenderJob) -> None:
    row, key = create_key(operator, "full", scopes=["read", "jobs"])
    row.max_queued_chars = 3
    row.save()
    client = APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")

    assert client.post(url(job, "/render"), {}).json()["code"] == "key_limit_chars"
    assert job.segments.get().status == "done"
