"""Test the decoding half: batches, prefixes, codes that are none, compiled code, waits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lab.golden.case import GoldenFolder
from synth.engine.codec import load
from synth.engine.codec.halves import (
    CodecDecoder,
    CodecEncoder,
    default_batch_frames,
    encode_reference,
)
from synth.engine.codec.load import load_decoder, uses_kernels
from synth.engine.codec.resample import ResamplerChoice
from synth.engine.codec.streams import CodecStream, decode_streams
from synth.engine.errors import InvalidSpecError
from synth.engine.native import convolution
from synth.engine.native.build import NotCompiledError
from tests.synth.engine.codec.conftest import (
    check_streams,
    decode_rounds,
    golden_codes,
    make_config,
    random_codes,
    random_state,
    watched_passes,
    whole,
)

MIXED = [golden_codes(frames, frames) for frames in (9, 1, 17, 0, 9, 150)]


@pytest.mark.parametrize(
    "limit", [40, 4096, *(pytest.param(n, marks=pytest.mark.thorough) for n in (1, 150))]
)
def test_a_batch_of_different_lengths_gives_the_audio_of_single_runs(
    golden_decoder: CodecDecoder, limit: int
) -> None:
    batch = golden_decoder.decode(MIXED, max_batch_frames=limit)
    for codes, audio in zip(MIXED, batch, strict=True):
        assert audio.shape == (2048 * codes.shape[1],) and audio.dtype is torch.float32
        (alone,) = golden_decoder.decode([codes], max_batch_frames=150)
        # Rounding alone: what leaks from padding or a neighbour is a hundredth and more. The
        # largest of 300,000 differences is the processor's affair, their norm hardly is.
        assert float((audio - alone).norm()) <= 1e-5 * float(alone.norm())
        # Longer than the limit it goes through in parts, as a stream does: exact within 1e-4.
        close = 3e-5 if codes.shape[1] <= limit else 1e-4
        if golden_decoder.compiled is not None:
            close = 0  # whatever the parts and the neighbours
        torch.testing.assert_close(audio, alone, atol=close, rtol=0)


@pytest.mark.thorough
@pytest.mark.parametrize("limit", [1, 40, 150, 4096])
def test_with_more_digits_a_batch_and_single_runs_differ_by_next_to_nothing(
    golden: GoldenFolder, limit: int
) -> None:
    exact = load_decoder(golden.checkpoint, "cpu", kernels="off")
    exact = exact.double()  # how a processor rounds sums plays no part here
    for codes, audio in zip(MIXED, exact.decode(MIXED, max_batch_frames=limit), strict=True):
        (alone,) = exact.decode([codes], max_batch_frames=150)
        torch.testing.assert_close(audio, alone, atol=1e-5, rtol=0)


def test_frames_in_flight_keep_to_the_limit_also_of_a_cpu(
    golden_decoder: CodecDecoder,
) -> None:
    codes = [golden_codes(100), golden_codes(30), golden_codes(30)]
    with watched_passes(golden_decoder) as limited:  # also where one is longer than the limit
        golden_decoder.decode([golden_codes(n) for n in (9, 50, 17, 17)], max_batch_frames=40)
    with watched_passes(golden_decoder) as passes:
        golden_decoder.decode(codes)
    assert sorted((frames for _, frames in limited), reverse=True) == [40, 34, 10, 9]
    assert [frames for _, frames in passes] == [64, 36, 60]
    assert default_batch_frames("cuda") == 512
    with pytest.raises(ValueError, match="at least 1"):
        golden_decoder.decode(codes, max_batch_frames=0)


def test_a_prefix_of_the_codes_gives_the_prefix_of_the_audio(golden_decoder: CodecDecoder) -> None:
    codes = golden_codes(150)
    whole, part = golden_decoder.decode([codes]), golden_decoder.decode([codes[:, :140]])
    close = 1e-5 if golden_decoder.compiled is None else 0  # which gives the very same numbers
    torch.testing.assert_close(whole[0][: 140 * 2048], part[0], atol=close, rtol=0)
    difference = whole[0][: 140 * 2048] - part[0]
    assert float(difference.norm()) <= 1e-5 * float(part[0].norm())


def test_codes_of_any_integers_above_their_codebook_are_clamped_in_a_copy(
    golden_decoder: CodecDecoder,
) -> None:
    codes = golden_codes(3)
    codes[0, 1], codes[4, 2] = 99999, 32767
    before, clamped = codes.clone(), codes.clamp(max=127)
    clamped[0, 1] = 255
    (expected,) = golden_decoder.decode([clamped])
    for kind in (torch.int32, torch.int64):
        assert torch.equal(golden_decoder.decode([codes.to(kind)])[0], expected)
    assert torch.equal(codes, before)
    short = golden_decoder.decode([clamped.to(torch.int16)])[0]
    assert torch.equal(short, expected)


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (torch.full((10, 2), -1), "negative"),
        (torch.zeros(9, 2, dtype=torch.int64), r"\(10, frames\)"),
        *(
            (torch.zeros(size, dtype=torch.int64), r"\(10, frames\)")
            for size in ((10,), (1, 10, 2))
        ),
        (torch.zeros(10, 2), "integers"),
        (torch.zeros(10, 2, dtype=torch.bool), "integers"),
    ],
)
def test_what_is_no_code_matrix_is_refused(
    golden_decoder: CodecDecoder, codes: Tensor, words: str
) -> None:
    with pytest.raises(InvalidSpecError, match=words):
        golden_decoder.decode([golden_codes(1), codes])


def test_bfloat16_decodes_to_nearly_the_same_float32_audio(
    golden_checkpoint: Path, golden_decoder: CodecDecoder
) -> None:
    codes = golden_codes(6)
    (found,) = load_decoder(golden_checkpoint, "cpu", "bfloat16").decode([codes])
    expected = golden_decoder.decode([codes])[0]
    assert found.dtype is torch.float32
    error = (found - expected).square().mean().sqrt()
    assert 1e-6 < error < 0.1 * expected.std()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("codec")
    torch.save(random_state(make_config()), folder / "codec.pth")
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> CodecDecoder:
    return load_decoder(folder, "cpu", kernels="off")


@pytest.fixture(
    scope="module", params=[pytest.param("", marks=pytest.mark.compiler, id="compiled")]
)
def ours(folder: Path) -> CodecDecoder:
    return load_decoder(folder, "cpu")


def test_the_compiled_decoder_gives_what_pytorch_gives(
    plain: CodecDecoder, ours: CodecDecoder, folder: Path
) -> None:
    codes = [random_codes(ours.config, frames, frames) for frames in (1, 2, 19, 40, 200)]
    found, expected = ours.decode(codes), plain.decode(codes)
    assert uses_kernels(ours) and not uses_kernels(plain)
    assert not uses_kernels(load_decoder(folder, "cpu", "bfloat16"))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is torch.float32 and float(other.std()) > 0.01
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_other_threads_change_no_bit(ours: CodecDecoder) -> None:
    codes = [random_codes(ours.config, frames, frames) for frames in (60, 1, 17, 40, 2, 33) * 2]
    expected = [whole(ours, matrix) for matrix in codes]

    def stream(matrix: Tensor) -> Tensor:
        own = CodecStream(ours)
        return torch.cat([own.decode(chunk) for chunk in torch.split(matrix, 7, dim=1)])

    with ThreadPoolExecutor(4) as pool:
        wholes = [pool.submit(whole, ours, matrix) for matrix in codes]
        streams = [pool.submit(stream, matrix) for matrix in codes]
        batches = [pool.submit(ours.decode, codes) for _ in range(3)]

    for found in (wholes, streams):
        assert all(torch.equal(a.result(), b) for a, b in zip(found, expected, strict=True))
    for batch in batches:
        assert all(torch.equal(a, b) for a, b in zip(batch.result(), expected, strict=True))


def test_codes_in_another_order_of_another_kind_or_too_large_are_codes(ours: CodecDecoder) -> None:
    codes = random_codes(ours.config, 20)
    expected, other = whole(ours, codes), codes.T.contiguous().T
    assert not other.is_contiguous()
    assert torch.equal(whole(ours, other), expected)
    assert torch.equal(CodecStream(ours).decode(other), expected)
    assert torch.equal(whole(ours, codes.to(torch.int16)), expected)
    # Codes above their codebook mean its last row.
    codes[0, 3], codes[1, 5], codes[3, 19] = 50, 30, 1 << 40
    last = codes.clone()
    last[0, 3], last[1, 5], last[3, 19] = 49, 29, 29
    assert torch.equal(whole(ours, codes), whole(ours, last))
    assert torch.equal(CodecStream(ours).decode(codes), whole(ours, last))


def test_streams_at_different_places_give_what_pytorch_gives(
    plain: CodecDecoder, ours: CodecDecoder
) -> None:
    """They start and end apart and go together in between, two and three in a pass."""
    codes = [random_codes(ours.config, 200, seed) for seed in range(3)]
    rounds = [(0, 37, 0), (1, 1, 0), (8, 8, 8), (130, 0, 130), (30, 30, 30)]
    found, streams = decode_rounds(ours, codes, rounds)
    assert [stream.num_frames for stream in streams] == [169, 76, 168]
    check_streams(found, streams, codes, atol=0)
    expected, _ = decode_rounds(plain, codes, rounds)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_weights_are_held_once(plain: CodecDecoder, ours: CodecDecoder) -> None:
    def num_bytes(half: nn.Module) -> int:
        return sum(weight.numel() * weight.element_size() for weight in half.parameters())

    # The test's layers are as narrow as 1 and 2 outputs; groups of outputs are filled up.
    assert num_bytes(plain) <= num_bytes(ours) <= 1.2 * num_bytes(plain)


def test_without_a_compiler_pytorch_does_it_and_the_log_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise NotCompiledError("there is no C compiler; install gcc, then start the worker again")

    monkeypatch.setattr(convolution, "native_library", refuse)
    with caplog.at_level(logging.INFO, logger=load.__name__):
        decoder = load_decoder(folder, "cpu")

    assert not uses_kernels(decoder)
    (audio,) = decoder.decode([random_codes(decoder.config, 5)])
    assert audio.shape == (5 * 2048,) and bool(audio.isfinite().all())
    assert "decoding audio with PyTorch" in caplog.text and "install gcc" in caplog.text


WAITING = {"_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "equal"}


class _Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def operations(work: Callable[[], object]) -> list[str]:
    work()  # the first time tables and filters are made
    seen = _Operations()
    with seen:
        work()
    return seen.names


def asked(decoder: CodecDecoder) -> int:
    """Return how often a check of codes asks PyTorch: not where compiled code needs the host."""
    return 1 if decoder.compiled is None else 0


def test_a_clip_is_encoded_without_waiting_on_the_way(golden_encoder: CodecEncoder) -> None:
    # Of 4 s, which are two pieces.
    wave = (np.random.default_rng(0).standard_normal(4 * 48_000) * 0.1).astype(np.float32)

    names = operations(
        lambda: encode_reference(golden_encoder, wave, 48_000, ResamplerChoice.BUILTIN)
    )

    waits = [place for place, name in enumerate(names) if name in WAITING]
    convolutions = [place for place, name in enumerate(names) if "convolution" in name]
    between = [place for place in waits if convolutions[0] < place < convolutions[-1]]
    before = [place for place in waits if place < convolutions[0]]
    assert len(convolutions) > 40
    assert between == []
    assert len(before) == 1  # whether the clip is finite, asked where it came from
    assert len(waits) == 2


def test_a_batch_waits_once_before_it_is_decoded(golden_decoder: CodecDecoder) -> None:
    codes = [random_codes(golden_decoder.config, n) for n in (9, 5, 30)]
    with watched_passes(golden_decoder) as passes:
        names = operations(lambda: golden_decoder.decode(codes, max_batch_frames=40))
    assert len([name for name in names if name in WAITING]) == asked(golden_decoder)
    assert len(passes) == 2 * 2  # two in each of two runs
    in_pytorch = 2 * 2 if golden_decoder.compiled is None else 0  # two in each of two passes
    assert len([name for name in names if name == "gelu"]) == in_pytorch


def test_chunks_of_streams_at_different_places_wait_once(golden_decoder: CodecDecoder) -> None:
    codes = [random_codes(golden_decoder.config, n, seed) for seed, n in enumerate((20, 60))]
    streams = [CodecStream(golden_decoder) for _ in codes]
    streams[0].decode(codes[0][:, :3])
    names = operations(lambda: decode_streams(streams, [matrix[:, 3:11] for matrix in codes]))
    assert len([name for name in names if name in WAITING]) == asked(golden_decoder)
    if golden_decoder.compiled is None:  # which works on the host
        assert "lift_fresh" not in names  # a tensor made of the host's numbers


def test_a_chunk_behind_its_check_never_waits(golden_decoder: CodecDecoder) -> None:
    state = golden_decoder.initial_state()
    codes: Tensor = random_codes(golden_decoder.config, 8)[None]

    def decode() -> None:
        with torch.inference_mode():
            golden_decoder.run(codes, state.copy(), 8)

    with watched_passes(golden_decoder) as passes:
        names = operations(decode)

    assert len(passes) == 2  # one in each of two runs
    assert len(names) > 100 or golden_decoder.compiled is not None
    assert not WAITING & set(names)


def test_codes_of_our_own_frames_are_taken_from_a_device_without_waiting(
    golden_decoder: CodecDecoder,
) -> None:
    """Tensors without numbers stand for those on a device: looking at one would fail."""
    there = torch.zeros(10, 4, dtype=torch.int64, device="meta")
    golden_decoder.check_codes([there, golden_codes(3)], may_wait=False)
    with pytest.raises(InvalidSpecError, match="negative"):
        golden_decoder.check_codes([torch.full((10, 2), -1)], may_wait=False)
    with pytest.raises(InvalidSpecError, match="integers"):
        golden_decoder.check_codes([there.float()], may_wait=False)
