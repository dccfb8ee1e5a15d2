"""What an API key is refused once it is at its limits."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import AsyncRequestFactory
from rest_framework.request import Request
from rest_framework.test import APIClient

from synth.accounts import limits as key_rate
from synth.accounts.access import create_key
from synth.accounts.limits import KeyLimitError
from synth.api.authentication import ApiKeyAuthentication
from synth.models import ApiKey, BookSource, RenderJob
from tests.answers import refusal_of
from tests.factories import make_book, make_export, make_job, make_user, make_voice
from tests.voices.clips import clip_bytes
from ttsweb.http.api import ApiProblem
from ttsweb.http.asgi_ask import COUNTED, ask
from voices.models import StoredClip, Voice

pytestmark = pytest.mark.django_db(transaction=True)

TEXT = "Good morning to you."  # 20 characters


def limited(user: User, **limits: int) -> tuple[ApiKey, APIClient]:
    """Return a key with these limits and a client that sends it."""
    row, key = create_key(user, "limited", limits=limits)
    return row, APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")


def order(client: APIClient, text: str = TEXT, **headers: str) -> Any:
    """Send a job."""
    return client.post("/api/v1/jobs", {"text": text, "voice": "Ada"}, headers=headers)


@pytest.fixture(autouse=True)
def ada(job_services: None) -> Voice:
    """A voice that is ready; and no count of another test is known."""
    key_rate.forget_counts()
    return make_voice("Ada")


@pytest.fixture
def clip() -> bytes:
    return clip_bytes(seconds=1.0)


def wav(content: bytes) -> SimpleUploadedFile:
    return SimpleUploadedFile("clip.wav", content)


def test_a_key_without_limits_is_not_limited(operator: User) -> None:
    _, client = limited(operator)
    assert [order(client).status_code for _ in range(3)] == [202, 202, 202]


def test_unfinished_jobs_of_a_key_are_limited_until_one_ends(operator: User) -> None:
    make_job(owner=operator, api_key=limited(operator)[0])  # of another key of the same user
    _, client = limited(operator, max_unfinished_jobs=1)
    headers = {"Idempotency-Key": "once"}
    first, again = order(client, **headers), order(client, **headers)

    refused = order(client)

    assert (first.status_code, again.status_code) == (202, 200)  # repeated, although it is full
    assert again.json()["id"] == first.json()["id"]
    assert refusal_of(refused) == (429, "key_limit_jobs")
    assert "1 unfinished jobs and may have 1" in refused.json()["detail"]
    assert int(refused["Retry-After"]) > 0
    assert RenderJob.objects.count() == 2
    client.post(f"/api/v1/jobs/{first.json()['id']}/cancel")
    assert order(client).status_code == 202


def test_characters_in_the_queue_are_added_up(operator: User) -> None:
    _, client = limited(operator, max_queued_chars=2 * len(TEXT))

    assert [order(client).status_code for _ in range(2)] == [202, 202]
    refused = order(client, text="Hi.")

    assert refusal_of(refused) == (429, "key_limit_chars")
    assert "40 queued characters" in refused.json()["detail"]
    assert "adds 3" in refused.json()["detail"]
    assert int(refused["Retry-After"]) > 0


def test_a_text_that_never_fits_is_told_no_time_to_wait(operator: User) -> None:
    _, client = limited(operator, max_queued_chars=len(TEXT) - 1)

    refused = order(client)

    assert refusal_of(refused) == (429, "key_limit_chars")
    assert "exceeds the limit even alone" in refused.json()["detail"]
    assert "Retry-After" not in refused


def test_a_retried_job_counts_for_the_key_that_retries_it(operator: User) -> None:
    row, client = limited(operator, max_unfinished_jobs=1)
    done = [make_job(owner=operator, status=RenderJob.Status.CANCELLED) for _ in range(2)]
    for job in done:
        job.segments.update(status="cancelled")

    answers = [client.post(f"/api/v1/jobs/{job.pk}/retry") for job in done]

    assert answers[0].status_code == 202
    assert refusal_of(answers[1]) == (429, "key_limit_jobs")
    for job in done:
        job.refresh_from_db()
    assert [(job.status, job.api_key) for job in done] == [("queued", row), ("cancelled", None)]


def test_speech_in_openais_form_has_the_same_limit_in_its_own_form(operator: User) -> None:
    _, client = limited(operator, max_unfinished_jobs=0)

    refused = client.post("/v1/audio/speech", {"model": "tts-1", "voice": "Ada", "input": TEXT})

    assert refused.status_code == 429
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("key_limit_jobs", "rate_limit_error")


def new_voice(client: APIClient, name: str, clip: bytes, path: str = "/api/v1/voices") -> Any:
    """Send a voice of one clip."""
    fields: dict[str, Any] = {"name": name, "transcript": "What is said."}
    if path.startswith("/v1"):
        fields |= {"consent": "Agreed.", "audio_sample": wav(clip)}
    else:
        fields |= {"consent_statement": "Agreed.", "audio": wav(clip)}
    return client.post(path, fields, format="multipart")


@pytest.mark.parametrize("path", ["/api/v1/voices", "/v1/audio/voices"])
def test_bytes_of_voices_are_limited_and_a_refused_clip_is_not_kept(
    path: str, operator: User, stored_objects: Any, clip: bytes
) -> None:
    other = clip_bytes(seconds=1.5)
    _, client = limited(operator, max_stored_bytes=len(clip) + 10)

    first = new_voice(client, "Bea", clip, path)
    kept = stored_objects()
    refused = new_voice(client, "Cleo", other, path)

    assert (first.status_code // 100, refused.status_code) == (2, 413)
    body = refused.json()
    assert body.get("error", body)["code"] == "key_limit_stored_bytes"
    assert str(len(clip) + len(other)) in refused.content.decode()
    assert not Voice.objects.filter(name="Cleo").exists()
    assert stored_objects() == kept


def test_a_new_clip_of_a_voice_is_limited_too(ada: Voice, operator: User, clip: bytes) -> None:
    Voice.objects.filter(pk=ada.pk).update(owner=operator)
    _, client = limited(operator, max_stored_bytes=len(clip) - 1)
    form = {"audio": wav(clip), "transcript": "Other words."}

    refused = client.patch(f"/api/v1/voices/{ada.pk}", form, format="multipart")

    assert refusal_of(refused) == (413, "key_limit_stored_bytes")
    assert ada.versions.count() == 1


def test_a_clip_that_two_voices_share_counts_once(operator: User, clip: bytes) -> None:
    _, client = limited(operator, max_stored_bytes=len(clip))

    answers = [new_voice(client, name, clip) for name in ("Bea", "Cleo")]

    assert [answer.status_code for answer in answers] == [202, 202]
    assert StoredClip.objects.filter(size_bytes=len(clip)).count() == 1


def test_new_clip_counts_beside_files(operator: User, clip: bytes) -> None:
    make_export(make_job(owner=operator), size_bytes=10)
    _, client = limited(operator, max_stored_bytes=len(clip) + 9)

    refused = new_voice(client, "Bea", clip)

    assert refusal_of(refused) == (413, "key_limit_stored_bytes")
    assert "10 of files of jobs and batches" in refused.json()["detail"]


def test_all_that_is_stored_counts_and_a_full_key_makes_no_more_files(operator: User) -> None:
    _, client = limited(operator, max_stored_bytes=1_000)
    for size in (400, 599):
        make_export(make_job(owner=operator), size_bytes=size)
    make_export(make_job(owner=make_user()), size_bytes=5_000)

    assert order(client).status_code == 202
    make_book(operator, size_bytes=1)
    refused = order(client)

    assert refusal_of(refused) == (429, "key_limit_stored_bytes")
    assert "999 of files of jobs and batches, 1 of uploaded books" in refused.json()["detail"]
    assert "allows 1000" in refused.json()["detail"]
    assert "Retry-After" not in refused
    assert RenderJob.objects.filter(owner=operator).count() == 3


def test_clip_of_a_job_that_is_too_much_is_refused_and_not_kept(
    operator: User, stored_objects: Any, clip: bytes
) -> None:
    _, client = limited(operator, max_stored_bytes=len(clip) - 1)
    before = stored_objects()
    form = {"text": TEXT, "reference_audio": wav(clip), "reference_text": "What is said."}

    refused = client.post("/api/v1/jobs", form, format="multipart")

    assert refusal_of(refused) == (413, "key_limit_stored_bytes")
    assert f"{len(clip)} of clips" in refused.json()["detail"]
    assert (RenderJob.objects.count(), stored_objects()) == (0, before)


def test_book_that_is_too_much_is_refused_and_not_kept(operator: User, stored_objects: Any) -> None:
    _, client = limited(operator, max_stored_bytes=20)
    before = stored_objects()

    def upload(size: int) -> Any:
        file = SimpleUploadedFile("book.txt", b"x" * size)
        return client.post("/api/v1/books", {"file": file}, format="multipart")

    assert upload(19).status_code == 202
    refused = upload(2)

    assert refusal_of(refused) == (413, "key_limit_stored_bytes")
    assert "21 of uploaded books" in refused.json()["detail"]
    assert len(stored_objects()) == len(before) + 1
    assert BookSource.objects.count() == 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """The clock of the counter, at the tenth second of a minute; `now` moves it."""
    clock = {"now": dt.datetime(2026, 5, 3, 12, 0, 10, tzinfo=dt.UTC).timestamp()}
    monkeypatch.setattr("synth.accounts.limits.time.time", lambda: clock["now"])
    return clock


def test_requests_beyond_the_limit_wait_for_the_next_minute(
    operator: User, clock: dict[str, float]
) -> None:
    _, client = limited(operator, max_requests_per_minute=3)

    answers = [client.get("/api/v1/jobs") for _ in range(5)]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[3].json()["code"] == "key_limit_requests"
    assert "its 3 requests of this minute" in answers[3].json()["detail"]
    assert answers[3]["Retry-After"] == "50"
    clock["now"] += 50
    assert client.get("/api/v1/jobs").status_code == 200


def passes(row: ApiKey, requests: int) -> int:
    """Return how many of so many requests pass."""
    passed = 0
    for _ in range(requests):
        try:
            key_rate.count_request(row)
        except KeyLimitError:
            continue
        passed += 1
    return passed


@pytest.mark.parametrize("limit", [1, 7, 99, 100, 149, 151, 500])
def test_all_of_the_limit_passes_and_not_one_more(
    limit: int, operator: User, clock: dict[str, float]
) -> None:
    row, _ = limited(operator, max_requests_per_minute=limit)
    assert passes(row, limit + 5) == limit


@pytest.mark.parametrize("limit", [5, 99, 500])
def test_several_processes_share_one_limit(
    limit: int, operator: User, clock: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    row, _ = limited(operator, max_requests_per_minute=limit)
    memories: list[dict[Any, Any]] = [{}, {}, {}]

    passed = 0
    for index in range(3 * limit):
        monkeypatch.setattr(key_rate, "_minutes", memories[index % 3])
        passed += passes(row, 1)

    lost = 2 * (limit // key_rate.BLOCKS_PER_MINUTE) if limit >= 100 else 0
    assert limit - lost <= passed <= limit


def test_few_requests_of_many_write_and_none_once_the_key_is_used_up(
    operator: User, clock: dict[str, float], django_assert_max_num_queries: Any
) -> None:
    row, _ = limited(operator, max_requests_per_minute=1000)

    with django_assert_max_num_queries(60):
        assert passes(row, 1000) == 1000
        passes(row, 1)
    with django_assert_max_num_queries(0):
        assert passes(row, 100) == 0


def test_a_limit_that_was_raised_holds_at_once_and_other_keys_count_for_themselves(
    operator: User, clock: dict[str, float]
) -> None:
    row, _ = limited(operator, max_requests_per_minute=1)
    other, _ = limited(make_user(), max_requests_per_minute=1)
    assert (passes(row, 2), passes(other, 2)) == (1, 1)

    row.max_requests_per_minute = 3

    assert passes(row, 5) == 2


def test_a_request_that_is_asked_again_after_its_client_waited_counts_once(
    operator: User, clock: dict[str, float]
) -> None:
    _, key = create_key(operator, "limited", limits={"max_requests_per_minute": 1})
    request = AsyncRequestFactory().get("/", headers={"Authorization": f"Bearer {key}"})

    async def application(scope: Any, receive: Any, send: Any) -> None:
        request.scope = scope
        await sync_to_async(ApiKeyAuthentication().authenticate)(Request(request))

    async def ask_thrice(scope: Any) -> None:
        for _ in range(3):
            await ask(application, scope, "TTS-Wait")

    asyncio.run(ask_thrice(dict(request.scope)))
    with pytest.raises(ApiProblem, match="its 1 request of this minute"):
        asyncio.run(ask_thrice(dict(request.scope) | {COUNTED: False}))
