"""Test how a stream's row of numbers is cut up by modules, joined and split."""

from __future__ import annotations

import torch

from synth.engine.codec.chunks import StateLayout, StreamState, join
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.layers import CausalConv1d, CausalConvTranspose1d


def some_state(rows: int, size: int, seed: int) -> StreamState:
    generator = torch.Generator().manual_seed(seed)
    counts = tuple(range(seed, seed + rows))
    return StreamState(
        torch.randn(rows, size, generator=generator),
        torch.tensor(counts, dtype=torch.int64),
        counts,
    )


def test_every_number_of_a_row_is_one_modules() -> None:
    modules = [
        CausalConv1d(3, 5, 7),
        CausalConv1d(4, 4, 1),
        CausalConvTranspose1d(2, 2, 8, stride=4),
    ]
    layout = StateLayout(modules)
    rows = torch.arange(2.0 * layout.size).view(2, -1)

    views = layout.views(rows)

    assert [tuple(view.shape) for (view,) in views.values()] == [(2, 3, 6), (2, 2, 1)]
    assert set(views) == {modules[0], modules[2]}  # a kernel of 1 looks back on nothing
    seen = torch.cat([view.flatten(1) for (view,) in views.values()], dim=1)
    assert torch.equal(seen.sort().values, rows)
    views[modules[0]][0].zero_()
    assert rows[:, :18].eq(0).all() and rows[:, 18:].ne(0).all()


def test_a_decoders_row_holds_what_its_layers_look_back_on(config: CodecConfig) -> None:
    decoder = CodecDecoder(config)
    module = config.post_module

    keys_and_values = 2 * module.num_layers * module.num_heads * (module.window - 1) * 64
    units = sum(6 * (1 + 3 + 9) * config.decoder_dim // 2**block for block in range(1, 5))
    ends = 6 * config.latent_dim + 6 * config.decoder_dim // 2**4  # first and last convolution
    transposed = sum(config.decoder_dim // 2**block for block in range(4))
    mixing = 6 * config.latent_dim * len(config.upsample_factors)
    size = keys_and_values + units + ends + transposed + mixing
    assert decoder.layout.size == size
    assert decoder.initial_state().rows.shape == (1, size)


def test_states_that_were_joined_and_split_are_those_before() -> None:
    states = [some_state(1, 7, seed) for seed in (3, 0, 9)]
    after = join(states).split()
    for found, expected in zip(after, states, strict=True):
        assert torch.equal(found.rows, expected.rows)
        assert torch.equal(found.frames, expected.frames)
        assert found.counts == expected.counts


def test_a_joined_state_is_a_copy_also_of_one() -> None:
    states = [some_state(1, 7, 1)]
    before = states[0].rows.clone()

    joined = join(states)
    joined.rows.zero_()
    joined.frames.zero_()

    assert torch.equal(states[0].rows, before)
    assert states[0].frames.tolist() == [1]
