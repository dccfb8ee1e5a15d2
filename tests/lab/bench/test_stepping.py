"""A measured batch does whole, distinct, repeatable work."""

from __future__ import annotations

import pytest
import torch

from lab.bench.presets import preset, preset_dual_ar
from lab.bench.report import BenchFailedError
from lab.bench.stepping import (
    DecodeBatch,
    PromptRun,
    measure_agreement,
    prompt_positions,
    random_prompt,
)
from synth.engine.model.dual_ar import DualAR


@pytest.fixture(scope="module")
def model() -> DualAR:
    return preset_dual_ar(preset("tiny"), device=torch.device("cpu"), dtype="float32")


def test_every_window_makes_the_same_frames_of_every_stream(model: DualAR) -> None:
    batch = DecodeBatch(model, batch=3, context=50, frames=8, seed=0)

    made = []
    for _ in range(2):
        batch.rewind()
        assert batch.decode() == 3 * 8
        made.append(batch.state.columns.clone())

    assert torch.equal(made[0], made[1])
    assert len({tuple(column) for column in made[0].tolist()}) == 3  # distinct streams


def test_the_mean_of_the_positions_attended_to_is_the_context(model: DualAR) -> None:
    batch = DecodeBatch(model, batch=2, context=50, frames=8, seed=0)
    begun = batch.state.position.clone()

    batch.decode()

    assert begun.tolist() == [prompt_positions(50, 8)] * 2 == [46, 46]
    assert batch.state.position.tolist() == [54, 54]


def test_streams_with_a_shared_beginning_are_distinct_behind_it(model: DualAR) -> None:
    batch = DecodeBatch(model, batch=3, context=50, frames=8, seed=0, shared=40)

    keys = batch.state.cache.keys[:, :, :, :46]
    assert torch.equal(keys[:, 0, :, :40], keys[:, 2, :, :40])
    assert not torch.equal(keys[:, 0, :, 40:], keys[:, 2, :, 40:])
    assert batch.state.prefix_positions.tolist() == [40] * 3
    assert len(set(batch.state.prefix.tolist())) == 1
    assert batch.decode() == 3 * 8
    assert len({tuple(column) for column in batch.state.columns.tolist()}) == 3


def test_a_stream_that_stops_early_is_no_figure(model: DualAR) -> None:
    batch = DecodeBatch(model, batch=2, context=50, frames=8, seed=0)
    batch.state.frame_limit[1] = 4
    with pytest.raises(BenchFailedError, match=r"\[8, 3\] frames instead of 8"):
        batch.decode()


def test_a_cached_voice_gives_the_first_frame_of_the_whole_prompt(model: DualAR) -> None:
    columns = random_prompt(model, 60, seed=4)
    frames = []
    for start in (0, 40):
        prompt = PromptRun(model, columns, start=start, seed=0)
        for _ in range(2):  # the second use is what is measured
            prompt.prepare()
            prompt.run()
        frames.append(prompt.state.columns.tolist())

    assert frames[0] == frames[1]


CPU = torch.device("cpu")


def test_a_model_agrees_with_itself_and_less_with_fewer_bits() -> None:
    shape = preset("tiny")
    exact, half, eight = (
        preset_dual_ar(shape, device=CPU, dtype=dtype) for dtype in ("float32", "bfloat16", "int8")
    )

    itself = measure_agreement(exact, exact, frames=4, seed=0)
    of_half = measure_agreement(half, exact, frames=4, seed=0)
    of_eight = measure_agreement(eight, exact, frames=4, seed=0)

    assert (itself.logits_error, itself.top1_agreement) == (0.0, 1.0)
    assert 1e-4 < of_half.logits_error < 0.05
    assert 1e-3 < of_eight.logits_error < 0.2
    assert 0.5 < of_eight.top1_agreement <= 1


def test_other_weights_do_not_agree() -> None:
    shape = preset("tiny")
    one, other = (preset_dual_ar(shape, device=CPU, dtype="float32", seed=seed) for seed in (0, 1))
    assert measure_agreement(one, other, frames=3, seed=0).logits_error > 0.5
