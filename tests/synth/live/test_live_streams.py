"""Live streams around an application that answers like the view, with rows that the test holds."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest
from django.db import OperationalError

from synth.live import streams as player
from synth.live import watcher
from synth.live.streams import LIVE_HEADER, LivePlayer, LiveStreams, Outcome, wav_head
from synth.live.watcher import Chunk, LiveRows, LiveWatcher, SegmentState

JOB = uuid.UUID("7b6b1de4-6f2c-4a3c-9e0a-111111111111")
TAKE = uuid.UUID(int=7)
URL = f"/api/v1/jobs/{JOB}/audio"
RATE = 8000


class Rows:
    """Stand for the database, the storage, and the view that answers first."""

    def __init__(self, *, form: str | None = "pcm") -> None:
        self.form = form
        self.states: dict[int, SegmentState] = {1: SegmentState("claimed", None, 0)}
        self.objects: dict[str, bytes] = {}
        self.num_looks = 0
        self.noted: list[Collection[uuid.UUID]] = []
        self.failing = False

    def write(self, *pieces: bytes, is_whole: bool = False, status: str = "claimed") -> None:
        self.objects |= {f"key{index}": piece for index, piece in enumerate(pieces)}
        chunks = [
            Chunk(
                index, f"key{index}", len(piece) // 2, RATE, is_whole and index == len(pieces) - 1
            )
            for index, piece in enumerate(pieces)
        ]
        take = TAKE if status == "done" else None
        self.states[1] = SegmentState(status, take, 0, {TAKE: chunks})

    def look_up(self, new: Collection[uuid.UUID], wanted: Collection[int]) -> LiveRows:
        self.num_looks += 1
        if self.failing:
            raise OperationalError("away")
        order = [*self.states]
        return LiveRows(
            dict.fromkeys(new, order), {pk: self.states[pk] for pk in wanted if pk in self.states}
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", b"audio/pcm")]
        if self.form is not None:
            headers.append((LIVE_HEADER.lower().encode(), self.form.encode()))
        status = 200 if self.form is not None else 404
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"the view's"})


class Client:
    """A listener: it keeps what it is sent, can leave, and can stop taking."""

    def __init__(self, app: LiveStreams, *, query: bytes = b"live=1", method: str = "GET") -> None:
        self.sent: list[dict[str, Any]] = []
        self.may_take = asyncio.Event()
        self.may_take.set()
        self.messages = asyncio.Queue[dict[str, Any]]()
        scope = {"type": "http", "method": method, "path": URL, "query_string": query}
        self.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        self.serving = asyncio.create_task(app(scope, self.messages.get, self._keep))

    async def _keep(self, message: Any) -> None:
        await self.may_take.wait()
        self.sent.append(dict(message))

    @property
    def status(self) -> int:
        code: int = self.sent[0]["status"]
        return code

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def until(self, body: bytes) -> None:
        """Return once exactly this was sent."""
        async with asyncio.timeout(180):
            while self.body != body:
                await asyncio.sleep(0.005)

    async def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})
        await self.end()

    async def end(self) -> None:
        await asyncio.wait_for(self.serving, 180)


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "SOON_SECONDS", 0.001)


def play(
    rows: Rows,
    scene: Callable[[LiveStreams, LiveWatcher], Awaitable[None]],
    *,
    max_streams: int = 100,
    start_seconds: float = 5.0,
) -> None:
    """Run a scene against an application that is wrapped."""

    async def run() -> None:
        looking = LiveWatcher(rows.look_up, rows.noted.append, note_seconds=0.05)
        player = LivePlayer(max_streams=max_streams, watcher=looking, read=rows.objects.get)
        app = LiveStreams(rows, player, start_seconds=start_seconds)
        await scene(app, looking)
        async with asyncio.timeout(180):  # the rounds end with the last listener
            while looking._rounds is not None and not looking._rounds.done():
                await asyncio.sleep(0.005)

    asyncio.run(run())


def test_audio_goes_out_as_it_is_listed_and_ends_with_the_job() -> None:
    rows = Rows(form="wav")

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        client = Client(app)
        rows.write(b"aabb")
        await client.until(wav_head(RATE) + b"aabb")
        rows.write(b"aabb", b"cc", is_whole=True, status="done")
        await client.end()

        assert (client.status, client.headers["tts-sample-rate"]) == (200, str(RATE))
        assert client.body == wav_head(RATE) + b"aabbcc"
        assert client.sent[-1]["more_body"] is False

    play(rows, scene)


def test_fifty_listeners_share_each_look() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        rows.write(b"aabb")
        clients = [Client(app) for _ in range(50)]
        for client in clients:
            await client.until(b"aabb")
        looks = rows.num_looks
        await asyncio.sleep(0.2)
        assert rows.num_looks - looks < 20
        rows.write(b"aabb", is_whole=True, status="done")
        for client in clients:
            await client.end()
        assert not looking.listeners

    play(rows, scene)


def test_listener_who_takes_nothing_holds_up_nobody_and_is_sent_no_more() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        rows.write(b"aabb")
        slow, quick = Client(app), Client(app)
        await slow.until(b"aabb")
        slow.may_take.clear()
        rows.write(b"aabb", b"ccdd", b"ee", is_whole=True, status="done")
        await quick.end()
        assert (quick.body, slow.body) == (b"aabbccddee", b"aabb")
        slow.may_take.set()
        await slow.end()
        assert slow.body == b"aabbccddee"

    play(rows, scene)


def test_client_that_takes_nothing_for_long_loses_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(player, "SILENT_SECONDS", 0.1)
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        rows.write(b"aabb")
        client = Client(app)
        await client.until(b"aabb")
        client.may_take.clear()
        rows.write(b"aabb", b"ccdd")
        with pytest.raises(TimeoutError):
            await client.end()
        assert not looking.listeners

    play(rows, scene)


def test_disconnected_listener_frees_its_place() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        rows.write(b"aabb")
        first = Client(app)
        await first.until(b"aabb")
        refused = Client(app)
        await refused.end()
        assert (refused.status, b"too_many_live_streams" in refused.body) == (503, True)
        assert refused.headers["retry-after"]
        assert LIVE_HEADER.lower() not in refused.headers
        await first.leave()
        assert not looking.listeners
        second = Client(app)
        await second.until(b"aabb")
        await second.leave()

    play(rows, scene, max_streams=1)


def test_listener_is_noted_so_that_pieces_stay() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        client = Client(app)
        async with asyncio.timeout(180):
            while not rows.noted:
                await asyncio.sleep(0.01)
        assert rows.noted[0] == {JOB}
        await client.leave()

    play(rows, scene)


def test_database_that_is_away_for_a_moment_is_waited_for() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        rows.write(b"aabb")
        client = Client(app)
        await client.until(b"aabb")
        rows.failing = True
        await asyncio.sleep(0.1)
        rows.failing = False
        rows.write(b"aabb", b"cc", is_whole=True, status="done")
        await client.end()
        assert client.body == b"aabbcc"

    play(rows, scene)


def test_deleted_job_breaks_the_stream_off_behind_what_was_sent() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        rows.write(b"aabb")
        client = Client(app)
        await client.until(b"aabb")
        rows.states.clear()
        await client.end()
        assert (client.body, client.sent[-1]["more_body"]) == (b"aabb", True)

    play(rows, scene)


def test_object_that_is_gone_breaks_the_stream_off() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        rows.write(b"aabb", b"cc")
        del rows.objects["key1"]
        client = Client(app)
        await client.end()
        assert (client.body, client.sent[-1]["more_body"]) == (b"aabb", True)

    play(rows, scene)


def test_segment_without_audio_is_left_out_and_the_answer_is_not_completed() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        rows.write(b"aabb", is_whole=True, status="done")
        rows.states[2] = rows.states[1]
        rows.states[1] = SegmentState("failed", None, 0)
        client = Client(app)
        await client.end()
        assert (client.body, client.sent[-1]["more_body"]) == (b"aabb", True)

    play(rows, scene)


def test_job_without_audio_gets_the_views_second_answer() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        client = Client(app)
        await asyncio.sleep(0.05)
        rows.form = None
        rows.states[1] = SegmentState("failed", None, 0)
        await client.end()
        assert (client.status, client.body) == (404, b"the view's")

    play(rows, scene)


def test_first_audio_that_does_not_come_in_time_is_to_be_asked_for_again() -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        client = Client(app)
        await client.end()
        assert (client.status, b"live_not_started" in client.body) == (503, True)
        assert client.headers["retry-after"] == "5"

    play(rows, scene, start_seconds=0.1)


@pytest.mark.parametrize(("query", "method"), [(b"", "GET"), (b"live=1", "HEAD")])
def test_other_requests_go_through(query: bytes, method: str) -> None:
    rows = Rows()

    async def scene(app: LiveStreams, looking: LiveWatcher) -> None:
        client = Client(app, query=query, method=method)
        await client.end()
        assert client.body == b"the view's"

    play(rows, scene)


def nothing_found(_new: Collection[uuid.UUID], _wanted: Collection[int]) -> LiveRows:
    """Find no job; listeners are woken by the test alone."""
    return LiveRows({}, {})


@pytest.mark.parametrize("turns", range(8))
def test_a_client_that_leaves_as_news_arrive_ends_its_stream(turns: int) -> None:
    async def leave() -> Outcome:
        watcher = LiveWatcher(nothing_found, lambda _: None, note_seconds=60)
        watcher._watch = asyncio.Event().wait  # type: ignore[method-assign, assignment]  # no looks
        player = LivePlayer(max_streams=1, watcher=watcher)
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(_message: Any) -> None:
            raise AssertionError("nothing is there to be sent")

        stream = asyncio.create_task(
            player.stream(uuid.uuid4(), "wav", receive, send, start_seconds=60)
        )
        await asyncio.sleep(0.01)
        (listener,) = watcher.listeners
        for turn in range(9):  # the two meet in every order, one turn of the loop apart
            if turn == 4:
                listener.changed.set()
            if turn == turns:
                gone.set()
            await asyncio.sleep(0)
        async with asyncio.timeout(180):
            return await stream

    assert asyncio.run(leave()) is Outcome.LEFT
