"""What the engine rendered is settled many at a time; voices that were evicted are forgotten."""

from __future__ import annotations

import threading
import uuid

import numpy as np
import pytest

from synth.contract import Reference
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import new_voice, submit
from ttsweb.work import Kind
from workers.process import held_claims as rendered_module
from workers.process.held_claims import (
    MOST_AT_ONCE,
    HeldClaim,
    References,
    RenderedQueue,
    SpokenVoices,
)
from workers.process.pump import forget_evicted


@pytest.fixture
def runs() -> list[None]:
    """Grows by one for every run of settling that was asked for."""
    return []


@pytest.fixture
def queue(runs: list[None]) -> RenderedQueue:
    return RenderedQueue(lambda: runs.append(None))


def item() -> HeldClaim:
    return HeldClaim(1, uuid.uuid4(), kind=Kind.SEGMENT)


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
    taken: list[HeldClaim] = []
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


@pytest.fixture
def spoken() -> SpokenVoices:
    return SpokenVoices()


@pytest.fixture
def forgotten() -> list[References]:
    """The references that the engine was asked to forget."""
    return []


def references(text: str) -> References:
    return (Reference(text, np.zeros((10, 4), dtype=np.int16)),)


def test_only_voices_with_an_evicted_clip_are_forgotten_and_once(
    spoken: SpokenVoices, forgotten: list[References]
) -> None:
    ada = references("Ada")
    spoken.note(("a1", "a2"), ada)
    spoken.note(("b1",), references("Bob"))

    for _ in range(2):
        spoken.forget(["a2", "unknown"], [], forgotten.append)

    assert forgotten == [ada]
    assert len(spoken) == 1


def test_voice_that_is_still_being_spoken_is_forgotten_again_when_its_last_segment_ends(
    spoken: SpokenVoices, forgotten: list[References]
) -> None:
    ada = references("Ada")
    spoken.note(("a1",), ada)
    first, second, later = (item() for _ in range(3))

    spoken.forget(["a1"], [first, second], forgotten.append)
    assert forgotten == [ada]
    spoken.forget([], [second, later], forgotten.append)
    assert forgotten == [ada]
    spoken.forget([], [later], forgotten.append)
    assert forgotten == [ada, ada]
    spoken.forget([], [], forgotten.append)
    assert forgotten == [ada, ada]


def test_memory_is_bounded(
    spoken: SpokenVoices, forgotten: list[References], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendered_module, "MOST_VOICES", 2)
    for name in ("a", "b", "a", "c"):
        spoken.note((name,), references(name))

    spoken.forget(["a", "b", "c"], [], forgotten.append)

    assert [one[0].text for one in forgotten] == ["a", "c"]


@pytest.mark.django_db(transaction=True)
def test_engine_lets_go_of_an_evicted_voice_and_of_no_other(process: MiniatureProcess) -> None:
    # The engine outlives a test: these transcripts make prefixes that it cannot hold already.
    voice = new_voice("Leaver", ("Evicted soon.", 1.1))
    other = new_voice("Stayer", ("Held on to.", 1.3))
    process.encode_all()

    def prefixes() -> int:
        return int(process.host.engine.describe()["prefix_cache"]["prefixes"])

    before = prefixes()
    for one in (voice, other):
        submit(one, text="Ox.")
    process.render_all()
    assert prefixes() == before + 2

    forget_evicted(process, [voice.versions.get().clips.get().stored.fingerprint])
    submit(other, text="Ox two.")  # when it has ended, the engine has heard of what was before
    process.render_all()

    assert prefixes() == before + 1
