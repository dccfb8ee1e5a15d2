"""Live streams around an application that answers like the view, with rows that the test holds."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

import pytest

from synth.audio.writers import wav_head
from synth.formats import FORMATS
from synth.live import streams, watcher
from synth.live.pipeline import LiveOptions, Pipeline
from synth.live.streams import (
    LIVE_HEADER,
    LiveAnswer,
    LivePlayer,
    LiveStreams,
    Outcome,
    live_headers,
)
from synth.live.watcher import Chunk, LiveRows, LiveWatcher, SegmentState
from tests.synth.audio.received import receive
from tests.synth.live.listening import JOB, RATE, TAKE, TRAILERS, Client, Failing, Rows, pieces_of


@pytest.fixture(autouse=True)
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(watcher, "SOON_SECONDS", 0.001)


class Stage(NamedTuple):
    """What a scene has: rows that it may change, the application, and who looks for listeners."""

    rows: Rows
    app: LiveStreams
    looking: LiveWatcher


Scene = Callable[[Stage], Awaitable[None]]


def scene(
    *, form: str = "pcm", max_streams: int = 100, start_seconds: float = 5.0
) -> Callable[[Scene], Callable[[], None]]:
    """Make a test of what happens around an application that is wrapped."""

    async def run(happens: Scene) -> None:
        rows = Rows(form)
        looking = LiveWatcher(rows.look_up, rows.noted.append, note_seconds=0.05)
        player = LivePlayer(max_streams=max_streams, watcher=looking, read=rows.read)
        await happens(Stage(rows, LiveStreams(rows, player, start_seconds=start_seconds), looking))
        async with asyncio.timeout(180):  # the rounds end with the last listener
            while looking._rounds is not None and not looking._rounds.done():
                await asyncio.sleep(0.005)

    return lambda happens: lambda: asyncio.run(run(happens))


@scene(form="wav")
async def test_audio_goes_out_as_it_is_listed_and_ends_with_the_job(on: Stage) -> None:
    client = Client(on.app)
    on.rows.write(b"aabb")
    await client.until(wav_head(RATE) + b"aabb")
    on.rows.write(b"aabb", b"cc", is_whole=True, status="done")
    await client.end()

    assert (client.status, client.headers["tts-sample-rate"]) == (200, str(RATE))
    assert client.body == wav_head(RATE) + b"aabbcc"
    assert client.sent[-1]["more_body"] is False


@scene()
async def test_fifty_listeners_share_each_look(on: Stage) -> None:
    on.rows.write(b"aabb")
    clients = [Client(on.app) for _ in range(50)]
    for client in clients:
        await client.until(b"aabb")
    looks = on.rows.num_looks
    await asyncio.sleep(0.2)
    assert on.rows.num_looks - looks < 20
    on.rows.write(b"aabb", is_whole=True, status="done")
    for client in clients:
        await client.end()
    assert not on.looking.listeners


@pytest.mark.parametrize("form", FORMATS)
def test_each_format_is_heard_before_the_rest_is_rendered(form: str) -> None:
    pieces = pieces_of(2)

    @scene(form=form)
    async def heard(on: Stage) -> None:
        on.rows.write(*pieces[:3])
        client = Client(on.app)
        await client.until_sent(1)  # nothing else is rendered before this was received
        on.rows.write(*pieces, is_whole=True, status="done")
        await client.end()

        assert client.headers["content-type"] == FORMATS[form].content_type
        assert client.headers["tts-sample-rate"] == str(RATE)
        assert client.sent[-1]["more_body"] is False
        if FORMATS[form].is_played:
            samples, rate, _ = receive(client.body)
            assert len(samples) / rate == pytest.approx(2, abs=0.3)

    heard()


@scene()
async def test_listener_who_takes_nothing_holds_up_nobody_and_is_sent_no_more(on: Stage) -> None:
    on.rows.write(b"aabb")
    slow, quick = Client(on.app), Client(on.app)
    await slow.until(b"aabb")
    slow.may_take.clear()
    on.rows.write(b"aabb", b"ccdd", b"ee", is_whole=True, status="done")
    await quick.end()
    assert (quick.body, slow.body) == (b"aabbccddee", b"aabb")
    slow.may_take.set()
    await slow.end()
    assert slow.body == b"aabbccddee"


@scene()
async def test_slow_listeners_pieces_are_neither_read_nor_encoded_ahead(on: Stage) -> None:
    on.rows.write(b"aa")
    slow = [Client(on.app) for _ in range(streams.THREADS + 1)]
    for client in slow:
        await client.until(b"aa")
        client.may_take.clear()
    on.rows.num_reads = 0
    on.rows.write(*[b"aa"] * 50, is_whole=True, status="done")
    quick = Client(on.app)
    await quick.end()

    assert quick.body == b"aa" * 50
    assert on.rows.num_reads <= 50 + len(slow)
    for client in slow:
        await client.leave()
    assert not on.looking.listeners


@scene(max_streams=1)
async def test_who_leaves_frees_his_place_though_his_piece_is_still_encoded(on: Stage) -> None:
    going_on, begun = threading.Event(), threading.Event()

    def encode_slowly(_pipeline: Pipeline, _content: bytes) -> bytes:
        begun.set()
        going_on.wait(180)
        return b"late"

    on.rows.write(b"aabb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pipeline, "sound", encode_slowly)
        first = Client(on.app)
        await asyncio.to_thread(begun.wait, 180)
        await first.leave()
    try:
        assert not on.looking.listeners
        second = Client(on.app)
        await second.until(b"aabb")
        await second.leave()
    finally:
        going_on.set()
    assert first.sent == []


@scene()
async def test_client_that_takes_nothing_for_long_loses_its_stream(on: Stage) -> None:
    on.rows.write(b"aabb")
    client = Client(on.app)
    await client.until(b"aabb")
    client.may_take.clear()
    on.rows.write(b"aabb", b"ccdd")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "SILENT_SECONDS", 0.1)
        with pytest.raises(TimeoutError):
            await client.end()
    assert not on.looking.listeners


@scene(max_streams=1)
async def test_disconnected_listener_frees_its_place(on: Stage) -> None:
    on.rows.write(b"aabb")
    first = Client(on.app)
    await first.until(b"aabb")
    refused = Client(on.app)
    await refused.end()
    assert (refused.status, b"too_many_live_streams" in refused.body) == (503, True)
    assert refused.headers["retry-after"]
    assert LIVE_HEADER.lower() not in refused.headers
    await first.leave()
    assert not on.looking.listeners
    second = Client(on.app)
    await second.until(b"aabb")
    await second.leave()


@scene()
async def test_listener_is_noted_so_that_pieces_stay(on: Stage) -> None:
    client = Client(on.app)
    async with asyncio.timeout(180):
        while not on.rows.noted:
            await asyncio.sleep(0.01)
    assert on.rows.noted[0] == {JOB}
    await client.leave()


@scene()
async def test_database_that_is_away_for_a_moment_is_waited_for(on: Stage) -> None:
    on.rows.write(b"aabb")
    client = Client(on.app)
    await client.until(b"aabb")
    on.rows.failing = True
    await asyncio.sleep(0.1)
    on.rows.failing = False
    on.rows.write(b"aabb", b"cc", is_whole=True, status="done")
    await client.end()
    assert client.body == b"aabbcc"


@scene()
async def test_deleted_job_or_object_breaks_the_stream_off_behind_what_was_sent(on: Stage) -> None:
    on.rows.write(b"aabb")
    first = Client(on.app)
    await first.until(b"aabb")
    on.rows.states.clear()
    await first.end()
    on.rows.write(b"aabb", b"cc")
    del on.rows.objects["key1"]
    second = Client(on.app)
    await second.end()
    for client in (first, second):
        assert (client.body, client.sent[-1]["more_body"]) == (b"aabb", True)


@scene()
async def test_segment_without_audio_is_left_out_and_the_answer_is_not_completed(on: Stage) -> None:
    on.rows.write(b"aabb", is_whole=True, status="done")
    on.rows.states[2] = on.rows.states[1]
    on.rows.states[1] = SegmentState("failed", None, 0)
    client = Client(on.app)
    await client.end()
    assert (client.body, client.sent[-1]["more_body"]) == (b"aabb", True)


@scene()
async def test_trailer_names_the_error_where_server_and_client_have_trailers(on: Stage) -> None:
    on.rows.write(b"aabb", is_whole=True, status="done")
    whole = Client(on.app, **TRAILERS)
    await whole.end()
    on.rows.states[2] = SegmentState("failed", None, 0)
    broken = Client(on.app, **TRAILERS)
    untold = [Client(on.app, **{name: TRAILERS[name]}) for name in TRAILERS]
    for client in (broken, *untold):
        await client.end()

    assert whole.headers["trailer"] == broken.headers["trailer"] == "TTS-Error"
    assert whole.sent[-1] == {"type": "http.response.trailers", "headers": []}
    error = [(b"tts-error", b"segment_without_audio")]
    assert broken.sent[-1] == {"type": "http.response.trailers", "headers": error}
    assert {client.body for client in (whole, broken, *untold)} == {b"aabb"}
    for client in untold:
        assert client.sent[-1]["more_body"] is True
        assert "trailer" not in client.headers


@scene()
async def test_object_that_is_gone_at_the_beginning_gets_the_views_second_answer(on: Stage) -> None:
    client = Client(on.app)
    await asyncio.sleep(0.05)
    on.rows.form = None
    on.rows.write(b"aabb")
    on.rows.objects.clear()
    await client.end()
    assert (client.status, client.body) == (404, b"the view's")


@scene()
async def test_storage_that_cannot_be_read_breaks_the_stream_off(on: Stage) -> None:
    on.rows.write(b"aabb")
    client = Client(on.app, **TRAILERS)
    await client.until(b"aabb")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on.rows, "objects", Failing())
        chunks = [*on.rows.states[1].attempts[TAKE], Chunk(1, "key1", 1, RATE, False)]
        on.rows.states[1] = SegmentState("claimed", None, 0, {TAKE: chunks})
        await client.end()
    assert client.sent[-1]["headers"] == [(b"tts-error", b"live_interrupted")]


@scene()
async def test_job_without_audio_gets_the_views_second_answer(on: Stage) -> None:
    client = Client(on.app)
    await asyncio.sleep(0.05)
    on.rows.form = None
    on.rows.states[1] = SegmentState("failed", None, 0)
    await client.end()
    assert (client.status, client.body) == (404, b"the view's")


@scene(start_seconds=0.1)
async def test_first_audio_that_does_not_come_in_time_is_to_be_asked_for_again(on: Stage) -> None:
    client = Client(on.app)
    await client.end()
    assert (client.status, b"live_not_started" in client.body) == (503, True)
    assert client.headers["retry-after"] == "5"


@scene()
async def test_other_requests_go_through(on: Stage) -> None:
    for client in (Client(on.app, query=b""), Client(on.app, method="HEAD")):
        await client.end()
        assert client.body == b"the view's"


def nothing_found(_new: Collection[uuid.UUID], _wanted: Collection[int]) -> LiveRows:
    """Find no job; listeners are woken by the test alone."""
    return LiveRows({}, {})


@pytest.mark.parametrize("turns", range(8))
def test_a_client_that_leaves_as_news_arrive_ends_its_stream(turns: int) -> None:
    async def leave() -> Outcome | None:
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
            player.stream(
                JOB,
                LiveOptions("wav"),
                receive,
                LiveAnswer({}, send, live_headers("wav", JOB)),
                start_seconds=60,
            )
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

    assert asyncio.run(leave()) is None
