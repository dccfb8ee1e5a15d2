"""Test that streams decoded in any chunks give the audio of the whole, alone and in batches."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Array
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch
from torch import Tensor

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.layers import (
    CausalConv1d,
    CausalConvTranspose1d,
    StateLayout,
    StreamState,
    join,
)
from synth.engine.codec.load import load_decoder
from synth.engine.codec.streams import ChunkSchedule, CodecStream, decode_streams
from synth.engine.errors import InvalidSpecError
from synth.engine.native.library import ConvolutionC, Library
from tests.synth.engine.codec.conftest import (
    EXACT,
    check_streams,
    decode_rounds,
    make_config,
    random_codes,
    watched_passes,
    whole,
)


def streamed(decoder: CodecDecoder, codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the audio of one stream in chunks of these sizes, again from the first at the end."""
    stream, parts = CodecStream(decoder), []
    for size in cycle(sizes):
        if stream.num_frames == codes.shape[1]:
            break
        parts.append(stream.decode(codes[:, stream.num_frames :][:, :size]))
    return torch.cat(parts)


@pytest.fixture(scope="module")
def small() -> CodecDecoder:
    """Return a decoder of odd sizes with random weights that speaks neither softly nor clipped."""
    generator = torch.Generator().manual_seed(3)
    decoder = CodecDecoder(make_config()).requires_grad_(False).eval()
    for name, weight in decoder.named_parameters():
        fan_in = weight[0].numel() if weight.dim() > 1 else 100
        weight.normal_(std=0.6 * fan_in**-0.5, generator=generator)
        weight.add_(1.0 if name.endswith(("alpha", "norm.weight")) else 0.0)
        weight.add_(0.4 if name.endswith("gamma") else 0.0)
    return decoder


@pytest.mark.parametrize(
    "sizes",
    [
        *([3], [64], [4, 8, 16, 32], [1, 130, 2, 40], [300, 1]),
        *(pytest.param(sizes, marks=pytest.mark.thorough) for sizes in ([1], [7], [200])),
    ],
)
def test_chunks_of_any_sizes_give_the_audio_of_the_whole(
    golden_decoder: CodecDecoder, sizes: list[int]
) -> None:
    codes = random_codes(golden_decoder.config, 301)
    codes[0, 1], codes[4, 2] = 99999, 32767  # above their codebook they mean its last row
    before = codes.clone()
    found = streamed(golden_decoder, codes, sizes)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, whole(golden_decoder, codes), atol=EXACT, rtol=0)
    assert torch.equal(codes, before)


@pytest.mark.thorough
@pytest.mark.parametrize("sizes", [[5], [32, 7, 1], [1200]])
def test_a_stream_far_longer_than_what_it_sees_stays_exact(
    small: CodecDecoder, sizes: list[int]
) -> None:
    config = small.config.post_module
    assert 0.02 < whole(small, random_codes(small.config, 200)).std() < 0.9  # it is heard
    codes = random_codes(small.config, 2 * config.num_layers * config.window + 176)
    found = streamed(small, codes, sizes)
    torch.testing.assert_close(found, whole(small, codes), atol=EXACT / 10, rtol=0)


def test_the_first_of_a_thousand_frames_still_reaches_the_window(small: CodecDecoder) -> None:
    """The comparison above would not see a window cut short if nothing depended on it."""
    window = small.config.post_module.window
    codes = random_codes(small.config, window + 40)
    other = codes.clone()
    other[:, 0] = (other[:, 0] + 1) % small.config.residual_codebook_size
    reach = 2048 * (window + 20)
    changed = (streamed(small, codes, [9]) - streamed(small, other, [9])).abs()
    assert changed[reach:].max() > EXACT


@pytest.mark.parametrize("window", [1, 2, 5])
def test_the_window_is_the_codecs_own(window: int) -> None:
    config = make_config(post_module=replace(make_config().post_module, window=window))
    decoder = CodecDecoder(config).requires_grad_(False).eval()
    generator = torch.Generator().manual_seed(window)
    for weight in decoder.parameters():
        weight.normal_(std=0.15, generator=generator)
    codes = random_codes(config, 40)
    for sizes in ([1], [3, 8]):
        torch.testing.assert_close(
            streamed(decoder, codes, sizes), whole(decoder, codes), atol=EXACT, rtol=0
        )


@pytest.mark.thorough
def test_bfloat16_streams_as_near_to_float32_as_it_decodes(
    golden_checkpoint: Path, golden_decoder: CodecDecoder
) -> None:
    codes = random_codes(golden_decoder.config, 180)
    decoder = load_decoder(golden_checkpoint, "cpu", "bfloat16")
    exact, one_pass = whole(golden_decoder, codes), whole(decoder, codes)
    for sizes in ([1], [4, 8, 16, 32], [150]):
        found = streamed(decoder, codes, sizes)
        assert found.dtype is torch.float32
        own = (one_pass - exact).square().mean().sqrt()
        assert (found - exact).square().mean().sqrt() < 1.1 * own
        assert (found - exact).abs().max() < 1.5 * (one_pass - exact).abs().max()


def test_streams_at_different_places_share_a_call(golden_decoder: CodecDecoder) -> None:
    codes = [random_codes(golden_decoder.config, 170, seed) for seed in range(4)]
    rounds = [(1, 4, 0, 4), (4, 4, 4, 4), (130, 2, 0, 8), (8, 8, 8, 8), (8, 8, 140, 8)]
    found, streams = decode_rounds(golden_decoder, codes, rounds)
    assert [stream.num_frames for stream in streams] == [151, 26, 152, 32]
    check_streams(found, streams, codes)


