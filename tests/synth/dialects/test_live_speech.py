"""Requests for speech are sent their audio while it is rendered, as a file or as events."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

import pytest
from django.db import OperationalError

from synth.api.jobs.wait import JobWait
from synth.dialects import speech_wait
from synth.dialects.speech_wait import THEN_HEADER, SpeechWait
from synth.formats import FORMATS
from synth.live import watcher
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER, LivePlayer
from synth.live.watcher import LiveWatcher, SegmentState
from tests.synth.audio.received import receive
from tests.synth.live.listening import JOB, RATE, TRAILERS, Client, Rows, pieces_of

URL = "/v1/audio/speech"
USAGE = {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}
TOLD = {"x-tts-ignored": "instructions", "access-control-allow-origin": "https://reader.example"}


class View:
    """Answer like the views: an error with the headers, then what has become of the job."""

    def __init__(self, form: str, stream_format: str, start_seconds: float) -> None:
        address = f"{URL}/{JOB}?stream_format={stream_format}"
        said = {
            THEN_HEADER: f"{start_seconds} {JOB} {address}",
            LIVE_HEADER: LiveOptions(form, sample_rate=RATE).to_header(),
        }
        self.first = [(name.lower().encode(), one.encode()) for name, one in (said | TOLD).items()]
        self.has_ended = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        is_first = scope["method"] == "POST"
        status = 503 if is_first else 200 if self.has_ended else 504
        headers = self.first if is_first else [(b"access-control-allow-origin", b"of the second")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"the view's"})

    def unfinished(self, job_ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
        return set() if self.has_ended else set(job_ids)


class Stage(NamedTuple):
    """What a scene has: rows, the view, who looks for listeners, and a request to come."""

    rows: Rows
    view: View
    looking: LiveWatcher
    ask: Callable[..., Client]


Scene = Callable[[Stage], Awaitable[None]]


def play(
    happens: Scene,
    *,
    form: str = "pcm",
    stream_format: str = "audio",
    max_streams: int = 9,
    start_seconds: float = 60,
) -> None:
    """Let a scene happen around the application, wrapped as the server has it."""

    async def run() -> None:
        rows, view = Rows(form), View(form, stream_format, start_seconds)
        looking = LiveWatcher(rows.look_up, rows.noted.append, note_seconds=60)
        player = LivePlayer(max_streams=max_streams, watcher=looking, read=rows.read)
        app = SpeechWait(JobWait(view, max_waiters=9, unfinished=view.unfinished), player)

        def ask(**more: Any) -> Client:
            return Client(app, method="POST", query=b"", path=URL, **more)

        await happens(Stage(rows, view, looking, ask))
        assert not looking.listeners, "a place is still taken"

    asyncio.run(run())


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "SOON_SECONDS", 0.001)
    monkeypatch.setattr(speech_wait, "read_usage", lambda _: USAGE)


def events_of(client: Client) -> list[dict[str, Any]]:
    """Return the data of events; an error has its name before it."""
    found = []
    for block in client.body.decode().split("\n\n")[:-1]:
        lines = block.splitlines()
        assert len(lines) == 1 or lines[0] == "event: error", block
        found.append(json.loads(lines[-1].removeprefix("data: ")))
    return found


def sound_of(events: list[dict[str, Any]]) -> bytes:
    deltas = [one for one in events if one["type"] == "speech.audio.delta"]
    return b"".join(base64.b64decode(one["audio"]) for one in deltas)


@pytest.mark.parametrize("form", FORMATS)
def test_events_begin_before_the_rest_is_rendered_and_end_with_the_usage(form: str) -> None:
    pieces = pieces_of(2)

    async def heard(on: Stage) -> None:
        on.rows.write(*pieces[:4])
        client = on.ask()
        await client.until_sent(1)  # nothing else is rendered before this was received
        begun = events_of(client)
        on.rows.write(*pieces, is_whole=True, status="done")
        await client.end()

        events = events_of(client)
        assert {one["type"] for one in begun} == {"speech.audio.delta"}
        assert {one["type"] for one in events[:-1]} == {"speech.audio.delta"}
        assert events[-1] == {"type": "speech.audio.done", "usage": USAGE}
        assert client.sent[-1]["more_body"] is False
        headers = client.headers
        assert headers["content-type"] == "text/event-stream"
        assert (headers["tts-job-id"], headers["tts-sample-rate"]) == (str(JOB), str(RATE))
        if FORMATS[form].is_played:
            samples, rate, _ = receive(sound_of(events))
            assert len(samples) / rate == pytest.approx(2, abs=0.3)
        else:
            assert sound_of(events) == b"".join(pieces)

    play(heard, form=form, stream_format="sse")


def test_failing_render_ends_events_with_an_error_of_openais_shape() -> None:
    async def heard(on: Stage) -> None:
        on.rows.write(b"aabb", is_whole=True, status="done")
        on.rows.states[2] = SegmentState("failed", None, 0)
        client = on.ask(**TRAILERS)
        await client.end()

        *deltas, last = events_of(client)
        assert sound_of(deltas) == b"aabb"
        assert (last["type"], last["error"]["code"]) == ("error", "segment_without_audio")
        assert sorted(last["error"]) == ["code", "message", "param", "type"]
        assert client.sent[-1]["more_body"] is False
        assert "trailer" not in client.headers

    play(heard, stream_format="sse")


def test_usage_that_the_database_does_not_tell_is_an_error_behind_all_audio(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: uuid.UUID) -> dict[str, int]:
        raise OperationalError("away")

    monkeypatch.setattr(speech_wait, "read_usage", fail)

    async def heard(on: Stage) -> None:
        on.rows.write(b"aabb", is_whole=True, status="done")
        client = on.ask()
        await client.end()

        events = events_of(client)
        assert sound_of(events) == b"aabb"
        assert events[-1]["error"]["code"] == "database_unavailable"

    play(heard, stream_format="sse")


def test_failing_render_breaks_a_file_off() -> None:
    async def heard(on: Stage) -> None:
        on.rows.write(b"aabb", is_whole=True, status="done")
        on.rows.states[2] = SegmentState("failed", None, 0)
        client = on.ask()
        await client.end()

        assert (client.status, client.body) == (200, b"aabb")
        assert client.sent[-1]["more_body"] is True

    play(heard)


def test_what_the_first_answer_tells_of_the_request_is_told_with_the_audio() -> None:
    async def heard(on: Stage) -> None:
        on.rows.write(b"aabb", is_whole=True, status="done")
        client = on.ask()
        await client.end()

        assert TOLD.items() <= client.headers.items()
        assert client.headers["content-type"] == "audio/pcm"
        assert not {THEN_HEADER.lower(), LIVE_HEADER.lower()} & client.headers.keys()

    play(heard)


@pytest.mark.parametrize(("has_ended", "status"), [(True, 200), (False, 504)])
def test_job_without_any_audio_gets_the_views_second_answer(has_ended: bool, status: int) -> None:
    async def heard(on: Stage) -> None:
        on.view.has_ended = has_ended
        if has_ended:
            on.rows.states[1] = SegmentState("failed", None, 0)
        client = on.ask()
        await client.end()

        assert (client.status, client.body) == (status, b"the view's")
        second = {"x-tts-ignored": "instructions", "access-control-allow-origin": "of the second"}
        assert client.headers == second

    play(heard, stream_format="sse", start_seconds=60 if has_ended else 0.1)


def test_listener_beyond_the_limit_waits_for_the_file() -> None:
    async def heard(on: Stage) -> None:
        on.rows.write(b"aabb")
        first = on.ask()
        await first.until(b"aabb")
        second = on.ask()
        await asyncio.sleep(0.1)
        assert second.sent == []
        on.view.has_ended = True
        await second.end()

        assert (second.status, second.body) == (200, b"the view's")
        await first.leave()

    play(heard, max_streams=1)


@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_who_leaves_before_or_behind_the_first_sound_frees_his_place(stream_format: str) -> None:
    async def heard(on: Stage) -> None:
        early = on.ask()
        await asyncio.sleep(0.05)
        assert len(on.looking.listeners) == 1
        await early.leave()
        assert not on.looking.listeners
        on.rows.write(b"aabb")
        late = on.ask()
        await late.until_sent(1)
        await late.leave()

    play(heard, stream_format=stream_format)
