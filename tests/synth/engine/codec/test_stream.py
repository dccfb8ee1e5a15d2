"""Test that streams decoded in any chunks give the audio of the whole, alone and in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import Array
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import pytest
import torch
from torch import Tensor

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import load_decoder
from synth.engine.codec.streams import ChunkSchedule, CodecStream, decode_streams
from synth.engine.errors import InvalidSpecError
from synth.engine.native.library import ConvolutionC, Library
from tests.synth.engine.codec.conftest import make_config, watched_passes

EXACT = 1e-4  # the audio's range is 2


def random_codes(config: CodecConfig, frames: int, seed: int = 0) -> Tensor:
    """Return codes [K, frames] within the residual codebooks."""
    generator = torch.Generator().manual_seed(seed)
    size = (config.num_codebooks, frames)
    return torch.randint(0, config.residual_codebook_size, size, generator=generator)


def cut(codes: Tensor, sizes: Sequence[int]) -> Iterator[Tensor]:
    """Yield chunks of these sizes, again from the first when they are used up."""
    start = 0
    for size in cycle(sizes):
        if start >= codes.shape[1]:
            return
        yield codes[:, start : start + size]
        start += size


def streamed(decoder: CodecDecoder, codes: Tensor, sizes: Sequence[int]) -> Tensor:
    """Return the audio of one stream decoded in chunks of these sizes."""
    stream = CodecStream(decoder)
    return torch.cat([stream.decode(chunk) for chunk in cut(codes, sizes)])


def whole(decoder: CodecDecoder, codes: Tensor) -> Tensor:
    """Return the audio of one pass over all frames."""
    return decoder.decode([codes], max_batch_frames=codes.shape[1])[0]


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


def test_the_small_decoder_is_heard(small: CodecDecoder) -> None:
    audio = whole(small, random_codes(small.config, 200))
    assert 0.02 < audio.std() < 0.9


@pytest.mark.parametrize(
    "sizes", [[1], [3], [7], [64], [200], [4, 8, 16, 32], [1, 130, 2, 40], [300, 1]]
)
def test_chunks_of_any_sizes_give_the_audio_of_the_whole(
    golden_decoder: CodecDecoder, sizes: list[int]
) -> None:
    codes = random_codes(golden_decoder.config, 301)
    before = codes.clone()

    found = streamed(golden_decoder, codes, sizes)

    expected = whole(golden_decoder, codes)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, expected, atol=EXACT, rtol=0)
    assert torch.equal(codes, before)


@pytest.mark.thorough
@pytest.mark.parametrize("sizes", [[5], [32, 7, 1], [1200]])
def test_a_stream_far_longer_than_what_it_sees_stays_exact(
    small: CodecDecoder, sizes: list[int]
) -> None:
    config = small.config.post_module
    codes = random_codes(small.config, 2 * config.num_layers * config.window + 176)

    found = streamed(small, codes, sizes)

    expected = whole(small, codes)
    torch.testing.assert_close(found, expected, atol=EXACT / 10, rtol=0)


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
    streams = [CodecStream(golden_decoder) for _ in codes]
    parts: list[list[Tensor]] = [[], [], [], []]
    rounds = [(1, 4, 0, 4), (4, 4, 4, 4), (130, 2, 0, 8), (8, 8, 8, 8), (8, 8, 140, 8)]

    places = [0, 0, 0, 0]
    for lengths in rounds:
        ends = [place + length for place, length in zip(places, lengths, strict=True)]
        chunks = [c[:, a:b] for c, a, b in zip(codes, places, ends, strict=True)]
        for part, audio in zip(parts, decode_streams(streams, chunks), strict=True):
            part.append(audio)
        places = ends

    for matrix, stream, part, place in zip(codes, streams, parts, places, strict=True):
        assert stream.num_frames == place
        expected = whole(golden_decoder, matrix[:, :place])
        torch.testing.assert_close(torch.cat(part), expected, atol=EXACT, rtol=0)


def test_frames_in_flight_keep_to_the_bound(golden_decoder: CodecDecoder) -> None:
    codes = [random_codes(golden_decoder.config, length) for length in (9, 9, 9, 9, 30)]

    with watched_passes(golden_decoder) as passes:
        decode_streams([CodecStream(golden_decoder) for _ in codes], codes, max_batch_frames=18)

    flights = [frames for _, frames in passes]
    assert sum(flights) == 9 * 4 + 30
    assert max(flights) <= 18


def test_a_chunk_of_no_frames_gives_no_samples_and_moves_nothing(
    golden_decoder: CodecDecoder,
) -> None:
    stream = CodecStream(golden_decoder)
    assert stream.decode(random_codes(golden_decoder.config, 0)).shape == (0,)
    assert stream.num_frames == 0


def _failing_last(fail: Callable[[], None]) -> Callable[[Library, Array[ConvolutionC]], None]:
    """Return a `convolve` that calls `fail` behind the last layer."""
    real = Library.convolve

    def convolve(library: Library, steps: Array[ConvolutionC]) -> None:
        real(library, steps)
        fail()

    return convolve


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

    seen: list[int] = []
    with (
        golden_decoder.decoder.model[-1].register_forward_hook(run_out),
        monkeypatch.context() as patch,
        pytest.raises(torch.OutOfMemoryError),
    ):
        if golden_decoder.compiled is not None:
            patch.setattr(Library, "convolve", _failing_last(run_out))
        decode_streams(streams, [codes[:, 5:7], codes[:, 3:]])
    with pytest.raises(InvalidSpecError, match="negative"):
        decode_streams(streams, [codes[:, 5:], -codes - 1])

    assert [stream.num_frames for stream in streams] == [5, 3]
    second = decode_streams(streams, [codes[:, 5:], codes[:, 3:]])
    for parts in zip(first, second, strict=True):
        expected = whole(golden_decoder, codes)
        torch.testing.assert_close(torch.cat(parts), expected, atol=EXACT, rtol=0)


def test_codes_above_their_codebook_mean_the_last_row_as_in_the_whole(
    golden_decoder: CodecDecoder,
) -> None:
    codes = random_codes(golden_decoder.config, 3)
    codes[0, 1], codes[4, 2] = 99999, 32767
    found = streamed(golden_decoder, codes, [2])
    torch.testing.assert_close(found, whole(golden_decoder, codes), atol=EXACT, rtol=0)


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


def test_calls_that_mix_streams_up_are_refused(
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


def test_chunks_double_from_the_first_to_the_largest() -> None:
    assert list(islice(ChunkSchedule().sizes(), 6)) == [4, 8, 16, 32, 32, 32]
    assert list(islice(ChunkSchedule(first=1, largest=10).sizes(), 6)) == [1, 2, 4, 8, 10, 10]
    assert list(islice(ChunkSchedule(first=3, largest=3).sizes(), 3)) == [3, 3, 3]


@pytest.mark.parametrize("num_frames", [0, 1, 4, 5, 12, 100])
def test_split_covers_every_frame_once_and_only_its_last_chunk_is_cut(num_frames: int) -> None:
    sizes = list(ChunkSchedule().split(num_frames))

    assert sum(sizes) == num_frames
    whole = list(islice(ChunkSchedule().sizes(), len(sizes)))
    assert sizes[:-1] == whole[:-1]
    assert all(0 < size <= limit for size, limit in zip(sizes, whole, strict=True))


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


@pytest.mark.parametrize(
    ("first", "largest", "sizes"),
    [(1, 32, (1, 2, 4, 8, 16, 32)), (3, 10, (3, 6, 10)), (4, 4, (4,)), (2, 5, (2, 4, 5))],
)
def test_distinct_sizes_are_those_that_chunks_have(
    first: int, largest: int, sizes: tuple[int, ...]
) -> None:
    schedule = ChunkSchedule(first=first, largest=largest)
    assert schedule.distinct_sizes() == sizes
    assert set(schedule.split(sum(sizes) + 3 * largest)) == set(sizes)
