"""Test that only a file with exactly a codec's tensors is opened."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from lab.golden.case import GoldenFolder
from synth.engine.codec import codec_file
from synth.engine.codec.codec_file import (
    check_source_unchanged,
    checked_config,
    expected_shapes,
    folded_weights,
    open_codec,
    record_path,
    stored_shapes,
)
from synth.engine.codec.config import CodecConfig, TransformerConfig
from synth.engine.codec.fingerprint import convert_codec
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import CausalConv1d, CausalConvTranspose1d
from synth.engine.codec.load import load_encoder
from synth.engine.codec.stages import VectorQuantizer
from synth.engine.errors import CheckpointError
from synth.engine.loading.digests import file_sha256
from tests.synth.engine.codec.conftest import State, WriteCodec


def test_each_single_missing_tensor_is_named(config: CodecConfig, tmp_path: Path) -> None:
    shapes = expected_shapes(config)
    for name in shapes:
        with pytest.raises(CheckpointError) as refused:
            checked_config(tmp_path, {key: shapes[key] for key in shapes.keys() - {name}})

        assert name in str(refused.value)


def test_each_single_misshapen_tensor_is_named(config: CodecConfig, tmp_path: Path) -> None:
    shapes = expected_shapes(config)
    # Its rows are shown by no other tensor: a semantic codebook of any size is a codec.
    free = {"quantizer.semantic_quantizer.quantizers.0.codebook.weight"}

    for name in shapes.keys() - free:
        first, *rest = shapes[name]
        for wrong in ((first + 64, *rest), (first, *rest, 1)):
            with pytest.raises(CheckpointError) as refused:
                checked_config(tmp_path, {**shapes, name: wrong})

            assert name in str(refused.value)


def test_a_file_lacking_one_tensor_is_refused(state: State, write_codec: WriteCodec) -> None:
    name = "quantizer.downsample.0.1.gamma"
    del state[name]
    with pytest.raises(CheckpointError, match=rf"lacks {name}"):
        open_codec(write_codec(state))


def test_a_renamed_tensor_is_named_by_both_names(state: State, write_codec: WriteCodec) -> None:
    state["decoder.model.5.beta"] = state.pop("decoder.model.5.alpha")
    with pytest.raises(CheckpointError) as refused:
        open_codec(write_codec(state))
    assert "lacks decoder.model.5.alpha" in str(refused.value)
    assert "unknown decoder.model.5.beta" in str(refused.value)


def test_a_table_of_another_size_than_its_neighbours_is_named(
    state: State, write_codec: WriteCodec
) -> None:
    name = "quantizer.quantizer.quantizers.1.codebook.weight"
    with pytest.raises(CheckpointError, match=name):
        open_codec(write_codec(state | {name: state[name][:-1].clone()}))


def test_derived_tables_and_masks_in_a_file_are_ignored(
    state: State, write_codec: WriteCodec
) -> None:
    extra = {
        "encoder.block.4.block.5.causal_mask": torch.ones(4, 4, dtype=torch.bool),
        "quantizer.pre_module.freqs_cis": torch.ones(4, 32, 2, dtype=torch.bfloat16),
    }
    opened = open_codec(write_codec(state | extra))
    assert opened.tensors.keys() == state.keys()


def test_a_mask_elsewhere_is_an_unknown_tensor(state: State, write_codec: WriteCodec) -> None:
    with pytest.raises(CheckpointError, match=r"unknown decoder\.causal_mask"):
        open_codec(write_codec(state | {"decoder.causal_mask": torch.ones(4, 4)}))


def test_weights_that_are_integers_are_refused(state: State, write_codec: WriteCodec) -> None:
    name = "decoder.model.5.alpha"
    with pytest.raises(CheckpointError, match=rf"{name} is torch\.int32"):
        open_codec(write_codec(state | {name: torch.ones_like(state[name], dtype=torch.int32)}))


def test_names_without_generator_are_dropped_once_one_has_it(
    state: State, write_codec: WriteCodec
) -> None:
    prefixed = {f"generator.{name}": tensor for name, tensor in state.items()}
    other = {"discriminator.weight": torch.ones(1), "decoder.model.5.alpha": torch.ones(1)}

    opened = open_codec(write_codec({"state_dict": prefixed | other}))

    assert opened.tensors.keys() == state.keys()
    assert torch.equal(opened.tensors["decoder.model.5.alpha"], state["decoder.model.5.alpha"])


def test_an_old_layout_that_cannot_be_mapped_is_read(tmp_path: Path, state: State) -> None:
    torch.save(state, tmp_path / "codec.pth", _use_new_zipfile_serialization=False)
    assert open_codec(tmp_path).tensors.keys() == state.keys()


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"\x80\x04K\x01."])
def test_a_file_that_is_no_codec_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "codec.pth").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"codec\.pth"):
        open_codec(tmp_path)


def test_a_truncated_file_is_refused(checkpoint: Path) -> None:
    path = checkpoint / "codec.pth"
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(CheckpointError, match=r"codec\.pth"):
        open_codec(checkpoint)


def test_a_pickle_with_another_object_is_refused(state: State, write_codec: WriteCodec) -> None:
    with pytest.raises(CheckpointError, match="weights only"):
        open_codec(write_codec({"state_dict": state, "made_by": Path()}))


def test_a_folder_without_a_codec_is_refused_by_both_names(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"neither codec\.safetensors nor codec\.pth"):
        open_codec(tmp_path)


def test_the_converted_file_is_preferred_and_needs_no_original(checkpoint: Path) -> None:
    convert_codec(checkpoint)
    assert open_codec(checkpoint).path.name == "codec.safetensors"
    (checkpoint / "codec.pth").unlink()
    assert open_codec(checkpoint).path.name == "codec.safetensors"


def test_a_foreign_safetensors_beside_an_original_is_ambiguous(
    checkpoint: Path, state: State
) -> None:
    save_file(state, checkpoint / "codec.safetensors")
    with pytest.raises(CheckpointError, match="Keep only one"):
        open_codec(checkpoint)


def test_a_damaged_safetensors_is_refused(checkpoint: Path) -> None:
    (checkpoint / "codec.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(CheckpointError, match=r"codec\.safetensors"):
        open_codec(checkpoint)


def test_the_golden_codec_has_as_many_tensors_as_the_full_one(golden: GoldenFolder) -> None:
    opened = open_codec(golden.checkpoint)
    assert len(opened.tensors) == len(expected_shapes(opened.config)) == 535


FULL_SIZE = CodecConfig(
    sample_rate=44100,
    latent_dim=1024,
    encoder_dim=64,
    encoder_strides=(2, 4, 8, 8),
    decoder_dim=1536,
    decoder_rates=(8, 8, 4, 2),
    downsample_factors=(2, 2),
    upsample_factors=(2, 2),
    codebook_dim=8,
    semantic_codebook_size=4096,
    residual_codebook_size=1024,
    num_residual_codebooks=9,
    encoder_transformer=TransformerConfig(1024, 4, 16, 3072, 512),
    pre_module=TransformerConfig(1024, 8, 16, 3072, 128),
    post_module=TransformerConfig(1024, 8, 16, 3072, 128),
)


@pytest.mark.parametrize(
    ("half_type", "num_parameters"), [(CodecEncoder, 207_234_336), (CodecDecoder, 184_487_170)]
)
def test_a_full_size_half_takes_only_its_own_parameters(
    half_type: type[nn.Module], num_parameters: int
) -> None:
    with torch.device("meta"):
        half = half_type(FULL_SIZE)

    stored = stored_shapes(half)

    assert sum(math.prod(shape) for shape in stored.values()) == num_parameters
    # What the half holds once norms are folded is that less one number for each folded row.
    norms = [n for n in stored if n.endswith(("weight_g", "weight.original0"))]
    folded = sum(math.prod(stored[name]) for name in norms)
    assert sum(p.numel() for p in half.parameters()) == num_parameters - folded
    assert all(p.is_meta for p in half.parameters())
    assert not list(half.buffers())


def test_a_full_size_file_has_535_tensors_and_80_norms() -> None:
    shapes = expected_shapes(FULL_SIZE)
    assert len(shapes) == 535
    assert sum(math.prod(shape) for shape in shapes.values()) == 391_430_530
    assert sum(name.endswith(("weight_g", "weight.original0")) for name in shapes) == 80


def test_halves_share_the_quantizers_and_nothing_else(config: CodecConfig) -> None:
    with torch.device("meta"):
        shared = stored_shapes(CodecEncoder(config)).keys() & stored_shapes(CodecDecoder(config))
    assert shared
    assert all(
        name.startswith(("quantizer.semantic_quantizer.", "quantizer.quantizer."))
        for name in shared
    )


@pytest.mark.parametrize(
    ("module", "norm", "direction"),
    [
        (
            CausalConv1d(3, 5, 7),
            "conv.parametrizations.weight.original0",
            "conv.parametrizations.weight.original1",
        ),
        (
            CausalConvTranspose1d(3, 5, 4, stride=2),
            "conv.parametrizations.weight.original0",
            "conv.parametrizations.weight.original1",
        ),
        (VectorQuantizer(6, 2, 9), "in_proj.weight_g", "in_proj.weight_v"),
    ],
)
def test_both_spellings_fold_over_all_axes_but_the_first(
    module: nn.Module, norm: str, direction: str
) -> None:
    stored = {name: torch.randn(shape) for name, shape in stored_shapes(module).items()}

    folded = dict(folded_weights(module, stored))

    weight = folded[f"{norm.partition('.')[0]}.weight"]
    assert folded.keys() == dict(module.named_parameters()).keys()
    expected = torch._weight_norm(stored[direction], stored[norm], 0)
    torch.testing.assert_close(weight, expected)
    assert weight.shape == stored[direction].shape


def test_float16_is_widened_before_it_is_folded() -> None:
    module = CausalConv1d(3, 5, 7)
    stored = {name: torch.randn(s).half() for name, s in stored_shapes(module).items()}

    narrow = dict(folded_weights(module, stored))
    wide = dict(folded_weights(module, {name: t.float() for name, t in stored.items()}))

    assert all(weight.dtype is torch.float32 for weight in narrow.values())
    assert all(torch.equal(narrow[name], wide[name]) for name in wide)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_is_named(checkpoint: Path, state: State, value: float) -> None:
    name = "quantizer.pre_module.layers.0.attention.wo.weight"
    state[name][0, 0] = value
    torch.save(state, checkpoint / "codec.pth")
    with pytest.raises(CheckpointError, match=rf"{name} .* not finite"):
        load_encoder(checkpoint, "cpu")


def test_a_filter_of_zeros_is_named_and_not_divided_by(checkpoint: Path, state: State) -> None:
    name = "encoder.block.0.conv.parametrizations.weight.original1"
    state[name][1] = 0
    torch.save(state, checkpoint / "codec.pth")
    with pytest.raises(CheckpointError, match=name):
        load_encoder(checkpoint, "cpu")


@pytest.fixture
def converted(checkpoint: Path) -> tuple[Path, Path]:
    """Return a converted codec and its original."""
    return convert_codec(checkpoint).path, checkpoint / "codec.pth"


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of files whose whole content was hashed."""
    hashed: list[Path] = []
    original = file_sha256

    def count(path: Path) -> str:
        hashed.append(path)
        return original(path)

    monkeypatch.setattr(codec_file, "file_sha256", count)
    return hashed


def test_an_untouched_original_is_not_hashed_again(
    converted: tuple[Path, Path], hashes: list[Path]
) -> None:
    check_source_unchanged(*converted)
    assert hashes == []


def test_a_copy_with_another_time_is_hashed_and_accepted(
    converted: tuple[Path, Path], hashes: list[Path]
) -> None:
    os.utime(converted[1], ns=(1, 1))
    check_source_unchanged(*converted)
    assert hashes == [converted[1]]


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"source": "codec.pth"}'])
def test_without_a_readable_record_the_content_decides(
    converted: tuple[Path, Path], hashes: list[Path], content: str | None
) -> None:
    record = record_path(converted[0])
    if content is None:
        record.unlink()
    else:
        record.write_text(content, encoding="utf-8")

    check_source_unchanged(*converted)

    assert hashes == [converted[1]]


def test_another_original_of_the_same_size_is_refused(converted: tuple[Path, Path]) -> None:
    data = bytearray(converted[1].read_bytes())
    data[len(data) // 2] ^= 1
    converted[1].write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match=r"changed after codec\.safetensors"):
        check_source_unchanged(*converted)
