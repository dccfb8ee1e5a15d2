"""Test that a half is built from its own weights in the numbers asked for, and its fingerprint."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lab.gpu_check.codec_parity import decode_error
from synth.engine.codec import codec_file
from synth.engine.codec.codec_file import (
    convert_codec,
    half_digest,
    open_codec,
    stored_shapes,
    weights_digest,
)
from synth.engine.codec.config import PRECISIONS, CodecConfig
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import Normed, NormedConv1d, Snake
from synth.engine.codec.load import (
    allow_tf32,
    decoding_precision,
    half_dtype,
    load_decoder,
    load_encoder,
    uses_kernels,
    wants_kernels,
)
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.loading import weights
from synth.engine.loading.engine_config import EngineConfig
from synth.engine.loading.loaded_models import load_models
from synth.engine.loading.weights import file_sha256
from synth.engine.slots.sizing import plan_engine
from tests.synth.engine.codec.conftest import State, WriteCodec, golden_codes
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
            assert (half.dtype, half.device.type, half.training) == (dtype, "cpu", False)
            assert all(p.dtype is dtype and not p.requires_grad for p in half.parameters())


def test_a_loaded_half_does_not_depend_on_its_file(checkpoint: Path) -> None:
    decoder = load_decoder(checkpoint, "cpu")
    codes = torch.ones(4, 2, dtype=torch.int64)
    before = decoder.decode([codes])[0]
    path = checkpoint / "codec.pth"
    path.write_bytes(bytes(path.stat().st_size))  # in place, under the mapped pages
    assert torch.equal(decoder.decode([codes])[0], before)


def test_a_cpu_never_gets_triton_and_another_word_is_refused(checkpoint: Path) -> None:
    assert not wants_kernels("auto", "cpu")
    decoder = load_decoder(checkpoint, "cpu")
    assert all(snake.inverse is None for snake in decoder.modules() if isinstance(snake, Snake))
    assert not uses_kernels(load_decoder(checkpoint, "cpu", kernels="off"))
    assert not uses_kernels(load_encoder(checkpoint, "cpu"))
    with pytest.raises(InvalidSpecError, match="'on' is not a setting for kernels"):
        load_decoder(checkpoint, "cpu", kernels="on")


@pytest.mark.gpu
def test_a_cuda_device_gets_kernels_unless_told_not_to(checkpoint: Path) -> None:
    device = torch.device("cuda")
    assert uses_kernels(load_decoder(checkpoint, device))
    assert not uses_kernels(load_decoder(checkpoint, device, kernels="off"))


HALVES: dict[type[CodecEncoder | CodecDecoder], Callable[..., CodecEncoder | CodecDecoder]] = {
    CodecEncoder: load_encoder,
    CodecDecoder: load_decoder,
}


@pytest.mark.parametrize(("half", "word"), zip(HALVES, ("encoder", "decoder"), strict=True))
def test_names_stand_for_a_dtype_where_the_device_has_it(
    checkpoint: Path, half: type[CodecEncoder | CodecDecoder], word: str
) -> None:
    found = {name: half_dtype(half, name, "cuda:0") for name in PRECISIONS}

    assert found == {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}
    words = f"{word} runs in float32, tf32, bfloat16, not in 'float16'"
    with pytest.raises(InvalidSpecError, match=words):
        half_dtype(half, "float16", "cuda:0")
    with pytest.raises(InvalidSpecError, match=words):
        HALVES[half](checkpoint, "cpu", "float16")
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        half_dtype(half, "tf32", "cpu")
    with pytest.raises(InvalidSpecError, match="codec runs on cpu; use float32"):
        HALVES[half](checkpoint, "cpu", "tf32")


def test_codes_are_decoded_in_ten_bits_where_a_device_has_them_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert EngineConfig(GOLDEN / "tiny-s2").codec_decode_dtype == "auto"
    assert EngineConfig(GOLDEN / "tiny-s2").codec_encode_dtype == "float32"
    for capability, found in (((7, 5), "float32"), ((8, 0), "tf32"), ((9, 0), "tf32")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, has=capability: has)
        assert decoding_precision("auto", "cuda:0") == found
        assert decoding_precision("float32", "cuda:0") == "float32"
    assert decoding_precision("auto", "cpu") == "float32"


@pytest.mark.parametrize(("encode", "decode"), [("float32", "tf32"), ("tf32", "float32")])
def test_an_engine_told_to_use_tf32_on_a_cpu_is_refused_before_it_loads(
    encode: str, decode: str
) -> None:
    config = EngineConfig(
        GOLDEN / "tiny-s2", "cpu", codec_encode_dtype=encode, codec_decode_dtype=decode
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
    convolutions = [module for module in decoder.modules() if isinstance(module, Normed)]
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
        if isinstance(module, Normed) and not module.tf32
    }
    assert len(exact) == 2 * config.num_codebooks
    assert all(name.endswith(("in_proj", "out_proj")) for name in exact)


def test_the_error_of_bfloat16_is_measured(
    golden_checkpoint: Path, golden_decoder: CodecDecoder
) -> None:
    coarse = load_decoder(golden_checkpoint, "cpu", "bfloat16")
    codes = [golden_codes(6), golden_codes(9, 1)]

    found = decode_error(golden_decoder, coarse, codes)

    exact = torch.cat(golden_decoder.decode(codes))
    difference = torch.cat(coarse.decode(codes)) - exact
    assert found.max_abs == pytest.approx(difference.abs().max().item())
    ratio = exact.double().square().mean() / difference.double().square().mean()
    assert found.snr_db == pytest.approx(10 * math.log10(ratio))
    assert 15 < found.snr_db < 80
    none = decode_error(golden_decoder, golden_decoder, [golden_codes(2)])
    assert (none.snr_db, none.max_abs) == (math.inf, 0.0)
    with pytest.raises(InvalidSpecError, match="at least one frame"):
        decode_error(golden_decoder, golden_decoder, [golden_codes(0)])


@pytest.mark.gpu
def test_tf32_is_on_for_its_decoder_only(golden_checkpoint: Path) -> None:
    exact = load_decoder(golden_checkpoint, "cuda")
    rounded = load_decoder(golden_checkpoint, "cuda", "tf32")
    codes = [golden_codes(40)]
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


def codec_fingerprint(
    checkpoint: Path, precision: str = "float32", *, cache_dir: Path | None = None
) -> str:
    opened = open_codec(checkpoint)
    return codec_file.codec_fingerprint(opened, precision, cache_dir=cache_dir)


def test_both_containers_give_the_same_fingerprint(
    checkpoint: Path, state: State, tmp_path: Path
) -> None:
    opened, before = open_codec(checkpoint), codec_fingerprint(checkpoint)
    assert half_digest(opened, CodecEncoder) != half_digest(opened, CodecDecoder)
    (tmp_path / "other").mkdir()
    save_file(state, tmp_path / "other" / "codec.safetensors")
    result = convert_codec(checkpoint)
    with_both = codec_fingerprint(checkpoint)
    (checkpoint / "codec.pth").unlink()
    assert before == with_both == codec_fingerprint(checkpoint) == result.codec_fingerprint
    assert before == codec_fingerprint(tmp_path / "other") and len(before) == 64


def test_wrapping_and_storage_dtype_do_not_count(state: State, write_codec: WriteCodec) -> None:
    rounded = {name: tensor.half() for name, tensor in state.items()}
    plain = write_codec({name: t.float() for name, t in rounded.items()}, "plain")
    narrow = write_codec(rounded, "narrow")
    wrapped = write_codec(
        {"state_dict": {f"generator.{n}": t for n, t in rounded.items()}}, "wrapped"
    )
    assert codec_fingerprint(plain) == codec_fingerprint(narrow) == codec_fingerprint(wrapped)


def test_every_precision_of_encoding_has_a_fingerprint_of_its_own(checkpoint: Path) -> None:
    precisions = ("float32", "bfloat16", "tf32")
    assert len({codec_fingerprint(checkpoint, precision) for precision in precisions}) == 3


def test_each_tensor_that_encodes_counts_and_no_other(
    state: State, write_codec: WriteCodec
) -> None:
    with torch.device("meta"):
        encoder = CodecEncoder(open_codec(write_codec(state, "plain")).config)
    encoding = stored_shapes(encoder)
    before = weights_digest({name: state[name] for name in encoding})
    plain = codec_fingerprint(write_codec(state, "plain"))

    for name in (
        "quantizer.downsample.0.0.conv.bias",
        "quantizer.quantizer.quantizers.2.out_proj.bias",
    ):
        changed = state | {name: state[name] + 1}
        assert weights_digest({n: changed[n] for n in encoding}) != before
        assert codec_fingerprint(write_codec(changed, name)) != plain
    for name in ("decoder.model.0.conv.bias", "quantizer.post_module.norm.weight"):
        assert codec_fingerprint(write_codec(state | {name: state[name] + 1}, name)) == plain


def test_a_name_or_a_shape_counts_like_a_value() -> None:
    values = torch.arange(6.0)
    digests = {
        weights_digest(tensors)
        for tensors in (
            {"a": values}, {"b": values}, {"a": values.view(2, 3)}, {"a": values.view(3, 2)}
        )
    }  # fmt: skip
    assert len(digests) == 4
    assert weights_digest({"a": values, "b": values}) == weights_digest({"b": values, "a": values})


def test_version_configured_window_and_content_count(
    checkpoint: Path, state: State, write_codec: WriteCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [codec_fingerprint(checkpoint)]
    with monkeypatch.context() as patch:
        patch.setattr(codec_file, "PREPROCESSING_VERSION", 999)
        found.append(codec_fingerprint(checkpoint))
    name = "encoder.block.0.conv.bias"
    write_codec(state | {name: state[name] + 1})  # changed in place
    found.append(codec_fingerprint(checkpoint))
    content = {"quantizer": {"pre_module": {"window_size": 64}}}
    (checkpoint / "codec_config.json").write_text(json.dumps(content), encoding="utf-8")
    found.append(codec_fingerprint(checkpoint))
    assert len(set(found)) == 4


def forget() -> None:
    with weights._memo_lock:
        weights._memo.clear()


def test_a_kept_digest_is_used_after_a_restart(checkpoint: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before = codec_fingerprint(checkpoint, cache_dir=cache)
    forget()
    kept = cache / weights.CACHE_NAME
    entries = json.loads(kept.read_text(encoding="utf-8"))
    kept.write_text(json.dumps(dict.fromkeys(entries, "f" * 64)), encoding="utf-8")
    # The kept number was altered, so only its use explains another fingerprint.
    assert codec_fingerprint(checkpoint, cache_dir=cache) != before
    forget()
    assert codec_fingerprint(checkpoint) == before


def test_kept_digests_are_bounded(
    state: State, write_codec: WriteCodec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MAX_ENTRIES", 4)
    cache = tmp_path / "cache"
    for index in range(weights.MAX_ENTRIES + 3):
        codec_fingerprint(write_codec(state, f"copy{index}"), cache_dir=cache)
    kept = json.loads((cache / weights.CACHE_NAME).read_text(encoding="utf-8"))
    assert len(kept) == weights.MAX_ENTRIES
    assert len(weights._memo) <= weights.MAX_ENTRIES


def test_the_converted_file_holds_the_same_tensors_under_plain_names_and_names_its_source(
    state: State, write_codec: WriteCodec
) -> None:
    half = {f"generator.{name}": tensor.half() for name, tensor in state.items()}
    checkpoint = write_codec({"state_dict": half})

    result = convert_codec(checkpoint)

    found = load_file(result.path)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name].half()) for name in state)
    assert (result.num_tensors, result.num_bytes) == (len(state), result.path.stat().st_size)
    digest = file_sha256(checkpoint / "codec.pth")
    with safe_open(result.path, "pt") as opened:
        metadata = opened.metadata()
    assert metadata["source_sha256"] == result.source_sha256 == digest
    assert len(metadata["encoder_sha256"]) == len(metadata["decoder_sha256"]) == 64
    record = json.loads(result.record.read_text(encoding="utf-8"))
    assert (record["source"], record["source_sha256"]) == ("codec.pth", digest)
    assert record["codec_fingerprint"] == result.codec_fingerprint == codec_fingerprint(checkpoint)


def test_converting_again_replaces_a_stale_conversion(
    checkpoint: Path, state: State, write_codec: WriteCodec
) -> None:
    convert_codec(checkpoint)
    name = "decoder.model.5.alpha"
    write_codec(state | {name: state[name] + 1})
    with pytest.raises(CheckpointError, match="convert_codec"):
        open_codec(checkpoint)
    convert_codec(checkpoint)
    assert torch.equal(open_codec(checkpoint).tensors[name], state[name] + 1)


def test_a_codec_that_would_not_load_or_is_not_there_is_not_converted(
    state: State, write_codec: WriteCodec, tmp_path: Path
) -> None:
    del state["decoder.model.5.alpha"]
    checkpoint = write_codec(state)
    with pytest.raises(CheckpointError, match=r"decoder\.model\.5\.alpha"):
        convert_codec(checkpoint)
    assert [path.name for path in checkpoint.iterdir()] == ["codec.pth"]
    with pytest.raises(CheckpointError, match="nothing to convert"):
        convert_codec(tmp_path)


def test_tensors_that_share_memory_or_are_strided_are_converted(
    state: State, write_codec: WriteCodec
) -> None:
    shared = torch.stack([state["encoder.block.0.conv.bias"]] * 2)
    strided = state["quantizer.pre_module.layers.0.attention.wo.weight"].t().contiguous().t()
    changes = {
        "encoder.block.0.conv.bias": shared[0],
        "encoder.block.1.block.0.block.1.conv.bias": shared[1],
        "quantizer.pre_module.layers.0.attention.wo.weight": strided,
    }
    checkpoint = write_codec(state | changes)
    before = codec_fingerprint(checkpoint)
    result = convert_codec(checkpoint)
    assert result.codec_fingerprint == before == codec_fingerprint(checkpoint)
    (checkpoint / "codec.pth").unlink()
    assert codec_fingerprint(checkpoint) == before


def test_a_disk_that_fills_up_leaves_no_part_behind(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(tensors: State, path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(codec_file, "save_file", write_half)

    with pytest.raises(CheckpointError, match="No space left"):
        convert_codec(checkpoint)

    assert [path.name for path in checkpoint.iterdir()] == ["codec.pth"]
