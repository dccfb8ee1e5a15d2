"""Test that a half is built from its own weights only, in the numbers asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lab.gpu_check.codec_parity import decode_error
from synth.engine.codec.config import PRECISIONS, CodecConfig
from synth.engine.codec.fingerprint import convert_codec
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import NormedConv1d, NormedConvTranspose1d, Snake
from synth.engine.codec.load import (
    allow_tf32,
    half_dtype,
    load_decoder,
    load_encoder,
    uses_kernels,
    wants_kernels,
)
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.loading.engine_config import EngineConfig
from synth.engine.loading.loaded_models import load_models
from synth.engine.slots.sizing import plan_engine
from tests.synth.engine.codec.conftest import State, WriteCodec
from tests.synth.engine.conftest import GOLDEN


def test_a_half_does_not_read_what_the_other_needs(state: State, write_codec: WriteCodec) -> None:
    # A value that is not finite is an error once it is read.
    for name in ("decoder.model.0.conv.bias", "quantizer.upsample.0.1.gamma"):
        state[name] = torch.full_like(state[name], torch.nan)
    checkpoint = write_codec(state)

    load_encoder(checkpoint, "cpu")

    with pytest.raises(CheckpointError, match="not finite"):
        load_decoder(checkpoint, "cpu")


def test_loaded_weights_have_the_wanted_dtype_and_no_gradient(checkpoint: Path) -> None:
    for precision, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        for half in (load(checkpoint, "cpu", precision) for load in HALVES.values()):
            assert half.dtype is dtype
            assert half.device == torch.device("cpu")
            assert not half.training
            assert all(p.dtype is dtype and not p.requires_grad for p in half.parameters())


def test_a_loaded_half_does_not_depend_on_its_file(checkpoint: Path) -> None:
    decoder = load_decoder(checkpoint, "cpu")
    codes = torch.ones(4, 2, dtype=torch.int64)
    before = decoder.decode([codes])[0]

    path = checkpoint / "codec.pth"
    path.write_bytes(bytes(path.stat().st_size))  # in place, under the mapped pages

    assert torch.equal(decoder.decode([codes])[0], before)


def test_a_converted_codec_gives_the_same_audio_and_codes(checkpoint: Path) -> None:
    codes, wave = torch.ones(4, 2, dtype=torch.int64), torch.randn(5000) * 0.1
    audio = load_decoder(checkpoint, "cpu").decode([codes])[0]
    found = load_encoder(checkpoint, "cpu").encode([wave])[0]

    convert_codec(checkpoint)

    assert torch.equal(load_decoder(checkpoint, "cpu").decode([codes])[0], audio)
    assert torch.equal(load_encoder(checkpoint, "cpu").encode([wave])[0], found)


def test_a_cpu_never_gets_triton(checkpoint: Path) -> None:
    assert not wants_kernels("auto", "cpu")
    decoder = load_decoder(checkpoint, "cpu")
    assert all(snake.inverse is None for snake in decoder.modules() if isinstance(snake, Snake))
    assert not uses_kernels(load_decoder(checkpoint, "cpu", kernels="off"))
    assert not uses_kernels(load_encoder(checkpoint, "cpu"))


def test_another_word_for_the_choice_is_refused(checkpoint: Path) -> None:
    with pytest.raises(InvalidSpecError, match="'on' is not a setting for kernels"):
        load_decoder(checkpoint, "cpu", kernels="on")


@pytest.mark.gpu
def test_a_cuda_device_gets_kernels_unless_told_not_to(checkpoint: Path) -> None:
    device = torch.device("cuda")
    assert uses_kernels(load_decoder(checkpoint, device))
    assert not uses_kernels(load_decoder(checkpoint, device, kernels="off"))


def some_codes(frames: int, seed: int = 0) -> Tensor:
    """Return codes [10, frames] that the golden codec knows."""
    return torch.randint(0, 128, (10, frames), generator=torch.Generator().manual_seed(seed))


HALVES: dict[type[CodecEncoder | CodecDecoder], Callable[..., CodecEncoder | CodecDecoder]] = {
    CodecEncoder: load_encoder,
    CodecDecoder: load_decoder,
}


@pytest.mark.parametrize(("half", "word"), zip(HALVES, ("encoder", "decoder"), strict=True))
def test_names_stand_for_a_dtype(
    checkpoint: Path, half: type[CodecEncoder | CodecDecoder], word: str
) -> None:
    found = {name: half_dtype(half, name, "cuda:0") for name in PRECISIONS}

    assert found == {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}
    words = f"{word} runs in float32, tf32, bfloat16, not in 'float16'"
    with pytest.raises(InvalidSpecError, match=words):
        half_dtype(half, "float16", "cuda:0")
    with pytest.raises(InvalidSpecError, match=words):
        HALVES[half](checkpoint, "cpu", "float16")


@pytest.mark.parametrize("half", HALVES)
def test_tf32_is_refused_where_the_device_has_none(
    checkpoint: Path, half: type[CodecEncoder | CodecDecoder]
) -> None:
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        half_dtype(half, "tf32", "cpu")
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        HALVES[half](checkpoint, "cpu", "tf32")


@pytest.mark.parametrize(("encode", "decode"), [("float32", "tf32"), ("tf32", "float32")])
def test_an_engine_told_to_use_tf32_on_a_cpu_is_refused_before_it_loads(
    encode: str, decode: str
) -> None:
    config = EngineConfig(
        checkpoint=GOLDEN / "tiny-s2",
        device="cpu",
        codec_encode_dtype=encode,
        codec_decode_dtype=decode,
    )

    for load in (load_models, plan_engine):
        with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
            load(config)


@pytest.mark.parametrize("tf32", [False, True])
def test_every_convolution_says_itself_whether_tf32_is_allowed(
    config: CodecConfig, monkeypatch: pytest.MonkeyPatch, tf32: bool
) -> None:
    """Without a CUDA device: what reaches PyTorch's function is looked at."""
    given: list[bool] = []
    convolution = torch._convolution

    def note(*args: Any) -> Tensor:
        given.append(args[-1])
        return convolution(*args)

    monkeypatch.setattr(torch, "_convolution", note)
    decoder = CodecDecoder(config).requires_grad_(False).eval()
    for weight in decoder.parameters():
        weight.fill_(0.01)
    convolutions = [
        module
        for module in decoder.modules()
        if isinstance(module, (NormedConv1d, NormedConvTranspose1d))
    ]
    for module in convolutions:
        module.tf32 = tf32

    decoder.decode([torch.ones(4, 2, dtype=torch.int64)])

    # The quantizers' input projections are the encoder's alone.
    assert given == [tf32] * (len(convolutions) - config.num_codebooks)


