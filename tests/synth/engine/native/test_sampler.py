"""Test the compiled draw alone: candidates, sums and noise that no model would give as surely."""

from __future__ import annotations

import ctypes
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest
import torch

from synth.engine.model.sampling import (
    Candidates,
    CounterFrame,
    Cut,
    draw,
    draw_words,
    probabilities,
)
from synth.engine.native.build import SOURCES, TARGETS, Target, find_compiler, processor_flags

pytestmark = pytest.mark.compiler

TIMES = 2000
LOGITS = [1.25, 0.5, 0.25, -0.5]
PASSING = [0.5, 0.75, 0.9375, 1 + 2**-23]  # past 1 by the last bit there is
Sums = list[float]
Winners = Callable[[Sums, float, float, int], list[int]]

_SOURCE = """
#include "sampler.h"

int winner(const float *logits, const float *upto, int count, float temperature, float top_p,
           int64_t top_k, const int64_t *words) {
    Candidates found = {.count = count, .is_finite = 1};
    for (int i = 0; i < count; i++) {
        found.logit[i] = logits[i], found.upto[i] = upto[i], found.row[i] = i;
    }
    return draw(&found, temperature, top_p, top_k, words, NULL);
}
"""


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target.name)
def winners(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Winners:
    """Return what draws with the noise of 2,000 frames: sums, temperature, top_p and top_k."""
    target: Target = request.param
    if not set(target.needs) <= processor_flags():
        pytest.skip(f"this processor is not of the class {target.name}")
    folder = tmp_path_factory.mktemp("winner")
    source, library = folder / "winner.c", folder / "winner.so"
    source.write_text(_SOURCE, encoding="utf-8")
    flags = ["-std=gnu11", "-O3", "-fPIC", "-shared", "-w", f"-I{SOURCES}", *target.flags]
    compiler = find_compiler()
    assert compiler is not None
    command = [compiler, *flags, "-o", str(library), str(source), "-lm"]
    subprocess.run(command, check=True, timeout=120)
    winner = ctypes.CDLL(str(library)).winner
    words = _words()

    def many(upto: Sums, temperature: float, top_p: float, top_k: int) -> list[int]:
        floats = ctypes.c_float * len(LOGITS)
        return [
            winner(
                floats(*LOGITS),
                floats(*upto),
                len(LOGITS),
                ctypes.c_float(temperature),
                ctypes.c_float(top_p),
                ctypes.c_int64(top_k),
                (ctypes.c_int64 * 2)(*pair),
            )
            for pair in words.tolist()
        ]

    return many


def _words() -> torch.Tensor:
    frames = torch.arange(TIMES)
    return draw_words(torch.full_like(frames, 7), frames, 1)[:, 0]


@pytest.mark.parametrize("upto", [PASSING, [0.25, 0.5, 0.625, 0.65]], ids=["passing", "below"])
@pytest.mark.parametrize("temperature", [1e-6, 0.7, 1.99])
@pytest.mark.parametrize("top_p", [0.3, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("top_k", [1, 3, 64])
def test_draws_are_those_of_the_engine(
    winners: Winners, upto: Sums, temperature: float, top_p: float, top_k: int
) -> None:
    candidates = Candidates(
        torch.tensor([LOGITS]), torch.arange(4).unsqueeze(0), torch.tensor([upto])
    )
    cut = Cut.of(torch.tensor([temperature]), torch.tensor([top_p]), torch.tensor([top_k]), 4)
    weights = probabilities(candidates, cut)
    uniform = CounterFrame(_words().unsqueeze(1)).uniform(0, torch.arange(4))

    assert winners(upto, temperature, top_p, top_k) == draw(weights, uniform).flatten().tolist()


def test_with_top_p_one_none_is_cut_where_a_sum_passes_one_by_rounding(winners: Winners) -> None:
    drawn = Counter(winners(PASSING, 1.0, 1.0, 64))
    shares = torch.tensor(LOGITS).softmax(-1)
    for candidate, share in enumerate(shares.tolist()):
        assert drawn[candidate] / TIMES == pytest.approx(share, abs=0.03)


def test_the_candidate_that_crosses_top_p_goes_and_the_best_stays(winners: Winners) -> None:
    assert set(winners(PASSING, 1.0, 0.75, 64)) == {0, 1}
    assert set(winners(PASSING, 1.0, 0.74, 64)) == {0}
    assert set(winners(PASSING, 1.0, 0.01, 64)) == {0}
