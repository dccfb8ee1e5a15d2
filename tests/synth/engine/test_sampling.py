"""Test sampling; the golden `probs` rows pin the numbers."""

from __future__ import annotations

import pytest
import torch

from synth.contract import Sampling
from synth.engine.errors import InvalidSpecError
from synth.engine.model.sampling import (
    RAS_WINDOW,
    Cut,
    best_candidates,
    check_sampling,
    draw,
    probabilities,
    replace_repeated,
)


def _sorted_reference(logits: torch.Tensor, t: float, p: float, k: int) -> torch.Tensor:
    """Sort everything: the definition, for one row of logits."""
    ordered, rows = logits.sort(descending=True)
    cumulative = ordered.softmax(-1).cumsum(-1)
    removed = (cumulative > p) | (torch.arange(len(ordered)) >= k)
    removed[0] = False
    kept = (ordered.masked_fill(removed, -torch.inf) / max(t, 1e-5)).softmax(-1)
    return torch.zeros_like(logits).scatter(0, rows, kept)


def test_no_sort_gives_the_probabilities_of_a_full_sort() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(100, 300, generator=generator) * 3
    t = torch.rand(100, generator=generator) * 1.5 + 0.1
    p = torch.rand(100, generator=generator) * 0.9 + 0.05
    k = torch.randint(1, 65, (100,), generator=generator)

    candidates = best_candidates(logits, 64)
    weights = probabilities(candidates, Cut.of(t, p, k, 64))

    found = torch.zeros_like(logits).scatter(1, candidates.rows, weights)
    for row in range(100):
        expected = _sorted_reference(logits[row], float(t[row]), float(p[row]), int(k[row]))
        torch.testing.assert_close(found[row], expected, atol=1e-6, rtol=0)


def test_with_top_p_one_and_every_candidate_nothing_is_cut() -> None:
    logits = torch.randn(200, 50, generator=torch.Generator().manual_seed(2))
    ones = torch.ones(200)
    candidates = best_candidates(logits, 50)
    assert bool((candidates.cumulative > 1).any())  # by rounding

    weights = probabilities(candidates, Cut.of(ones, ones, ones.long() * 10**6, 50))

    expected = logits.sort(descending=True).values.softmax(-1)
    torch.testing.assert_close(weights, expected, atol=1e-6, rtol=0)


def test_draws_come_as_often_as_their_probabilities_say() -> None:
    weights = torch.tensor([0.6, 0.3, 0.1, 0.0]).expand(20000, -1)
    uniform = torch.rand(20000, 4, generator=torch.Generator().manual_seed(1))

    shares = torch.bincount(draw(weights, uniform).flatten(), minlength=4) / 20000

    torch.testing.assert_close(shares, weights[0], atol=0.015, rtol=0)
    assert shares[3] == 0


def test_a_uniform_number_of_zero_never_picks_an_illegal_candidate() -> None:
    weights, zeros = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)

    assert draw(weights, zeros).item() == 0


def test_a_repeated_semantic_token_is_replaced_once_whatever_replaces_it() -> None:
    window = torch.zeros(4, RAS_WINDOW, dtype=torch.int64)
    window[:, 3] = 700
    first, second = torch.tensor([700, 701, 700, 0]), torch.tensor([705, 705, 700, 705])
    is_semantic = torch.tensor([True, True, True, False])

    chosen = replace_repeated(first, second, is_semantic, window)

    assert chosen.tolist() == [705, 701, 700, 0]


@pytest.mark.parametrize(
    ("sampling", "word"),
    [
        (Sampling(top_p=0.0), "top_p"),
        (Sampling(top_p=1.01), "top_p"),
        (Sampling(top_p=float("nan")), "top_p"),
        (Sampling(temperature=0.0), "temperature"),
        (Sampling(temperature=2.0), "temperature"),
        (Sampling(temperature=float("inf")), "temperature"),
        (Sampling(top_k=0), "top_k"),
        (Sampling(top_k=65), "allows at most 64"),
        (Sampling(max_frames=0), "max_frames"),
        (Sampling(seed=-1), "seed"),
        (Sampling(seed=2**63), "seed"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(sampling: Sampling, word: str) -> None:
    with pytest.raises(InvalidSpecError, match=word):
        check_sampling(sampling, max_top_k=64, num_rows=257, lenient=False)


def test_any_top_k_will_do_where_every_row_is_kept() -> None:
    check_sampling(Sampling(top_k=10**6), max_top_k=257, num_rows=257, lenient=False)


def test_the_references_zeros_pass_only_when_lenient() -> None:
    check_sampling(Sampling(top_k=0, max_frames=0), max_top_k=64, num_rows=257, lenient=True)

    with pytest.raises(InvalidSpecError):
        check_sampling(Sampling(max_frames=-1), max_top_k=64, num_rows=257, lenient=True)
