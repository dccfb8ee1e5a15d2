"""What the engine rendered is settled many at a time, unless somebody waits for it."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import Future

import pytest

from synth.contract import RenderSpec
from ttsweb.work import Kind
from workers.process.held_claims import HeldClaim
from workers.rendering import rendered as rendered_module
from workers.rendering.render_request import RenderRequest
from workers.rendering.rendered import MOST_AT_ONCE, Rendered, RenderedQueue


@pytest.fixture
def runs() -> list[None]:
    """Grows by one for every run of settling that was asked for."""
    return []


@pytest.fixture
def queue(runs: list[None]) -> RenderedQueue:
    return RenderedQueue(lambda: runs.append(None))


def item() -> Rendered:
    request = RenderRequest(RenderSpec("Ox."), "key", priority=0)
    return Rendered(HeldClaim(Kind.SEGMENT, 1, uuid.uuid4()), request, Future())


def patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    monkeypatch.setattr(rendered_module, "LINGER_SECONDS", seconds)


def test_one_run_is_asked_for_however_much_comes_meanwhile(
    queue: RenderedQueue, runs: list[None]
) -> None:
    for _ in range(3):
        queue.add(item(), is_urgent=False)

    assert len(runs) == 1


def test_urgent_item_is_taken_at_once_with_all_that_waits(
    queue: RenderedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience(monkeypatch, 3600)
    items = [item(), item()]
    queue.add(items[0], is_urgent=False)
    queue.add(items[1], is_urgent=True)

    assert queue.take() == items


def test_run_that_waits_for_more_is_woken_by_an_urgent_item(
    queue: RenderedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience(monkeypatch, 3600)
    queue.add(item(), is_urgent=False)
    taken: list[Rendered] = []
    waiting = threading.Thread(target=lambda: taken.extend(queue.take()), daemon=True)
    waiting.start()

    queue.add(item(), is_urgent=True)
    waiting.join(30)

    assert len(taken) == 2


def test_what_nobody_waits_for_is_taken_after_a_moment(
    queue: RenderedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience(monkeypatch, 0.01)
    queue.add(item(), is_urgent=False)

    assert len(queue.take()) == 1


def test_batch_is_bounded_and_the_rest_has_a_run_of_its_own(
    queue: RenderedQueue, runs: list[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    patience(monkeypatch, 3600)
    for _ in range(MOST_AT_ONCE + 1):
        queue.add(item(), is_urgent=False)

    assert len(queue.take()) == MOST_AT_ONCE
    assert len(runs) == 1, "two runs at once"
    queue.end_run()
    assert len(runs) == 2
    patience(monkeypatch, 0)
    assert len(queue.take()) == 1
    queue.end_run()
    queue.add(item(), is_urgent=False)
    assert len(runs) == 3


def test_stop_waits_until_no_run_goes_on_and_not_for_ever(
    queue: RenderedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience(monkeypatch, 0)
    assert queue.wait_idle(0), "nothing has come yet"
    queue.add(item(), is_urgent=False)
    queue.take()
    assert not queue.wait_idle(0.01)

    ending = threading.Timer(0.05, queue.end_run)
    ending.start()

    assert queue.wait_idle(30)
