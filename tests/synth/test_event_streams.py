"""Event streams: on a real server, and around an application that answers like the view."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import pytest

from synth.api.jobs import event_streams
from synth.api.jobs.event_streams import SEEN_HEADER, EventStreams
from synth.api.jobs.events import ClosedSegment, JobState, Mark
from tests.event_loop import in_event_loop
from tests.synth.served import Served, check_untouched

JOB = uuid.UUID("7b6b1de4-6f2c-4a3c-9e0a-111111111111")
URL = f"/api/v1/jobs/{JOB}/events"


def state(status: str, done: int = 0) -> JobState:
    """Return a state of a job whose first `done` segments are done."""
    return JobState(
        mark=(status, done),
        status=status,
        is_final=status == "succeeded",
        counts=(done, 0, 0),
        shown_state={"status": status},
        shown_progress={"segments_done": done, "segments_failed": 0, "segments_cancelled": 0},
        segments={(0, index): ClosedSegment("done") for index in range(done)},
    )


class Jobs:
    """Stand for the rows, and for the view that answers first."""

    def __init__(self, status: int = 200) -> None:
        self.now: dict[uuid.UUID, JobState | None] = {JOB: state("queued")}
        self.http_status = status
        self.num_looks = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"text/event-stream"), (b"content-length", b"7")]
        if self.http_status == 200:
            headers.append((SEEN_HEADER.lower().encode(), b"queued!0.0.0!!!"))
        await send({"type": "http.response.start", "status": self.http_status, "headers": headers})
        await send({"type": "http.response.body", "body": b"first\n\n"})

    def read(self, known: Mapping[uuid.UUID, Collection[Mark | None]]) -> dict[uuid.UUID, Any]:
        """Look as the database would."""
        self.num_looks += 1
        found = {job_id: self.now[job_id] for job_id in known}
        return {
            job_id: job
            for job_id, job in found.items()
            if job is None or set(known[job_id]) != {job.mark}
        }


class Listener:
    """A client: it keeps what it is sent and can leave."""

    def __init__(self, app: EventStreams) -> None:
        self.sent: list[dict[str, Any]] = []
        self.messages = asyncio.Queue[dict[str, Any]]()
        scope = {"type": "http", "method": "GET", "path": URL, "query_string": b""}
        self.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.serving = asyncio.create_task(app(scope, self.messages.get, self._keep))

    async def _keep(self, message: Any) -> None:
        self.sent.append(dict(message))

    @property
    def status(self) -> Any:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def text(self) -> str:
        """The body so far."""
        return b"".join(m.get("body", b"") for m in self.sent).decode()

    @property
    def events(self) -> list[str]:
        """Names of the events so far."""
        lines = self.text.split("\n")
        return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]

    async def until(self, text: str) -> None:
        """Return once this was sent."""
        async with asyncio.timeout(180):
            while text not in self.text:
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        """Return once the answer is over."""
        await asyncio.wait_for(self.serving, 180)


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often."""
    monkeypatch.setattr(event_streams, "POLL_SECONDS", 0.02)


def streams_of(jobs: Jobs, *, max_streams: int = 10) -> EventStreams:
    return EventStreams(jobs, max_streams=max_streams, read=jobs.read)


@in_event_loop
async def test_stream_tells_what_comes_until_the_job_has_ended() -> None:
    jobs = Jobs()

    app = streams_of(jobs)
    client = Listener(app)
    await client.until("first")
    jobs.now[JOB] = state("running", 1)
    await client.until("event: progress")
    jobs.now[JOB] = state("succeeded", 2)
    await client.end()

    assert client.status == 200
    assert client.headers == {"content-type": "text/event-stream"}
    assert client.events == ["state", "segment", "progress", "segment", "progress", "state"]
    assert client.text.startswith("first\n\nid: running!")
    assert [message.get("more_body", False) for message in client.sent[-2:]] == [True, False]


@pytest.mark.parametrize("status", [204, 400, 401, 404])
@in_event_loop
async def test_answer_that_is_no_open_stream_is_passed_on(status: int) -> None:
    jobs = Jobs(status)

    app = streams_of(jobs)
    client = Listener(app)
    await client.end()
    assert (client.status, client.text) == (status, "first\n\n")
    assert jobs.num_looks == 0


@in_event_loop
async def test_silent_stream_sends_comments_and_is_closed_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_streams, "KEEP_ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(event_streams, "MAX_STREAM_SECONDS", 0.3)

    app = streams_of(Jobs())
    client = Listener(app)
    await client.end()
    assert client.text.count("\n\n: ") >= 2
    assert client.events == []


@in_event_loop
async def test_stream_beyond_the_limit_is_refused_until_a_client_leaves() -> None:
    jobs = Jobs()

    app = streams_of(jobs, max_streams=1)
    first, second = Listener(app), Listener(app)
    await first.until("first")
    await second.end()
    problem = json.loads(second.text)
    assert (second.status, problem["code"]) == (503, "too_many_streams")
    assert int(second.headers["retry-after"]) > 0
    assert second.headers["content-type"] == "application/problem+json"

    first.messages.put_nowait({"type": "http.disconnect"})
    await first.end()
    third = Listener(app)
    await third.until("first")
    jobs.now[JOB] = state("succeeded")
    await third.end()
    assert third.status == 200


