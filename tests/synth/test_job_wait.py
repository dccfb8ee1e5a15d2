"""Waiting polls: on a real server, and against an application that says when its job ends."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.utils import timezone

from synth.api.jobs import wait as job_wait
from synth.api.jobs.wait import JobWait, find_unfinished
from tests.factories import make_job, make_version, make_voice
from tests.synth.served import Served, check_untouched
from ttsweb.http.asgi_ask import WAIT_HEADER
from voices.models import Voice

JOB = uuid.UUID("7b6b1de4-6f2c-4a3c-9e0a-111111111111")
URL = f"/api/v1/jobs/{JOB}"


class Application:
    """Answer like the view: `queued` with the header until the job has ended."""

    def __init__(self) -> None:
        self.ended: set[uuid.UUID] = set()
        self.num_requests = 0
        self.num_looks = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.num_requests += 1
        while (await receive()).get("more_body"):
            pass
        job_id = uuid.UUID(scope["path"].rsplit("/", 1)[-1])
        headers = [(b"content-type", b"application/json")]
        if job_id not in self.ended:
            seconds = dict(p.split("=") for p in scope["query_string"].decode().split("&"))["wait"]
            headers.append((WAIT_HEADER.lower().encode(), seconds.encode()))
        status = "succeeded" if job_id in self.ended else "queued"
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps({"status": status}).encode()})

    def unfinished(self, job_ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
        """Look as the database would."""
        self.num_looks += 1
        return set(job_ids) - self.ended


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often."""
    monkeypatch.setattr(job_wait, "POLL_SECONDS", 0.02)


def poll_while(
    application: Application,
    meanwhile: Callable[[], None] = lambda: None,
    *,
    wait: str = "3600",
    polls: int = 1,
    max_waiters: int = 10,
) -> tuple[list[str], float]:
    """Poll so often at once, do `meanwhile` after a moment; return statuses and seconds."""
    wrapped = JobWait(application, max_waiters=max_waiters, unfinished=application.unfinished)

    async def run() -> tuple[list[str], float]:
        transport = httpx.ASGITransport(app=wrapped)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            started = time.monotonic()
            asked = [asyncio.create_task(client.get(f"{URL}?wait={wait}")) for _ in range(polls)]
            await asyncio.sleep(0.1)
            meanwhile()
            answers = await asyncio.gather(*asked)
            seconds = time.monotonic() - started
        assert all(WAIT_HEADER not in answer.headers for answer in answers)
        return [answer.json()["status"] for answer in answers], seconds

    return asyncio.run(run())


def test_poll_returns_as_soon_as_the_job_has_ended_and_waits_for_no_ended_one() -> None:
    application = Application()

    statuses, seconds = poll_while(application, lambda: application.ended.add(JOB))

    assert statuses == ["succeeded"]
    assert seconds >= 0.1
    application.num_requests = application.num_looks = 0
    assert poll_while(application)[0] == ["succeeded"]
    assert (application.num_requests, application.num_looks) == (1, 0)


def test_poll_of_a_job_that_goes_on_returns_when_the_time_is_over() -> None:
    statuses, seconds = poll_while(Application(), wait="0.4")

    assert statuses == ["queued"]
    assert seconds >= 0.4


def test_many_waiting_polls_cost_one_look_per_round() -> None:
    application = Application()

    statuses, seconds = poll_while(
        application, lambda: application.ended.add(JOB), polls=50, max_waiters=50
    )

    assert statuses == ["succeeded"] * 50
    assert application.num_looks <= seconds / 0.02 + 2


def test_poll_beyond_the_limit_is_answered_at_once() -> None:
    application = Application()

    statuses, _ = poll_while(
        application, lambda: application.ended.add(JOB), polls=3, max_waiters=2
    )

    assert sorted(statuses) == ["queued", "succeeded", "succeeded"]


