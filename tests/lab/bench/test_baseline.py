"""The plain loop computes the engine's model: what is compared is the same work."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lab.bench.baseline import BaselineLoop, sample
from lab.bench.preset_weights import lm_weights, special_ids
from lab.bench.presets import preset, preset_dual_ar
from lab.bench.stepping import random_prompt
from lab.golden.noise import CounterNoise
from synth.contract import Sampling
from synth.engine.model.decode import decode_step
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.prefill import SlotPrompt, prefill

CPU = torch.device("cpu")
FRAMES = 24


@pytest.mark.parametrize("seed", [0, 1])
def test_greedy_frames_equal_the_engines_on_the_same_weights(seed: int) -> None:
    shape = preset("tiny")
    weights = dict(lm_weights(shape, device=CPU, dtype=torch.float32, seed=seed))
    model = preset_dual_ar(shape, device=CPU, dtype="float32", seed=seed, weights=dict(weights))
    prompt, sampling = random_prompt(model, 40, seed=seed), Sampling(top_k=1, max_frames=FRAMES)

    state = DecodeState.allocate(model, num_slots=1, max_positions=40 + FRAMES)
    state.assign(0, sampling, prompt_positions=40)
    noise = CounterNoise()
    ours = [prefill(model, state, [SlotPrompt(0, prompt)], noise).columns[0]]
    ours += [decode_step(model, state, noise).columns[0] for _ in range(FRAMES - 1)]
    loop = BaselineLoop(shape.config, special_ids(shape), weights)
    plain = [loop.prefill(prompt, sampling)]
    plain += [loop.step(sampling) for _ in range(FRAMES - 1)]

    assert torch.stack(plain).tolist() == torch.stack(ours).tolist()
    assert len({tuple(frame.tolist()) for frame in plain}) > FRAMES // 2  # no constant answer


def test_going_back_makes_the_same_frames_again() -> None:
    shape = preset("tiny")
    loop = BaselineLoop(
        shape.config,
        special_ids(shape),
        dict(lm_weights(shape, device=CPU, dtype=torch.float32, seed=0)),
    )
    model = preset_dual_ar(shape, device=CPU, dtype="float32")
    sampling = Sampling(top_k=1)
    first = loop.prefill(random_prompt(model, 20, seed=0), sampling)
    before = [loop.step(sampling) for _ in range(4)]

    loop.rewind(20)
    loop._column = first  # the frame that was drawn behind the prompt
    after = [loop.step(sampling) for _ in range(4)]

    assert torch.stack(after).tolist() == torch.stack(before).tolist()


def _drawn(logits: Tensor, *, top_p: float, top_k: int) -> set[int]:
    torch.manual_seed(0)
    return {int(sample(logits, 1.0, top_p, top_k)) for _ in range(300)}


def test_the_candidate_that_crosses_top_p_is_cut_and_the_best_one_stays() -> None:
    logits = torch.tensor([0.2, 0.5, 0.1, 0.2 + 1e-4]).log()

    assert _drawn(logits, top_p=0.75, top_k=4) == {1, 3}
    assert _drawn(logits, top_p=0.3, top_k=4) == {1}
    assert _drawn(logits, top_p=1.0, top_k=2) == {1, 3}
    assert _drawn(logits, top_p=1.0, top_k=3) == {0, 1, 3}


def test_draws_follow_the_probabilities() -> None:
    torch.manual_seed(1)
    logits = torch.tensor([0.7, 0.2, 0.1]).log()

    counts = torch.zeros(3)
    for _ in range(3000):
        counts[sample(logits, 1.0, 1.0, 3)] += 1

    assert torch.allclose(counts / 3000, torch.tensor([0.7, 0.2, 0.1]), atol=0.04)
