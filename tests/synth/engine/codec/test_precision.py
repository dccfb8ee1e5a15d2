"""Test the names of the decoder's precisions, TF32's switch, and the measure of an error."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from synth.engine.codec.config import DECODE_PRECISIONS, CodecConfig
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.files.load import CodecCache, load_decoder
from synth.engine.codec.layers import NormedConv1d, NormedConvTranspose1d
from synth.engine.codec.precision import (
    Precision,
    allow_tf32,
    decode_error,
    decode_precision,
    encode_precision,
)
from synth.engine.errors import InvalidSpecError
from synth.engine.loading.engine_config import EngineConfig
from synth.engine.loading.loaded_models import load_models
from synth.engine.slots.sizing import plan_engine
from tests.synth.engine.codec.conftest import GOLDEN


def some_codes(frames: int, seed: int = 0) -> Tensor:
    """Return codes [10, frames] that the golden codec knows."""
    return torch.randint(0, 128, (10, frames), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("half", "named"), [("encoder", encode_precision), ("decoder", decode_precision)]
)
def test_names_stand_for_a_dtype_and_tf32(half: str, named: Callable[..., Precision]) -> None:
    found = {name: named(name, "cuda:0") for name in DECODE_PRECISIONS}

    assert {name: (p.dtype, p.tf32) for name, p in found.items()} == {
        "float32": (torch.float32, False),
        "tf32": (torch.float32, True),
        "bfloat16": (torch.bfloat16, False),
    }
    words = f"{half} runs in float32, tf32, bfloat16, not in 'float16'"
    with pytest.raises(InvalidSpecError, match=words):
        named("float16", "cuda:0")


def test_tf32_is_refused_where_the_device_has_none(checkpoint: Path) -> None:
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        decode_precision("tf32", "cpu")
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        load_decoder(checkpoint, "cpu", tf32=True)
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        CodecCache().decoder(checkpoint, "cpu", tf32=True)
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        encode_precision("tf32", "cpu")
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        CodecCache().encoder(checkpoint, "cpu", tf32=True)


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
    monkeypatch.setattr("synth.engine.codec.precision._check_tf32", lambda device: None)

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
    coarse = load_decoder(golden_checkpoint, "cpu", torch.bfloat16)
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
        load_decoder(golden_checkpoint, "cuda", tf32=True),
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
