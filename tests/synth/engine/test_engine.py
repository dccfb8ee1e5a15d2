"""Test the engine's front: batches, neighbours, cancels, refusals and failures of one request."""

from __future__ import annotations

import threading
import time
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from synth.contract import FinishReason, Reference
from synth.engine import Engine
from synth.engine.errors import (
    CheckpointError,
    EngineClosedError,
    InvalidSpecError,
)
from tests.synth.engine.engine_runs import (
    CONFIG,
    HOP,
    Start,
    assert_same_codes,
    lengths,
    render,
    spec,
    voice,
    wait_until,
)

HELLO = "Hello there."


@pytest.fixture(scope="module")
def reference(engine: Engine) -> Reference:
    tone = np.sin(np.arange(44_100) / 20).astype(np.float32) * 0.3
    return Reference("A tone.", engine.encode_reference(tone, 44_100))


def test_audio_is_one_hop_for_each_frame_of_codes(engine: Engine, reference: Reference) -> None:
    take = engine.render(spec(HELLO, reference))
    assert take.codes.dtype == np.int16
    assert take.codes.shape == (10, 6)
    assert (take.audio.shape, take.sample_rate) == ((6 * HOP,), 44_100)
    assert take.finish_reason is FinishReason.FRAME_LIMIT
    assert min(astuple(take.timings)) >= 0
    again, other = (engine.render(spec(HELLO, reference, seed=seed)) for seed in (1, 2))
    assert np.array_equal(take.codes, again.codes)
    assert not np.array_equal(take.codes, other.codes)


def test_a_voice_is_run_through_once_for_all_its_segments(engine: Engine) -> None:
    before = engine.describe()["prefix_cache"]
    render(engine, [spec(f"Number {n}.", voice(99, 20)) for n in range(7)])
    after = engine.describe()["prefix_cache"]
    assert [after[name] - before[name] for name in ("prefixes", "misses")] == [1, 1]
    assert after["bytes"] > before["bytes"]


def test_a_voice_deleted_while_it_speaks_ends_its_sentence(engine: Engine) -> None:
    deleted = spec(HELLO, voice(98, 20), max_frames=80)
    expected = engine.render(deleted)
    kept = engine.describe()["prefix_cache"]["prefixes"]
    future = engine.submit(deleted)
    wait_until(lambda: engine.describe()["slots_in_use"] > 0)
    engine.forget_voice(voice(98, 20))
    wait_until(lambda: engine.describe()["prefix_cache"]["prefixes"] == kept - 1)
    assert_same_codes([future.result(60)], [expected])


def test_a_clip_is_encoded_while_segments_render_and_before_a_long_queue_has_ended(
    engine: Engine, reference: Reference
) -> None:
    waiting = [engine.submit(spec(HELLO, reference, max_frames=100)) for _ in range(12)]
    codes = engine.encode_reference(np.zeros((2, 4_800), np.float32), 48_000)
    assert codes.shape == (10, 3)
    assert not waiting[-1].done()
    assert lengths(waiting) == [100] * 12


@pytest.mark.parametrize(
    "values",
    [{"temperature": 0.0}, {"top_p": 0.0}, {"top_p": 1.5}, {"top_k": 0}, {"top_k": 100_000}],
)
def test_sampling_out_of_range_is_refused_and_does_not_hurt_its_neighbours(
    engine: Engine, values: dict[str, float]
) -> None:
    futures = [engine.submit(spec(HELLO, **(values if n == 2 else {}))) for n in range(4)]
    assert isinstance(futures.pop(2).exception(60), InvalidSpecError)
    assert lengths(futures) == [6] * 3


def test_a_folder_loaded_again_is_the_same_engine(start: Start) -> None:
    one, other = start(), Engine.load(CONFIG)
    try:
        assert (one.engine_class, one.codec_fingerprint) == (
            other.engine_class,
            other.codec_fingerprint,
        )
        assert_same_codes([one.render(spec())], [other.render(spec())])
    finally:
        other.close()
    with pytest.raises(EngineClosedError):
        other.encode_reference(np.zeros(4_800, np.float32), 48_000)


def test_steps_grow_while_work_is_done_and_stand_still_when_idle(engine: Engine) -> None:
    wait_until(lambda: not engine.is_busy)
    before = engine.steps
    engine.render(spec())
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


def test_samples_are_given_while_they_are_made_and_are_those_of_the_answer(
    engine: Engine, reference: Reference
) -> None:
    heard: list[np.ndarray] = []
    request = spec(HELLO, reference, max_frames=12)
    take = engine.submit(request, on_audio=heard.append).result()
    assert len(heard) > 2
    assert np.array_equal(np.concatenate(heard), take.audio)
    plain = engine.render(request)
    assert_same_codes([take], [plain])
    assert np.abs(take.audio - plain.audio).max() < 1e-4
