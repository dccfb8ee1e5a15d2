"""Test synth.live.player: a client that leaves ends its stream, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection
from typing import Any

import pytest

from synth.live.player import LivePlayer, Outcome
from synth.live.reading import Looked
from synth.live.watcher import LiveWatcher


def nothing_found(_new: Collection[uuid.UUID], _wanted: Collection[int]) -> Looked:
    """Find no job; listeners are woken by the test alone."""
    return Looked({}, {})


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
