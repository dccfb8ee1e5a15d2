"""What is trained computes the same numbers as the engine does afterwards."""

from __future__ import annotations

import copy

import pytest
import torch

from lab.training.lm_network import LMSizes, build_lm, config_json, hidden_states, residual_logits
from synth.engine.model.config import parse_config
from synth.engine.model.dual_ar import DualAR, Span
from synth.engine.model.kv_cache import KVCache

SIZES = LMSizes(codes=12, num_codebooks=4, dim=32, layers=4, head_dim=16, ffn=48, fast_ffn=32)


@pytest.fixture(scope="module")
def models() -> tuple[DualAR, DualAR]:
    """Return a model as it is trained, and the same one finalized for the engine."""
    torch.manual_seed(0)
    trained = build_lm(SIZES)
    for weight in trained.parameters():
        weight.data.add_(0.05 * torch.randn_like(weight))
    served = copy.deepcopy(trained)
    served.finalize()
    return trained, served


@pytest.fixture(scope="module")
def columns(models: tuple[DualAR, DualAR]) -> torch.Tensor:
    """Return one sequence [1, 9, 1 + K] of text and codes."""
    begin = models[0].special.semantic_begin
    columns = torch.zeros(1, 9, 1 + SIZES.num_codebooks, dtype=torch.int64)
    columns[0, :4, 0] = torch.tensor([10, 20, 30, 40])
    columns[0, 4:, 1:] = torch.randint(12, (5, 4), generator=torch.Generator().manual_seed(1))
    columns[0, 4:, 0] = begin + columns[0, 4:, 1]
    return columns


def test_hidden_states_are_the_engine_s(
    models: tuple[DualAR, DualAR], columns: torch.Tensor
) -> None:
    trained, served = models
    text = served.config.text_config
    cache = KVCache.allocate(
        text, num_slots=1, num_positions=16, device=torch.device("cpu"), dtype=torch.float32
    )

    ours, maps = hidden_states(trained, columns)
    theirs = served.slow.prefill(columns[0], [Span(0, 0, 9)], cache)[None]

    assert torch.allclose(ours, theirs, atol=1e-5)
    assert [tuple(each.shape) for each in maps] == [(1, 9, 9)] * 2


def test_residual_logits_are_the_engine_s(
    models: tuple[DualAR, DualAR], columns: torch.Tensor
) -> None:
    trained, served = models
    hidden, codes = torch.randn(3, SIZES.dim), columns[0, 4:7, 1:]
    cache = served.fast.allocate_cache(3)

    ours = residual_logits(trained, hidden, codes)
    theirs = [served.fast.first(hidden, codes[:, 0], cache)]
    theirs += [served.fast.next(codes[:, book], book + 1, cache) for book in range(1, 3)]

    assert torch.allclose(ours, torch.stack(theirs, 1), atol=1e-5)


def test_attention_maps_are_logs_of_shares_of_the_past(
    models: tuple[DualAR, DualAR], columns: torch.Tensor
) -> None:
    _, (first, _) = hidden_states(models[0], columns)
    shares = first[0].exp()
    assert torch.allclose(shares.sum(1), torch.ones(9), atol=1e-5)
    assert float(shares.detach().triu(1).max()) < 1e-6


def test_the_config_says_where_the_semantic_tokens_are() -> None:
    config = parse_config(config_json(SIZES))
    assert config.semantic_end_token_id - config.semantic_start_token_id + 1 == SIZES.codes
    assert config.text_config.vocab_size == config.semantic_end_token_id + 1
