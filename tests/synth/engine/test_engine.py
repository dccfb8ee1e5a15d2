"""Test the engine's front: batches, neighbours, cancels, refusals and failures of one request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from synth.contract import FinishReason, Reference, RenderSpec, Sampling, SegmentAudio
from synth.engine import Engine, EngineConfig
from synth.engine.errors import (
    CheckpointError,
    EngineClosedError,
    InvalidSpecError,
    NonFiniteLogitsError,
    PromptTooLongError,
)

TINY = Path(__file__).parents[2] / "data" / "golden" / "tiny-s2"
CONFIG = EngineConfig(checkpoint=TINY, device="cpu", slots=3, max_positions=512)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    loaded = Engine.load(CONFIG)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def reference(engine: Engine) -> Reference:
    tone = np.sin(np.arange(44_100) / 20).astype(np.float32) * 0.3
    return Reference("A tone.", engine.encode_reference(tone, 44_100))


def spec(
    reference: Reference | None, text: str = "Hello there.", /, **sampling: float
) -> RenderSpec:
    values = {"max_frames": 6, "seed": 1, **sampling}
    return RenderSpec(text, reference, Sampling(**values))  # type: ignore[arg-type]  # mixed numbers


def test_audio_is_one_hop_for_each_frame_of_codes(engine: Engine, reference: Reference) -> None:
    take = engine.render(spec(reference))

    assert take.codes.dtype == np.int16
    assert take.codes.shape == (10, 6)
    assert take.audio.shape == (6 * 2048,)
    assert take.sample_rate == 44_100
    assert take.finish_reason is FinishReason.FRAME_LIMIT
    again, other = (engine.render(spec(reference, seed=seed)) for seed in (1, 2))
    assert np.array_equal(take.codes, again.codes)
    assert not np.array_equal(take.codes, other.codes)


def test_neighbours_do_not_change_a_request(engine: Engine, reference: Reference) -> None:
    alone = engine.render(spec(reference, seed=5))

    texts = ["One.", "Hello there.", "Three words here, or four.", "Five.", "Six and seven."]
    seeds = [1, 5, 3, 4, 9]
    together = [
        engine.submit(spec(reference, text, seed=seed))
        for text, seed in zip(texts, seeds, strict=True)
    ]
    takes = [future.result() for future in together]

    assert np.array_equal(takes[1].codes, alone.codes)
    assert not np.array_equal(takes[0].codes, alone.codes)


def test_a_voice_is_run_through_once_for_all_its_segments(engine: Engine) -> None:
    rng = np.random.default_rng(99)
    known = Reference("Known.", rng.integers(0, 256, (10, 20), dtype=np.int16))
    before = engine.describe()["prefix_cache"]

    for future in [engine.submit(spec(known, f"Number {n}.")) for n in range(7)]:
        future.result(60)

    after = engine.describe()["prefix_cache"]
    assert after["prefixes"] == before["prefixes"] + 1
    assert after["misses"] == before["misses"] + 1
    assert after["bytes"] > before["bytes"]


def test_a_voice_deleted_while_it_speaks_ends_its_sentence(engine: Engine) -> None:
    rng = np.random.default_rng(98)
    deleted = Reference("Deleted.", rng.integers(0, 256, (10, 20), dtype=np.int16))
    expected = engine.render(spec(deleted, max_frames=80))
    kept = engine.describe()["prefix_cache"]["prefixes"]

    future = engine.submit(spec(deleted, max_frames=80))
    wait_until(lambda: engine.describe()["slots_in_use"] > 0)
    engine.forget_voice(deleted)

    wait_until(lambda: engine.describe()["prefix_cache"]["prefixes"] == kept - 1)
    assert np.array_equal(future.result(60).codes, expected.codes)


def test_a_clip_is_encoded_before_a_long_queue_has_ended(
    engine: Engine, reference: Reference
) -> None:
    waiting = [engine.submit(spec(reference, max_frames=100)) for _ in range(12)]

    codes = engine.encode_reference(np.zeros(4_410, np.float32), 44_100)

    assert codes.shape == (10, 3)
    assert not waiting[-1].done()
    assert all(future.result(60).codes.shape[1] == 100 for future in waiting)


def test_more_requests_than_slots_all_come_back(engine: Engine, reference: Reference) -> None:
    futures = [engine.submit(spec(reference, max_frames=2 + n % 4)) for n in range(10)]

    assert [f.result(60).codes.shape[1] for f in futures] == [2 + n % 4 for n in range(10)]


def test_an_urgent_request_overtakes_what_waits(engine: Engine, reference: Reference) -> None:
    ended: list[str] = []
    bulk = [engine.submit(spec(reference, max_frames=40), priority=10) for _ in range(9)]
    urgent = engine.submit(spec(reference, max_frames=2), priority=0)
    urgent.add_done_callback(lambda _: ended.append("urgent"))
    bulk[-1].add_done_callback(lambda _: ended.append("last of bulk"))

    bulk[-1].result(120)

    assert ended == ["urgent", "last of bulk"]


def test_a_cancelled_request_frees_its_slot(engine: Engine, reference: Reference) -> None:
    long = [engine.submit(spec(reference, max_frames=300)) for _ in range(3)]
    wait_until(lambda: engine.describe()["slots_in_use"] == 3)

    assert all(future.cancel() for future in long)

    assert engine.render(spec(reference)).codes.shape[1] == 6
    wait_until(lambda: engine.describe()["slots_in_use"] == 0)


def test_a_prompt_that_does_not_fit_is_refused_with_the_numbers(engine: Engine) -> None:
    limit = CONFIG.max_positions - 6

    with pytest.raises(PromptTooLongError) as caught:
        engine.render(spec(None, "word " * 2000))
    assert caught.value.limit == limit
    assert caught.value.positions > limit


@pytest.mark.parametrize(
    "values",
    [{"temperature": 0.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": 0}, {"top_k": 100_000}],
)
def test_sampling_out_of_range_is_refused(engine: Engine, values: dict[str, float]) -> None:
    with pytest.raises(InvalidSpecError):
        engine.render(spec(None, "Hello.", **values))


def test_one_bad_request_does_not_hurt_its_neighbours(engine: Engine, reference: Reference) -> None:
    futures = [engine.submit(spec(reference, top_k=0 if n == 2 else 30)) for n in range(5)]

    outcomes = [future.exception(60) for future in futures]

    assert [n for n, outcome in enumerate(outcomes) if outcome is not None] == [2]
    assert isinstance(outcomes[2], InvalidSpecError)


def test_poisoned_weights_fail_the_request_and_not_the_engine(reference: Reference) -> None:
    poisoned = Engine.load(CONFIG)
    weight = poisoned._models.dual_ar.slow.norm.weight
    healthy = weight.clone()
    try:
        weight.fill_(float("nan"))
        with pytest.raises(NonFiniteLogitsError):
            poisoned.render(spec(reference))

        weight.copy_(healthy)
        assert poisoned.render(spec(reference)).codes.shape[1] == 6
    finally:
        poisoned.close()


def test_closing_ends_what_is_unfinished(engine: Engine, reference: Reference) -> None:
    one, engine = engine, Engine.load(CONFIG)
    assert one.codec_fingerprint == engine.codec_fingerprint
    futures = [engine.submit(spec(reference, max_frames=400)) for _ in range(6)]

    engine.close()

    assert {type(future.exception(10)) for future in futures} == {EngineClosedError}
    with pytest.raises(EngineClosedError):
        engine.submit(spec(reference))


def test_a_reference_is_encoded_while_segments_render(engine: Engine, reference: Reference) -> None:
    future = engine.submit(spec(reference, max_frames=120))
    silence = np.zeros((2, 48_000), np.float32)

    codes = engine.encode_reference(silence, 48_000)

    assert codes.shape == (10, 22)
    assert isinstance(future.result(60), SegmentAudio)


def test_steps_grow_while_work_is_done_and_stand_still_when_idle(
    engine: Engine, reference: Reference
) -> None:
    wait_until(lambda: not engine.is_busy)
    before = engine.steps

    engine.render(spec(reference))

    wait_until(lambda: not engine.is_busy)
    after = engine.steps
    assert after > before
    time.sleep(0.05)
    assert engine.steps == after
    engine.encode_reference(np.zeros(44_100, np.float32), 44_100)
    assert engine.steps - after > 20  # one call, and yet a watcher sees its layers move


def test_a_folder_that_is_not_there_and_an_unknown_device_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere"):
        Engine.load(replace(CONFIG, checkpoint=tmp_path / "nowhere"))
    with pytest.raises(InvalidSpecError, match="auto, cpu or cuda"):
        Engine.load(replace(CONFIG, device="quantum"))
    if not torch.cuda.is_available():
        with pytest.raises(InvalidSpecError, match="sees 0 CUDA devices"):
            Engine.load(replace(CONFIG, device="cuda:0"))


def test_warm_up_from_many_threads_is_safe(engine: Engine) -> None:
    threads = [threading.Thread(target=engine.warm_up) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not any(thread.is_alive() for thread in threads)


def wait_until(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    """Wait for a condition, or fail the test."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_samples_are_given_while_they_are_made_and_are_those_of_the_answer(
    engine: Engine, reference: Reference
) -> None:
    heard: list[np.ndarray] = []

    future = engine.submit(spec(reference, max_frames=12), on_audio=heard.append)
    take = future.result()

    assert len(heard) > 2
    assert np.array_equal(np.concatenate(heard), take.audio)
    plain = engine.render(spec(reference, max_frames=12))
    assert np.array_equal(take.codes, plain.codes)
    assert np.abs(take.audio - plain.audio).max() < 1e-4