@in_event_loop
async def test_stream_of_a_deleted_job_says_so_and_ends() -> None:
    jobs = Jobs()

    app = streams_of(jobs)
    client = Listener(app)
    await client.until("first")
    jobs.now[JOB] = None
    await client.end()
    assert client.events == ["deleted"]


@in_event_loop
async def test_stream_outlasts_a_database_that_does_not_answer() -> None:
    jobs = Jobs()
    real_read = jobs.read

    def read(known: Any) -> dict[uuid.UUID, Any]:
        found = real_read(known)
        if jobs.num_looks < 4:
            raise OSError("the database went away")
        return found

    jobs.read = read  # type: ignore[method-assign]  # stands for an outage

    app = streams_of(jobs)
    client = Listener(app)
    jobs.now[JOB] = state("succeeded")
    await client.end()
    assert client.events == ["state"]


@in_event_loop
async def test_many_streams_cost_one_look_per_round() -> None:
    jobs = Jobs()

    app = streams_of(jobs, max_streams=50)
    started = time.monotonic()
    clients = [Listener(app) for _ in range(50)]
    await asyncio.sleep(0.3)
    jobs.now[JOB] = state("succeeded")
    for client in clients:
        await client.end()
        assert client.events == ["state"]
    assert jobs.num_looks <= (time.monotonic() - started) / 0.02 + 2


@in_event_loop
async def test_slow_look_leaves_most_of_the_time_to_others() -> None:
    jobs = Jobs()
    real_read = jobs.read

    def read(known: Any) -> dict[uuid.UUID, Any]:
        time.sleep(0.1)
        return real_read(known)

    jobs.read = read  # type: ignore[method-assign]  # jobs of very many segments

    app = streams_of(jobs)
    started = time.monotonic()
    client = Listener(app)
    await asyncio.sleep(1)
    assert jobs.num_looks <= (time.monotonic() - started) / (0.1 * 5) + 1
    jobs.now[JOB] = state("succeeded")
    await client.end()


@in_event_loop
async def test_stream_that_opens_during_a_look_is_not_told_of_an_older_state() -> None:
    jobs = Jobs()
    real_read = jobs.read
    old = state("running", 0)

    def read(known: Any) -> dict[uuid.UUID, Any]:
        if jobs.num_looks == 0:
            jobs.num_looks += 1
            time.sleep(0.3)  # it looked before the second client came
            return {JOB: old}
        return real_read(known)

    jobs.read = read  # type: ignore[method-assign]  # a slow first look
    jobs.now[JOB] = state("queued")

    app = streams_of(jobs)
    first = Listener(app)
    await asyncio.sleep(0.1)
    second = Listener(app)
    await first.until("running")
    assert "running" not in second.text
    jobs.now[JOB] = state("succeeded")
    await first.end()
    await second.end()
    assert "running" not in second.text


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", URL),
        ("HEAD", URL),
        ("GET", f"/api/v1/jobs/{JOB}"),
        ("GET", f"/api/v1/jobs/{'-' * 36}/events"),
        ("GET", f"{URL}/1"),
    ],
)
def test_other_request_goes_through_untouched(method: str, path: str) -> None:
    check_untouched(lambda app: EventStreams(app, max_streams=1), method, path)


def test_real_server_tells_of_a_job_that_another_process_ends(server: Served) -> None:
    job = server.make_job()
    lines: list[str] = []

    with server.client.stream("GET", f"/jobs/{job}/events") as stream:
        headers = stream.headers
        for line in stream.iter_lines():
            if line == "event: progress" and line not in lines:
                server.run(f"from synth.transitions.jobs import cancel_job; cancel_job('{job}')")
            lines.append(line)

    assert headers["Content-Type"] == "text/event-stream"
    assert SEEN_HEADER not in headers and "Content-Length" not in headers
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert names == ["state", "progress", "segment", "progress", "state"]
    ids = [line.removeprefix("id: ") for line in lines if line.startswith("id: ")]
    again = server.client.get(f"/jobs/{job}/events", headers={"Last-Event-ID": ids[-2]})
    assert again.text.count("event: ") == 1 and '"cancelled","final":true' in again.text
    over = server.client.get(f"/jobs/{job}/events", headers={"Last-Event-ID": ids[-1]})
    assert (over.status_code, over.content) == (204, b"")


def test_real_server_ends_a_stream_when_its_job_is_deleted(server: Served) -> None:
    job = server.make_job()

    with server.client.stream("GET", f"/jobs/{job}/events") as stream:
        lines = stream.iter_lines()
        assert any(line == "event: progress" for line in lines)
        server.run(f"RenderJob.objects.get(pk='{job}').delete()")
        assert "event: deleted" in list(lines)
