"""A measured batch and the plain loop do whole, distinct, repeatable work: the same work."""

from __future__ import annotations

import pytest
import torch

from lab.bench.baseline import BaselineLoop, sample
from lab.bench.models.preset_weights import lm_weights, special_ids
from lab.bench.models.presets import preset, preset_dual_ar
from lab.bench.report import BenchFailedError
from lab.bench.stepping import (
    DecodeBatch,
    PromptRun,
    measure_agreement,
    prompt_positions,
    random_prompt,
)
from lab.golden.noise import CounterNoise
from synth.contract import Sampling
from synth.engine.model.decode import decode_step
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.prefill import SlotStart, start_slots


@pytest.fixture(scope="module")
def model() -> DualAR:
    return preset_dual_ar(preset("tiny"), device=torch.device("cpu"), dtype="float32")


def test_every_window_makes_the_same_frames_of_every_stream(model: DualAR) -> None:
    batch, made = DecodeBatch(model, batch=3, context=50, frames=8, seed=0), []
    for _ in range(2):
        batch.rewind()
        # The mean of the positions attended to is the context.
        assert batch.state.position.tolist() == [prompt_positions(50, 8)] * 3 == [46] * 3
        assert batch.decode() == 3 * 8
        assert batch.state.position.tolist() == [54] * 3
        made.append(batch.state.columns.clone())

    assert torch.equal(made[0], made[1])
    assert len({tuple(column) for column in made[0].tolist()}) == 3  # distinct streams


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
    other = preset_dual_ar(shape, device=CPU, dtype="float32", seed=1)
    assert measure_agreement(exact, other, frames=3, seed=0).logits_error > 0.5


FRAMES = 24


@pytest.mark.parametrize("seed", [0, 1])
def test_greedy_frames_equal_the_engines_on_the_same_weights_again_and_again(seed: int) -> None:
    shape = preset("tiny")
    weights = dict(lm_weights(shape, device=CPU, dtype=torch.float32, seed=seed))
    model = preset_dual_ar(shape, device=CPU, dtype="float32", seed=seed, weights=dict(weights))
    prompt, sampling = random_prompt(model, 40, seed=seed), Sampling(top_k=1, max_frames=FRAMES)

    positions, noise = 40 + FRAMES, CounterNoise()
    state = DecodeState.allocate(model, num_slots=1, max_positions=positions, noise=noise)
    state.assign(0, sampling, prompt_positions=40)
    start_slots(model, state, [SlotStart(0, prompt)])
    ours = [decode_step(model, state).columns[0] for _ in range(FRAMES)]
    loop = BaselineLoop(shape.config, special_ids(shape), weights)
    first = loop.prefill(prompt, sampling)
    for _ in range(2):
        plain = [first, *(loop.step(sampling) for _ in range(FRAMES - 1))]
        assert torch.stack(plain).tolist() == torch.stack(ours).tolist()
        assert len({tuple(frame.tolist()) for frame in plain}) > FRAMES // 2  # no constant answer
        loop.rewind(40)
        loop._column = first  # the frame that was drawn behind the prompt


def test_draws_follow_the_probabilities_and_the_candidate_that_crosses_top_p_is_cut() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([0.2, 0.5, 0.1, 0.2 + 1e-4]).log()
    cases = ((0.75, 4, {1, 3}), (0.3, 4, {1}), (1.0, 2, {1, 3}), (1.0, 3, {0, 1, 3}))
    for top_p, top_k, kept in cases:
        assert {int(sample(logits, 1.0, top_p, top_k)) for _ in range(300)} == kept
    counts, shares = torch.zeros(3), torch.tensor([0.7, 0.2, 0.1])
    for _ in range(3000):
        counts[sample(shares.log(), 1.0, 1.0, 3)] += 1
    assert torch.allclose(counts / 3000, shares, atol=0.04)
