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
    job = make_job(owner=operator, segments=4, segments_done=1, status=Status.RUNNING)

    def progress() -> float:
        shown: float = api.get(f"{URL}/{job.pk}").json()["progress"]
        return shown

    assert progress() == 0.25
    RenderJob.objects.update(segments_failed=1)
    assert progress() == 0.5
    RenderJob.objects.update(status=Status.FAILED)
    assert progress() == 0.25
    RenderJob.objects.update(status=Status.RUNNING, segments_done=3)
    assert progress() == 0.99
    RenderJob.objects.update(status=Status.SUCCEEDED)
    assert progress() == 1.0


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
    job = make_job(owner=operator)

    assert "Retry-After" in api.get(f"{URL}/{job.pk}").headers
    RenderJob.objects.update(status=Status.FAILED, error_code="voice_deleted")
    answer = api.get(f"{URL}/{job.pk}")
    assert "Retry-After" not in answer.headers
    assert answer.json()["error_code"] == "voice_deleted"


@pytest.mark.parametrize("method", ["get", "delete"])
@pytest.mark.parametrize("path", ["", "/audio", "/segments", "/cancel", "/retry"])
def test_job_of_another_user_is_not_there(
    client_of: Callable[[User], APIClient], job_services: None, path: str, method: str
) -> None:
    job = make_ended_job(make_user())
    stranger = client_of(make_user())
    if path in ("/cancel", "/retry"):
        method = "post"
    elif path:
        method = "get"

    response = getattr(stranger, method)(f"{URL}/{job.pk}{path}")

    assert (response.status_code, response.json()["code"]) == (404, "job_not_found")
    assert stranger.get(URL).json()["results"] == []
    assert RenderJob.objects.filter(pk=job.pk).exists()


def test_superuser_sees_all_jobs(
    client_of: Callable[[User], APIClient], job_services: None
) -> None:
    job = make_job(owner=make_user())
    admin = client_of(make_user(is_superuser=True))

    assert [shown["id"] for shown in admin.get(URL).json()["results"]] == [str(job.pk)]
    assert admin.get(f"{URL}/{job.pk}").status_code == 200


def test_id_that_is_none_is_a_404(api: APIClient) -> None:
    assert api.get(f"{URL}/{uuid.uuid4()}").status_code == 404
    assert api.get(f"{URL}/1").status_code == 404


def test_query_parameter_that_is_not_acted_on_is_refused(api: APIClient) -> None:
    job = make_job()

    for path in ("", f"/{job.pk}", f"/{job.pk}/audio", f"/{job.pk}/segments"):
        assert api.get(f"{URL}{path}?wat=1").json()["code"] == "unknown_field"
    assert api.post(f"{URL}?voice=Ada", {"text": "Hello."}).json()["code"] == "unknown_field"


def test_list_is_paged_newest_first_without_whole_texts(api: APIClient, operator: User) -> None:
    voice = make_voice()
    jobs = [make_job(owner=operator, voice=voice, text="x" * 500) for _ in range(3)]

    first = api.get(URL, {"limit": 2}).json()
    second = api.get(first["next"]).json()

    ids = [shown["id"] for shown in first["results"] + second["results"]]
    assert ids == [str(job.pk) for job in reversed(jobs)]
    assert "text" not in first["results"][0]
    assert len(first["results"][0]["text_start"]) == 200


def test_list_costs_as_many_queries_for_many_jobs_as_for_one(
    api: APIClient, operator: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(5):
        make_job(owner=operator)
    api.get(URL)  # notes the key's use

    with django_assert_num_queries(8):
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


def test_file_of_a_partial_job_is_served(api: APIClient, operator: User) -> None:
    job = make_ended_job(operator, status=Status.PARTIAL)

    assert api.get(f"{URL}/{job.pk}/audio").status_code == 200


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING])
def test_file_of_an_unfinished_job_is_a_409(api: APIClient, operator: User, status: Status) -> None:
    job = make_job(owner=operator, status=status)

    response = api.get(f"{URL}/{job.pk}/audio")

    assert (response.status_code, response.json()["code"]) == (409, "job_not_finished")
    assert "Retry-After" in response.headers