@pytest.mark.parametrize("half_type", [CodecEncoder, CodecDecoder])
def test_tf32_reaches_every_convolution_but_those_of_the_quantizers(
    config: CodecConfig, monkeypatch: pytest.MonkeyPatch, half_type: type[nn.Module]
) -> None:
    """Without a CUDA device: the check for one is left out, and nothing is computed."""
    monkeypatch.setattr("synth.engine.codec.load._check_tf32", lambda device: None)

    half = allow_tf32(half_type(config))

    exact = {
        name
        for name, module in half.named_modules()
        if isinstance(module, (NormedConv1d, NormedConvTranspose1d)) and not module.tf32
    }
    assert len(exact) == 2 * config.num_codebooks
    assert all(name.endswith(("in_proj", "out_proj")) for name in exact)


def test_our_convolutions_are_pytorchs() -> None:
    x = torch.randn(2, 6, 40)
    ours, theirs = NormedConv1d(6, 4, 7, dilation=3), torch.nn.Conv1d(6, 4, 7, dilation=3)
    ours.load_state_dict(theirs.state_dict())
    transposed = NormedConvTranspose1d(6, 4, 8, stride=4)
    plain = torch.nn.ConvTranspose1d(6, 4, 8, stride=4)
    transposed.load_state_dict(plain.state_dict())

    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(transposed(x), plain(x))
    with pytest.raises(ValueError, match="size follows"):
        transposed(x, [200])


def test_the_error_of_bfloat16_is_measured(
    golden_checkpoint: Path, golden_decoder: CodecDecoder
) -> None:
    coarse = load_decoder(golden_checkpoint, "cpu", "bfloat16")
    codes = [some_codes(6), some_codes(9, seed=1)]

    found = decode_error(golden_decoder, coarse, codes)

    exact = torch.cat(golden_decoder.decode(codes))
    difference = torch.cat(coarse.decode(codes)) - exact
    assert found.max_abs == pytest.approx(difference.abs().max().item())
    ratio = exact.double().square().mean() / difference.double().square().mean()
    assert found.snr_db == pytest.approx(10 * math.log10(ratio))
    assert 15 < found.snr_db < 80


def test_a_decoder_has_no_error_against_itself(golden_decoder: CodecDecoder) -> None:
    found = decode_error(golden_decoder, golden_decoder, [some_codes(2)])
    assert (found.snr_db, found.max_abs) == (math.inf, 0.0)
    with pytest.raises(InvalidSpecError, match="at least one frame"):
        decode_error(golden_decoder, golden_decoder, [some_codes(0)])


@pytest.mark.gpu
def test_tf32_is_on_for_its_decoder_only(golden_checkpoint: Path) -> None:
    exact, rounded = (
        load_decoder(golden_checkpoint, "cuda"),
        load_decoder(golden_checkpoint, "cuda", "tf32"),
    )
    codes = [some_codes(40)]

    found = decode_error(exact, rounded, codes)

    # Small layers may run without the tensor cores also where they are allowed.
    reference = load_decoder(golden_checkpoint, "cpu")
    assert decode_error(reference, exact, codes).max_abs < 1e-4
    assert found.snr_db > 30


def test_tf32_needs_float32_weights() -> None:
    conv = NormedConv1d(2, 2, 3).to(torch.bfloat16)
    with pytest.raises(InvalidSpecError):
        allow_tf32(conv)
    assert not conv.tf32
