"""Heads are normalised, rotated and written by a kernel as the layers and the cache do it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from synth.engine.kernels.heads import write_heads, write_heads_torch
from synth.engine.model.config import TransformerConfig
from synth.engine.model.kv_cache import KVCache
from synth.engine.model.layers import Attention, rope_table
from synth.engine.model.linear import LinearForm
from synth.engine.presets.shapes import preset
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw

EPS = 1e-6


@dataclass(frozen=True)
class Inputs:
    """Hold what both forms read; a cache of NaN shows what they wrote."""

    qkv: Tensor
    rope: Tensor
    weight: Tensor | None
    cache: Tensor  # keys and values: [2, L, B, KV, S, D]

    @classmethod
    def draw(
        cls,
        generator: torch.Generator,
        dtype: torch.dtype,
        *,
        shape: tuple[int, int, int, int, int],
        span: int = 1,
        normed: bool = True,
        cache_dtype: torch.dtype | None = None,
    ) -> Inputs:
        """Draw for a shape of streams, heads, key heads, positions and numbers of a head."""
        streams, heads, kv_heads, positions, head_dim = shape
        cache = torch.full((2, 2, streams, kv_heads, positions, head_dim), float("nan"))
        weight = draw(generator, heads + kv_heads, head_dim, dtype=dtype) if normed else None
        table = rope_table(torch.arange(positions), head_dim, 1e4)
        return cls(
            draw(generator, streams * span, (heads + 2 * kv_heads) * head_dim, dtype=dtype),
            table.to(generator.device),
            weight,
            cache.to(generator.device, cache_dtype or dtype),
        )

    def run(
        self, form: object, position: Tensor | int, *, layer: int = 1, span: int = 1
    ) -> tuple[Tensor, Tensor]:
        """Return the queries and the cache after a form wrote to one layer of a copy."""
        cache = self.cache.clone()
        keys, values = cache[:, layer]
        assert callable(form)
        queries = form(
            self.qkv, self.rope, keys, values, position, weight=self.weight, eps=EPS, span=span
        )
        return queries, cache


def assert_same(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> None:
    """Compare queries and caches; NaN must be at the same places of the caches."""
    assert torch.equal(found[1].isnan(), expected[1].isnan())
    assert_close(found[0], expected[0])
    assert_close(found[1].nan_to_num(), expected[1].nan_to_num())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize(
    "shape", [(1, 4, 2, 7, 16), (3, 4, 2, 5, 6), (2, 3, 3, 4, 128), (2, 8, 1, 3, 2)]
)
def test_heads_at_positions_read_on_the_device_are_those_of_the_torch_form(
    generator: torch.Generator,
    dtype: torch.dtype,
    normed: bool,
    shape: tuple[int, int, int, int, int],
) -> None:
    inputs = Inputs.draw(generator, dtype, shape=shape, normed=normed)
    ends = [0, shape[3] - 1, 1]
    position = torch.tensor(ends[: shape[0]], device=generator.device)

    found = inputs.run(write_heads, position)

    assert_same(found, inputs.run(write_heads_torch, position))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("position", "span"), [(0, 1), (9, 1), (0, 2), (3, 4)])
def test_heads_at_one_position_for_all_are_those_of_the_torch_form(
    generator: torch.Generator, dtype: torch.dtype, position: int, span: int
) -> None:
    inputs = Inputs.draw(generator, dtype, shape=(3, 4, 2, 10, 16), span=span, normed=False)

    found = inputs.run(write_heads, position, span=span)

    assert_same(found, inputs.run(write_heads_torch, position, span=span))


def test_spans_behind_positions_that_are_read_stay_apart(generator: torch.Generator) -> None:
    inputs = Inputs.draw(generator, torch.float32, shape=(2, 2, 1, 9, 8), span=3)
    position = torch.tensor([5, 0], device=generator.device)

    found = inputs.run(write_heads, position, span=3)

    written = ~found[1][0, 1, :, 0, :, 0].isnan()
    assert written.nonzero().tolist() == [[0, 5], [0, 6], [0, 7], [1, 0], [1, 1], [1, 2]]
    assert_same(found, inputs.run(write_heads_torch, position, span=3))


def test_position_behind_the_last_one_is_taken_as_the_last(generator: torch.Generator) -> None:
    inputs = Inputs.draw(generator, torch.float32, shape=(2, 2, 1, 4, 8))

    beyond = inputs.run(write_heads, torch.tensor([4, 400], device=generator.device))

    last = inputs.run(write_heads, torch.tensor([3, 3], device=generator.device))
    assert torch.equal(beyond[0], last[0])
    assert torch.equal(beyond[1].nan_to_num(), last[1].nan_to_num())


def test_wider_cache_holds_the_numbers_rounded_as_the_model_rounds(
    generator: torch.Generator,
) -> None:
    inputs = Inputs.draw(
        generator, torch.bfloat16, shape=(2, 2, 1, 4, 8), cache_dtype=torch.float32
    )

    found = inputs.run(write_heads, 1)

    assert_same(found, inputs.run(write_heads_torch, 1))
    written = found[1].nan_to_num()
    assert torch.equal(written, written.bfloat16().float())


def test_bucket_of_a_larger_cache_is_written_within_its_streams(
    generator: torch.Generator,
) -> None:
    inputs = Inputs.draw(generator, torch.float32, shape=(2, 2, 2, 4, 8))
    cache = torch.full((2, 3, 5, 2, 4, 8), float("nan"), device=generator.device)
    keys, values = cache[:, 2, :2]

    write_heads(inputs.qkv, inputs.rope, keys, values, 3, weight=inputs.weight, eps=EPS)

    expected = inputs.run(write_heads_torch, 3)[1][:, 1]
    assert_close(cache[:, 2, :2, :, 3], expected[..., 3, :])
    cache[:, 2, :2, :, 3] = float("nan")
    assert cache.isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [True, False])
@torch.inference_mode()
def test_torch_form_is_what_layers_and_cache_do(
    generator: torch.Generator, dtype: torch.dtype, normed: bool
) -> None:
    tiny = preset("tiny").config.text_config
    config = replace(tiny, attention_qk_norm=normed)
    attention, cache = make_attention(config, generator, dtype), make_cache(config, dtype)
    rope = rope_table(torch.arange(6), config.head_dim, 1e4).to(generator.device)
    x = draw(generator, 3, config.dim, dtype=dtype)
    position = torch.tensor([0, 5, 2], device=generator.device)
    ours = KVCache(cache.keys.clone(), cache.values.clone())

    queries = write_heads_torch(
        attention.wqkv(x),
        rope,
        ours.keys[1],
        ours.values[1],
        position,
        weight=attention.qk_norm,
        eps=EPS,
    )

    q, k, v = attention.project(x, rope[position].unsqueeze(1), EPS)
    cache.write_step(1, cache.rows(position), k, v)
    assert_close(queries, q)
    assert_close(ours.keys, cache.keys)
    assert torch.equal(ours.values, cache.values)


def make_attention(
    config: TransformerConfig, generator: torch.Generator, dtype: torch.dtype
) -> Attention:
    """Return finished projections of random numbers."""
    attention = Attention(config).to(generator.device, dtype)
    for weight in attention.parameters():
        weight.data = draw(generator, *weight.shape, dtype=dtype)
    attention.finalize(LinearForm.PLAIN)
    return attention.requires_grad_(False)


def make_cache(config: TransformerConfig, dtype: torch.dtype) -> KVCache:
    """Return a cache of three streams of six positions."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return KVCache.allocate(config, num_slots=3, num_positions=6, device=device, dtype=dtype)