def test_frames_in_flight_keep_to_the_bound(golden_decoder: CodecDecoder) -> None:
    codes = [random_codes(golden_decoder.config, length) for length in (9, 9, 9, 9, 30)]
    with watched_passes(golden_decoder) as passes:
        decode_streams([CodecStream(golden_decoder) for _ in codes], codes, max_batch_frames=18)
    flights = [frames for _, frames in passes]
    assert sum(flights) == 9 * 4 + 30 and max(flights) <= 18


def test_a_call_that_fails_leaves_every_stream_where_it_was(
    golden_decoder: CodecDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = random_codes(golden_decoder.config, 12)
    streams = [CodecStream(golden_decoder), CodecStream(golden_decoder)]
    first = decode_streams(streams, [codes[:, :5], codes[:, :3]])

    def run_out(*_: object) -> None:
        if len(seen) == 1:
            raise torch.OutOfMemoryError("no memory")
        seen.append(1)

    def convolve_and_run_out(library: Library, steps: Array[ConvolutionC]) -> None:
        convolve(library, steps)
        run_out()

    seen: list[int] = []
    convolve = Library.convolve
    with (
        golden_decoder.decoder.model[-1].register_forward_hook(run_out),
        monkeypatch.context() as patch,
        pytest.raises(torch.OutOfMemoryError),
    ):
        if golden_decoder.compiled is not None:
            patch.setattr(Library, "convolve", convolve_and_run_out)
        decode_streams(streams, [codes[:, 5:7], codes[:, 3:]])
    with pytest.raises(InvalidSpecError, match="negative"):
        decode_streams(streams, [codes[:, 5:], -codes - 1])

    assert [stream.num_frames for stream in streams] == [5, 3]
    second = decode_streams(streams, [codes[:, 5:], codes[:, 3:]])
    found = [torch.cat(parts) for parts in zip(first, second, strict=True)]
    check_streams(found, streams, [codes, codes])


def test_a_stream_keeps_no_more_than_its_state_and_copies_no_weight(small: CodecDecoder) -> None:
    stream = CodecStream(small)
    sizes = []
    for length in (1, 128, 300):
        stream.decode(random_codes(small.config, length))
        kept = [stream._state.rows, stream._state.frames]
        sizes.append(sum(tensor.untyped_storage().nbytes() for tensor in kept))
    module = small.config.post_module
    keys_and_values = 2 * module.num_layers * module.num_heads * (module.window - 1) * 64 * 4
    assert sizes[0] == sizes[1] == sizes[2]
    assert keys_and_values < sizes[0] < 1.3 * keys_and_values


def test_calls_that_mix_streams_up_are_refused_and_no_frames_move_nothing(
    golden_decoder: CodecDecoder, small: CodecDecoder
) -> None:
    codes = random_codes(golden_decoder.config, 2)
    stream = CodecStream(golden_decoder)

    with pytest.raises(ValueError, match="twice"):
        decode_streams([stream, stream], [codes, codes])
    with pytest.raises(ValueError, match="1 streams were given 2 chunks"):
        decode_streams([stream], [codes, codes])
    with pytest.raises(ValueError, match="different decoders"):
        decode_streams([stream, CodecStream(small)], [codes, codes])
    assert decode_streams([], []) == []
    assert stream.decode(codes[:, :0]).shape == (0,)
    assert stream.num_frames == 0


def test_chunks_double_from_the_first_to_the_largest() -> None:
    assert list(islice(ChunkSchedule().sizes(), 6)) == [4, 8, 16, 32, 32, 32]
    assert list(islice(ChunkSchedule(first=1, largest=10).sizes(), 6)) == [1, 2, 4, 8, 10, 10]
    assert list(islice(ChunkSchedule(first=3, largest=3).sizes(), 3)) == [3, 3, 3]


@pytest.mark.parametrize("num_frames", [0, 1, 4, 5, 12, 100])
def test_split_covers_every_frame_once_and_only_its_last_chunk_is_cut(num_frames: int) -> None:
    sizes = list(ChunkSchedule().split(num_frames))
    full = list(islice(ChunkSchedule().sizes(), len(sizes)))
    assert sum(sizes) == num_frames and sizes[:-1] == full[:-1]
    assert all(0 < size <= limit for size, limit in zip(sizes, full, strict=True))


@pytest.mark.parametrize(
    ("first", "largest", "words"),
    [
        (0, 32, "1 to 4 frames, not 0"),
        (5, 32, "1 to 4 frames, not 5"),
        (4, 3, "4 .* to 256 frames, not 3"),
        (1, 257, "not 257"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(first: int, largest: int, words: str) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        ChunkSchedule(first=first, largest=largest)


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8, 16, 32), (3, 6, 10), (4,), (2, 4, 5)])
def test_distinct_sizes_are_those_that_chunks_have(sizes: tuple[int, ...]) -> None:
    schedule = ChunkSchedule(first=sizes[0], largest=sizes[-1])
    assert schedule.distinct_sizes() == sizes
    assert set(schedule.split(sum(sizes) + 3 * sizes[-1])) == set(sizes)


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


def test_states_that_were_joined_and_split_are_those_before_and_copies() -> None:
    states = [
        StreamState(torch.randn(1, 7), torch.tensor([count]), (count,)) for count in (3, 0, 9)
    ]
    for found, expected in zip(join(states).split(), states, strict=True):
        assert torch.equal(found.rows, expected.rows) and torch.equal(found.frames, expected.frames)
        assert found.counts == expected.counts
    before = states[0].rows.clone()
    joined = join(states[:1])
    joined.rows.zero_()
    joined.frames.zero_()
    assert torch.equal(states[0].rows, before) and states[0].frames.tolist() == [3]