def test_poll_outlasts_a_database_that_does_not_answer() -> None:
    application = Application()
    real_look, calls = application.unfinished, 0

    def look(job_ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
        nonlocal calls
        calls += 1
        if calls < 4:
            raise OSError("the database went away")
        return real_look(job_ids)

    application.unfinished = look  # type: ignore[method-assign]  # stands for an outage
    statuses, _ = poll_while(application, lambda: application.ended.add(JOB))

    assert statuses == ["succeeded"]


def test_client_that_leaves_frees_its_place_at_once() -> None:
    application = Application()
    wrapped = JobWait(application, max_waiters=1, unfinished=application.unfinished)
    sent: list[Any] = []

    async def run() -> float:
        messages = asyncio.Queue[dict[str, Any]]()
        scope = {"type": "http", "method": "GET", "path": URL, "query_string": b"wait=20"}

        async def send(message: Any) -> None:
            sent.append(message)

        started = time.monotonic()
        serving = asyncio.create_task(wrapped(scope, messages.get, send))
        await asyncio.sleep(0.1)
        await messages.put({"type": "http.request", "body": b"", "more_body": False})
        await messages.put({"type": "http.disconnect"})
        await serving
        return time.monotonic() - started

    assert asyncio.run(run()) < 2
    assert sent == []
    assert poll_while(application, wait="0.1")[0] == ["queued"]


@pytest.mark.parametrize(
    ("method", "path", "query"),
    [
        ("GET", URL, b""),
        ("POST", URL, b"wait=5"),
        ("GET", f"{URL}/audio", b"wait=5"),
        ("GET", f"/api/v1/voices/{JOB}/audio", b"wait=5"),
        ("GET", "/api/v1/jobs/1", b"wait=5"),
        ("GET", f"/api/v1/jobs/{'-' * 36}", b"wait=5"),
    ],
)
def test_other_request_goes_through_untouched(method: str, path: str, query: bytes) -> None:
    check_untouched(lambda app: JobWait(app, max_waiters=1), method, path, query)


def wait_for(server: Served, path: str, first: str, ending: str) -> httpx.Response:
    """Poll for something that another process ends after a moment; return the last answer."""
    server.begin(f"time.sleep(0.5)\n{ending}")
    for _ in range(20):  # a poll is kept for 5 s, and a busy machine takes its time
        answer = server.client.get(f"{path}?wait=1000")
        assert WAIT_HEADER not in answer.headers
        if answer.json()["status"] != first:
            break
    server.answer()
    return answer


def test_real_server_keeps_a_poll_until_another_process_ends_the_job(server: Served) -> None:
    job = server.make_job()
    ending = f"from synth.transitions.jobs import cancel_job; cancel_job('{job}')"

    assert wait_for(server, f"/jobs/{job}", "queued", ending).json()["status"] == "cancelled"


def timed(server: Served, path: str, **options: Any) -> tuple[httpx.Response, float]:
    started = time.monotonic()
    answer = server.client.get(path, **options)
    assert WAIT_HEADER not in answer.headers
    return answer, time.monotonic() - started


def test_real_server_keeps_a_304_until_the_wait_is_over(server: Served) -> None:
    path = f"/jobs/{server.make_job()}"
    tag = server.client.get(path).headers["ETag"]
    headers = {"If-None-Match": tag}

    same, seconds = timed(server, f"{path}?wait=1", headers=headers)
    server.client.post(f"{path}/cancel").raise_for_status()
    other, _ = timed(server, f"{path}?wait=5", headers=headers)

    assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", tag)
    assert seconds >= 1
    assert (other.status_code, other.json()["status"]) == (200, "cancelled")


def test_real_server_keeps_polls_of_a_batch_and_of_a_voice_until_it_is_encoded(
    server: Served,
) -> None:
    batch = server.run("answer = make_batch(operator()).pk")
    voice = server.run("answer = make_voice(ready=False, owner=operator()).pk")
    ending = f"VoiceVersion.objects.filter(voice='{voice}').update(status='failed')"

    for path, status in ((f"/batches/{batch}", "queued"), (f"/voices/{voice}", "pending")):
        answer, seconds = timed(server, f"{path}?wait=1")
        assert (answer.status_code, answer.json()["status"]) == (200, status)
        assert seconds >= 1
    assert wait_for(server, path, "pending", ending).json()["status"] == "failed"
    assert server.client.get(f"/voices/{voice}?wait=abc").status_code == 400
    assert server.client.get(f"/voices/{uuid.uuid4()}?wait=5").status_code == 404


@pytest.mark.django_db(transaction=True)  # the connection is closed on the way
def test_voice_is_waited_for_while_its_newest_version_is_encoded() -> None:
    encoding, ready, deleted = (make_voice(versions=0) for _ in range(3))
    for voice, states in (
        (encoding, ("ready", "pending")),
        (ready, ("pending", "ready")),
        (deleted, ("encoding",)),
    ):
        for state in states:
            make_version(voice, status=state)
    Voice.objects.filter(pk=deleted.pk).update(deleted_at=timezone.now())
    job, ended = make_job(), make_job(status="succeeded")
    asked = [row.pk for row in (encoding, ready, deleted, job, ended)]

    assert find_unfinished(asked) == {encoding.pk, job.pk}


def test_real_server_cuts_a_wait_to_the_setting_and_validates_it(server: Served) -> None:
    job = server.make_job()

    answer, seconds = timed(server, f"/jobs/{job}?wait=1000")

    assert (answer.status_code, answer.json()["status"]) == (200, "queued")
    assert seconds >= 5
    assert server.client.get(f"/jobs/{job}?wait=abc").status_code == 400
    assert server.client.get(f"/jobs/{uuid.uuid4()}?wait=5").status_code == 404
    assert httpx.get(f"{server.client.base_url}jobs/{job}?wait=5").status_code == 401


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_real_server_holds_no_thread_for_a_waiting_poll(server: Served) -> None:
    job, threads = server.make_job(), Path(f"/proc/{server.process_id}/task")

    async def run() -> int:
        options: dict[str, Any] = {"headers": server.client.headers, "timeout": 60}
        limits = httpx.Limits(max_connections=None)
        base_url = server.client.base_url
        async with httpx.AsyncClient(base_url=base_url, limits=limits, **options) as client:
            polls = [asyncio.create_task(client.get(f"/jobs/{job}?wait=5")) for _ in range(40)]
            counts: list[int] = []
            while not any(poll.done() for poll in polls):
                await asyncio.sleep(0.1)
                counts.append(len(list(threads.iterdir())))
            await asyncio.gather(*polls)
        # A poll takes a thread for a moment when it comes and when it is answered; by the half of
        # the time all have come.
        return min(counts[len(counts) // 2 :])

    assert asyncio.run(run()) < 20