@pytest.mark.parametrize("status", [Status.FAILED, Status.CANCELLED])
def test_file_that_was_never_made_is_a_404_with_the_reason(
    api: APIClient, operator: User, status: Status
) -> None:
    job = make_job(owner=operator, status=status, error_message="Only silence.")

    response = api.get(f"{URL}/{job.pk}/audio")

    assert (response.status_code, response.json()["code"]) == (404, "job_without_audio")
    assert "Only silence." in response.json()["detail"]


def test_file_that_is_no_longer_stored_is_a_410(api: APIClient, operator: User) -> None:
    job = make_ended_job(operator)
    default_storage.delete(Export.objects.get().key)

    response = api.get(f"{URL}/{job.pk}/audio")

    assert (response.status_code, response.json()["code"]) == (410, "audio_gone")


def test_cancelling_is_the_same_twice_and_after_the_end(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator, segments=2)

    for _ in range(2):
        response = api.post(f"{URL}/{job.pk}/cancel")
        assert (response.status_code, response.json()["status"]) == (200, "cancelled")
    done = make_ended_job(operator)
    assert api.post(f"{URL}/{done.pk}/cancel").json()["status"] == "succeeded"


def test_retry_queues_what_was_not_spoken(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator, segments=2)
    api.post(f"{URL}/{job.pk}/cancel")

    response = api.post(f"{URL}/{job.pk}/retry")

    assert (response.status_code, response.json()["status"]) == (202, "queued")
    assert "Location" in response.headers
    assert response.json()["segments_cancelled"] == 0


@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_action_takes_no_fields(api: APIClient, operator: User, action: str) -> None:
    job = make_job(owner=operator)

    response = api.post(f"{URL}/{job.pk}/{action}", {"reason": "x"}, format="json")

    assert (response.status_code, response.json()["code"]) == (400, "unknown_field")


def test_retry_that_can_lead_nowhere_is_a_409(api: APIClient, operator: User) -> None:
    def code(job: RenderJob) -> str:
        response = api.post(f"{URL}/{job.pk}/retry")
        assert response.status_code == 409
        found: str = response.json()["code"]
        return found

    deleted = make_voice(deleted_at=timezone.now())
    bad = make_voice()
    bad.versions.update(status="failed")
    gone = make_version()
    gone.clips.all().delete()
    ended: dict[str, Any] = {"owner": operator, "status": Status.FAILED, "segments": 0}
    jobs = [
        make_job(**ended, voice=deleted),
        make_job(**ended, voice=bad),
        make_job(**ended, version=gone),
    ]
    for job in jobs:
        make_segment(job, status=Segment.Status.FAILED)

    assert [code(job) for job in jobs] == ["voice_deleted", "voice_failed", "reference_gone"]
    assert code(make_job(owner=operator)) == "job_not_ended"
    assert code(make_ended_job(operator)) == "nothing_to_retry"


def test_deleted_job_is_gone_with_its_file(
    api: APIClient, operator: User, stored_objects: Callable[[], list[str]]
) -> None:
    job = make_ended_job(operator)

    assert api.delete(f"{URL}/{job.pk}").status_code == 204
    assert api.get(f"{URL}/{job.pk}").status_code == 404
    assert api.delete(f"{URL}/{job.pk}").status_code == 404
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


def test_a_304_still_asks_for_the_wait(api: APIClient, operator: User) -> None:
    job = make_job(owner=operator)
    tag = api.get(f"{URL}/{job.pk}")["ETag"]

    answer = api.get(f"{URL}/{job.pk}?wait=3", headers={"If-None-Match": tag})

    assert (answer.status_code, answer["TTS-Wait"]) == (304, "3.0")
