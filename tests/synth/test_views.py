"""Jobs over REST: what is taken, what is refused and how, what answers show."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import default_storage
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from synth.jobs.eta import forget_pace
from synth.models import Export, RenderJob, Segment
from tests.factories import (
    make_ended_job,
    make_job,
    make_segment,
    make_take,
    make_user,
    make_version,
    make_voice,
)

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/jobs"
Status = RenderJob.Status


def test_progress_counts_segments_and_is_whole_only_with_the_file(
    api: APIClient, operator: User
) -> None:
    job = make_job(owner=operator, segments=4)

    for change, progress in (
        ({"status": Status.RUNNING, "segments_done": 1}, 0.25),
        ({"segments_failed": 1}, 0.5),
        ({"status": Status.FAILED}, 0.25),
        ({"status": Status.RUNNING, "segments_done": 3}, 0.99),
        ({"status": Status.SUCCEEDED}, 1.0),
    ):
        RenderJob.objects.update(**change)
        assert api.get(f"{URL}/{job.pk}").json()["progress"] == progress


def test_queue_position_follows_priority_and_then_age(api: APIClient, operator: User) -> None:
    voice = make_voice()
    bulk = make_job(owner=operator, voice=voice, priority=10)
    first = make_job(owner=make_user(), voice=voice)
    second = make_job(owner=operator, voice=voice)
    running = make_job(owner=operator, voice=voice, status=Status.RUNNING)

    positions = {job["id"]: job["queue_position"] for job in api.get(URL).json()["results"]}

    assert positions == {str(second.pk): 2, str(bulk.pk): 3, str(running.pk): None}
    assert api.get(f"{URL}/{second.pk}").json()["queue_position"] == 2
    first.delete()
    assert api.get(f"{URL}/{second.pk}").json()["queue_position"] == 1


def test_unfinished_job_says_when_to_ask_again_and_an_ended_one_does_not(
    api: APIClient, operator: User
) -> None:
    path = f"{URL}/{make_job(owner=operator).pk}"

    assert "Retry-After" in api.get(path).headers
    RenderJob.objects.update(status=Status.FAILED, error_code="voice_deleted")
    answer = api.get(path)
    assert "Retry-After" not in answer.headers
    assert answer.json()["error_code"] == "voice_deleted"


def test_superuser_sees_all_jobs(
    client_of: Callable[[User], APIClient], job_services: None
) -> None:
    job, admin = make_job(owner=make_user()), client_of(make_user(is_superuser=True))

    assert [shown["id"] for shown in admin.get(URL).json()["results"]] == [str(job.pk)]
    assert admin.get(f"{URL}/{job.pk}").status_code == 200


def test_query_parameter_that_is_not_acted_on_is_refused_and_id_that_is_none_a_404(
    api: APIClient,
) -> None:
    job = make_job()
    for path in ("", f"/{job.pk}", f"/{job.pk}/audio", f"/{job.pk}/segments"):
        assert api.get(f"{URL}{path}?wat=1").json()["code"] == "unknown_field"
    assert api.post(f"{URL}?voice=Ada", {"text": "Hello."}).json()["code"] == "unknown_field"
    for job_id in (uuid.uuid4(), 1):
        assert api.get(f"{URL}/{job_id}").status_code == 404


def test_list_is_paged_newest_first_without_whole_texts_at_a_few_queries(
    api: APIClient, operator: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    jobs = [make_job(owner=operator, text="x" * 500) for _ in range(5)]

    first = api.get(URL, {"limit": 3}).json()
    second = api.get(first["next"]).json()

    ids = [shown["id"] for shown in first["results"] + second["results"]]
    assert ids == [str(job.pk) for job in reversed(jobs)]
    assert "text" not in first["results"][0]
    assert len(first["results"][0]["text_start"]) == 200
    forget_pace()  # a second later it is read again, and the count is to be the same on any machine
    with django_assert_num_queries(6):  # however many jobs
        api.get(URL)


def test_segments_are_listed_in_order_with_what_came_of_them(
    api: APIClient, operator: User
) -> None:
    job = make_job(owner=operator, segments=3)
    done, failed, _ = job.segments.all()
    make_take([done], frames=33, audio_seconds=1.5)
    Segment.objects.filter(pk=done.pk).update(status="done", attempts=2)
    Segment.objects.filter(pk=failed.pk).update(
        status="failed", error_code="prompt_too_long", error_message="Too long."
    )

    first = api.get(f"{URL}/{job.pk}/segments", {"limit": 2}).json()
    rest = api.get(first["next"]).json()

    shown = first["results"] + rest["results"]
    assert [segment["index"] for segment in shown] == [0, 1, 2]
    assert [segment["status"] for segment in shown] == ["done", "failed", "queued"]
    assert (shown[0]["frames"], shown[0]["audio_seconds"], shown[0]["attempts"]) == (33, 1.5, 2)
    assert shown[0]["finish_reason"] == "end"
    assert (shown[1]["error_code"], shown[1]["error_message"]) == ("prompt_too_long", "Too long.")
    assert shown[1]["frames"] is None
    assert shown[2]["text"] == "Sentence number 2."


def test_file_of_a_job_is_served_by_ranges(api: APIClient, operator: User) -> None:
    job = make_ended_job(operator, format="mp3")
    url = api.get(f"{URL}/{job.pk}").json()["audio_url"]

    whole = api.get(url)
    part = api.get(url, headers={"Range": "bytes=2-4"})

    assert whole.getvalue() == b"0123456789"
    assert whole.headers["Content-Type"] == "audio/mpeg"
    assert whole.headers["Content-Disposition"] == (
        f'inline; filename="speech-{str(job.pk)[:8]}.mp3"'
    )
    assert (part.status_code, part.getvalue()) == (206, b"234")
    assert api.head(url).headers["Content-Length"] == "10"
    assert api.get(url, headers={"Range": "bytes=99-"}).status_code == 416
    assert api.get(url, headers={"If-None-Match": whole.headers["ETag"]}).status_code == 304


@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        (Status.QUEUED, 409, "job_not_finished"),
        (Status.RUNNING, 409, "job_not_finished"),
        (Status.FAILED, 404, "job_without_audio"),
        (Status.CANCELLED, 404, "job_without_audio"),
    ],
)
def test_file_that_is_not_there_says_why(
    api: APIClient, operator: User, status: Status, answer: int, code: str
) -> None:
    job = make_job(owner=operator, status=status, error_message="Only silence.")

    response = api.get(f"{URL}/{job.pk}/audio")

    assert (response.status_code, response.json()["code"]) == (answer, code)
    assert ("Retry-After" in response.headers) == (answer == 409)
    assert ("Only silence." in response.json()["detail"]) == (answer == 404)


def test_file_of_a_partial_job_is_served_and_one_no_longer_stored_is_a_410(
    api: APIClient, operator: User
) -> None:
    job = make_ended_job(operator, status=Status.PARTIAL)
    assert api.get(f"{URL}/{job.pk}/audio").status_code == 200
    default_storage.delete(Export.objects.get().key)
    response = api.get(f"{URL}/{job.pk}/audio")
    assert (response.status_code, response.json()["code"]) == (410, "audio_gone")


def test_cancelling_is_the_same_twice_and_after_the_end_and_is_undone_by_a_retry(
    api: APIClient, operator: User
) -> None:
    job, done = make_job(owner=operator, segments=2), make_ended_job(operator)

    for _ in range(2):
        response = api.post(f"{URL}/{job.pk}/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    assert api.post(f"{URL}/{done.pk}/cancel").json()["status"] == "succeeded"
    response = api.post(f"{URL}/{job.pk}/retry")
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    assert response.json()["segments_cancelled"] == 0
    assert "Location" in response.headers
    for action in ("cancel", "retry"):
        response = api.post(f"{URL}/{job.pk}/{action}", {"reason": "x"}, format="json")
        assert (response.status_code, response.json()["code"]) == (400, "unknown_field")


def test_retry_that_can_lead_nowhere_is_a_409(api: APIClient, operator: User) -> None:
    bad, gone = make_voice(), make_version()
    bad.versions.update(status="failed")
    gone.clips.all().delete()
    ended: dict[str, Any] = {"owner": operator, "status": Status.FAILED, "segments": 0}
    jobs = {
        "voice_deleted": make_job(**ended, voice=make_voice(deleted_at=timezone.now())),
        "voice_failed": make_job(**ended, voice=bad),
        "reference_gone": make_job(**ended, version=gone),
    }
    for job in jobs.values():
        make_segment(job, status=Segment.Status.FAILED)
    jobs |= {
        "job_not_ended": make_job(owner=operator),
        "nothing_to_retry": make_ended_job(operator),
    }

    for code, job in jobs.items():
        response = api.post(f"{URL}/{job.pk}/retry")
        assert (response.status_code, response.json()["code"]) == (409, code)


def test_deleted_job_is_gone_with_its_file(
    api: APIClient, operator: User, stored_objects: Callable[[], list[str]]
) -> None:
    path = f"{URL}/{make_ended_job(operator).pk}"

    assert [api.delete(path).status_code for _ in range(2)] == [204, 404]
    assert api.get(path).status_code == 404
    assert stored_objects() == []


def unchanged(api: APIClient, path: str, tag: str) -> bool:
    """Poll with a tag; say whether the answer is a 304, which has no body."""
    response = api.get(path, headers={"If-None-Match": tag})
    assert response.status_code in (200, 304)
    assert (response.status_code == 304) == (response.content == b"")
    return response.status_code == 304


def test_poll_with_the_tag_of_a_job_is_a_304_until_something_it_shows_changes(
    api: APIClient, operator: User
) -> None:
    first = make_job(owner=make_user())
    job = make_job(owner=operator)
    path = f"{URL}/{job.pk}"
    answer = api.get(path)

    assert unchanged(api, path, answer["ETag"])
    kept = api.get(path, headers={"If-None-Match": answer["ETag"]})
    assert kept["Retry-After"] == answer["Retry-After"]
    waiting = api.get(f"{path}?wait=3", headers={"If-None-Match": answer["ETag"]})
    assert (waiting.status_code, waiting["TTS-Wait"]) == (304, "3.0")
    first.delete()  # the job's own row stays as it is, its place in the queue does not
    assert not unchanged(api, path, answer["ETag"])
    tag = api.get(path)["ETag"]
    assert unchanged(api, path, tag)
    RenderJob.objects.filter(pk=job.pk).update(status=Status.RUNNING)
    assert not unchanged(api, path, tag)


def test_poll_with_the_tag_of_a_page_of_segments_is_a_304_until_one_of_them_changes(
    api: APIClient, operator: User
) -> None:
    job = make_job(owner=operator, segments=3)
    path = f"{URL}/{job.pk}/segments?limit=2"
    tag = api.get(path)["ETag"]

    job.segments.filter(index=2).update(status=Segment.Status.DONE)
    assert unchanged(api, path, tag)
    job.segments.filter(index=1).update(status=Segment.Status.DONE)
    assert not unchanged(api, path, tag)
