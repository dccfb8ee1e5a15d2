"""Test that only a file with exactly a codec's tensors is opened, and sizes are read off it."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lab.bench.models.shapes import preset
from lab.golden.case import GoldenFolder
from synth.engine.codec import codec_file
from synth.engine.codec.codec_file import (
    check_source_unchanged,
    checked_config,
    convert_codec,
    expected_shapes,
    folded_weights,
    open_codec,
    record_path,
    stored_shapes,
)
from synth.engine.codec.config import CodecConfig, apply_config_file, config_from_shapes
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.layers import CausalConv1d
from synth.engine.codec.load import load_encoder
from synth.engine.errors import CheckpointError
from synth.engine.loading.weights import file_sha256
from tests.synth.engine.codec.conftest import State, WriteCodec, make_config


def refusal(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> str:
    with pytest.raises(CheckpointError) as refused:
        checked_config(folder, shapes)
    return str(refused.value)


def test_each_single_missing_or_misshapen_tensor_is_named(
    config: CodecConfig, tmp_path: Path
) -> None:
    shapes = expected_shapes(config)
    # Its rows are shown by no other tensor: a semantic codebook of any size is a codec.
    free = {"quantizer.semantic_quantizer.quantizers.0.codebook.weight"}
    for name in shapes:
        assert name in refusal(tmp_path, {key: shapes[key] for key in shapes.keys() - {name}})
    for name in shapes.keys() - free:
        first, *rest = shapes[name]
        for wrong in ((first + 64, *rest), (first, *rest, 1)):
            assert name in refusal(tmp_path, {**shapes, name: wrong})


ALPHA = "decoder.model.5.alpha"
TABLE = "quantizer.quantizer.quantizers.1.codebook.weight"


@pytest.mark.parametrize(
    ("without", "also", "words"),
    [
        ("quantizer.downsample.0.1.gamma", {}, ["lacks quantizer.downsample.0.1.gamma"]),
        (
            ALPHA,
            {"decoder.model.5.beta": lambda state: state[ALPHA]},
            [f"lacks {ALPHA}", "unknown decoder.model.5.beta"],
        ),
        ("", {TABLE: lambda state: state[TABLE][:-1].clone()}, [TABLE]),
        ("", {"decoder.causal_mask": lambda _: torch.ones(4, 4)}, ["unknown decoder.causal_mask"]),
        ("", {ALPHA: lambda state: state[ALPHA].int()}, [f"{ALPHA} is torch.int32"]),
    ],
    ids=["one missing", "renamed", "another size", "a mask elsewhere", "integers"],
)
def test_a_file_that_holds_other_tensors_is_refused_by_their_names(
    state: State,
    write_codec: WriteCodec,
    without: str,
    also: dict[str, Callable[[State], Tensor]],
    words: list[str],
) -> None:
    changes = {name: make(state) for name, make in also.items()}
    kept = {name: tensor for name, tensor in state.items() if name != without}
    with pytest.raises(CheckpointError) as refused:
        open_codec(write_codec(kept | changes))
    assert all(word in str(refused.value) for word in words)


def test_derived_tables_foreign_names_and_an_old_layout_are_accepted(
    state: State, write_codec: WriteCodec, tmp_path: Path
) -> None:
    extra = {
        "encoder.block.4.block.5.causal_mask": torch.ones(4, 4, dtype=torch.bool),
        "quantizer.pre_module.freqs_cis": torch.ones(4, 32, 2, dtype=torch.bfloat16),
    }
    assert open_codec(write_codec(state | extra)).tensors.keys() == state.keys()
    # Names without `generator.` are dropped once one has it.
    prefixed = {f"generator.{name}": tensor for name, tensor in state.items()}
    other = {"discriminator.weight": torch.ones(1), ALPHA: torch.ones(1)}
    opened = open_codec(write_codec({"state_dict": prefixed | other}))
    assert opened.tensors.keys() == state.keys()
    assert torch.equal(opened.tensors[ALPHA], state[ALPHA])
    # This layout cannot be mapped.
    torch.save(state, tmp_path / "codec.pth", _use_new_zipfile_serialization=False)
    assert open_codec(tmp_path).tensors.keys() == state.keys()


def test_files_that_are_cut_short_foreign_damaged_or_missing_are_refused(
    checkpoint: Path, state: State, write_codec: WriteCodec, tmp_path: Path
) -> None:
    path = checkpoint / "codec.pth"
    content = path.read_bytes()
    for wrong in (content[:-5000], b"", b"not a pickle", b"\x80\x04K\x01."):
        path.write_bytes(wrong)
        with pytest.raises(CheckpointError, match=r"codec\.pth"):
            open_codec(checkpoint)
    with pytest.raises(CheckpointError, match="weights only"):
        open_codec(write_codec({"state_dict": state, "made_by": Path()}))
    path.write_bytes(content)
    save_file(state, checkpoint / "codec.safetensors")
    with pytest.raises(CheckpointError, match="Keep only one"):
        open_codec(checkpoint)
    (checkpoint / "codec.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(CheckpointError, match=r"codec\.safetensors"):
        open_codec(checkpoint)
    with pytest.raises(CheckpointError, match=r"neither codec\.safetensors nor codec\.pth"):
        open_codec(tmp_path)


def test_the_converted_file_is_preferred_and_needs_no_original(checkpoint: Path) -> None:
    convert_codec(checkpoint)
    assert open_codec(checkpoint).path.name == "codec.safetensors"
    (checkpoint / "codec.pth").unlink()
    assert open_codec(checkpoint).path.name == "codec.safetensors"


FULL_SIZE = preset("full").codec


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


def test_a_full_size_file_has_535_tensors_and_80_norms_and_halves_share_the_quantizers(
    golden: GoldenFolder,
) -> None:
    opened, shapes = open_codec(golden.checkpoint), expected_shapes(FULL_SIZE)
    assert len(opened.tensors) == len(expected_shapes(opened.config)) == len(shapes) == 535
    assert sum(math.prod(shape) for shape in shapes.values()) == 391_430_530
    assert sum(name.endswith(("weight_g", "weight.original0")) for name in shapes) == 80
    with torch.device("meta"):
        halves = [stored_shapes(half(FULL_SIZE)) for half in (CodecEncoder, CodecDecoder)]
    stacks = ("quantizer.semantic_quantizer.", "quantizer.quantizer.")
    shared = halves[0].keys() & halves[1].keys()
    assert shared and all(name.startswith(stacks) for name in shared)


def test_float16_is_widened_before_it_is_folded() -> None:
    module = CausalConv1d(3, 5, 7)
    stored = {name: torch.randn(s).half() for name, s in stored_shapes(module).items()}
    narrow = dict(folded_weights(module, stored))
    wide = dict(folded_weights(module, {name: t.float() for name, t in stored.items()}))
    assert all(weight.dtype is torch.float32 for weight in narrow.values())
    assert all(torch.equal(narrow[name], wide[name]) for name in wide)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("quantizer.pre_module.layers.0.attention.wo.weight", math.nan, " .* not finite"),
        ("quantizer.pre_module.layers.0.attention.wo.weight", math.inf, " .* not finite"),
        ("encoder.block.0.conv.parametrizations.weight.original1", 0.0, ""),  # a filter of zeros
    ],
)
def test_a_weight_that_cannot_be_used_is_named(
    checkpoint: Path, state: State, name: str, value: float, words: str
) -> None:
    state[name][1] = value
    torch.save(state, checkpoint / "codec.pth")
    with pytest.raises(CheckpointError, match=rf"{name}{words}"):
        load_encoder(checkpoint, "cpu")


@pytest.fixture
def converted(checkpoint: Path) -> tuple[Path, Path]:
    return convert_codec(checkpoint).path, checkpoint / "codec.pth"


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    hashed: list[Path] = []

    def count(path: Path) -> str:
        hashed.append(path)
        return file_sha256(path)

    monkeypatch.setattr(codec_file, "file_sha256", count)
    return hashed


def test_an_original_is_hashed_again_only_where_its_time_is_another(
    converted: tuple[Path, Path], hashes: list[Path]
) -> None:
    check_source_unchanged(*converted)
    assert hashes == []
    os.utime(converted[1], ns=(1, 1))
    check_source_unchanged(*converted)
    assert hashes == [converted[1]]


def test_without_a_readable_record_the_content_decides(
    converted: tuple[Path, Path], hashes: list[Path]
) -> None:
    record = record_path(converted[0])
    for content in (None, "", "{", "[]", '{"source": "codec.pth"}'):
        hashes.clear()
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


def test_sizes_read_from_shapes_are_those_the_shapes_were_made_from(config: CodecConfig) -> None:
    rates = {"encoder_strides": (2, 4), "decoder_rates": (2, 2, 3), "downsample_factors": (3,)}
    other = make_config(**rates, upsample_factors=(2,), num_residual_codebooks=1, encoder_dim=8)
    for each in (config, other):
        assert config_from_shapes(expected_shapes(each)) == each


def test_one_misshapen_tensor_does_not_change_a_size_that_others_show(config: CodecConfig) -> None:
    shapes = expected_shapes(config)
    for name in (
        "quantizer.pre_module.layers.0.ffn_norm.weight",
        "quantizer.quantizer.quantizers.0.codebook.weight",
        "encoder.block.0.conv.bias",
        "decoder.model.0.conv.parametrizations.weight.original1",
    ):
        first, *rest = shapes[name]
        assert config_from_shapes({**shapes, name: (first + 64, *rest)}) == config


KERNEL = "encoder.block.1.block.4.conv.parametrizations.weight.original1"
BOOK = "quantizer.semantic_quantizer.quantizers.0.codebook.weight"


@pytest.mark.parametrize(
    ("rates", "changes", "words"),
    [
        ((8, 8, 4, 2), {BOOK: None}, r"semantic_quantizer\.quantizers\.0\.codebook"),
        ((8, 8, 4, 2), {KERNEL: 5}, r"encoder\.block\.1\.block\.4"),  # an odd kernel
        ((8, 8, 4, 4), {}, "2048 samples a frame"),  # halves of different hops
    ],
)
def test_shapes_that_show_no_sizes_are_refused(
    rates: tuple[int, ...], changes: dict[str, int | None], words: str
) -> None:
    shapes = dict(expected_shapes(make_config(decoder_rates=rates)))
    for name, last in changes.items():
        shape = shapes.pop(name)
        if last is not None:
            shapes[name] = (*shape[:-1], last)
    with pytest.raises(CheckpointError, match=words):
        config_from_shapes(shapes)


def described(config: CodecConfig) -> dict[str, Any]:
    modules = {
        name: {
            "window_size": module.window,
            "input_dim": module.dim,
            "config": {
                "n_layer": module.num_layers,
                "n_head": module.num_heads,
                "dim": module.dim,
                "intermediate_size": module.ffn_dim,
                "head_dim": 64,
            },
        }
        for name, module in (("pre_module", config.pre_module), ("post_module", config.post_module))
    }
    return {
        "sample_rate": config.sample_rate,
        "decoder_transformer_layers": [4, 0, 0, 0],
        "encoder_dim": config.encoder_dim,
        "encoder_rates": list(config.encoder_strides),
        "decoder_dim": config.decoder_dim,
        "decoder_rates": list(config.decoder_rates),
        "encoder_transformer_layers": [0, 0, 0, config.encoder_transformer.num_layers],
        "quantizer": {
            "input_dim": config.latent_dim,
            "n_codebooks": config.num_residual_codebooks,
            "codebook_size": config.residual_codebook_size,
            "codebook_dim": config.codebook_dim,
            "semantic_codebook_size": config.semantic_codebook_size,
            "downsample_factor": list(config.downsample_factors),
            **modules,
        },
    }


def paths_of(value: Any, at: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Return the path of every number and list in a nested description."""
    if not isinstance(value, dict):
        return [at]
    return [path for key, inner in value.items() for path in paths_of(inner, (*at, key))]


def changed(value: dict[str, Any], path: tuple[str, ...], new: object) -> dict[str, Any]:
    copied = copy.deepcopy(value)
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copied


def applied(config: CodecConfig, folder: Path, content: object) -> CodecConfig:
    """Return what a codec_config.json of this content makes of `config`."""
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "codec_config.json").write_text(text, encoding="utf-8")
    return apply_config_file(config, folder)


def test_windows_and_sample_rate_come_from_a_file_that_agrees(
    config: CodecConfig, tmp_path: Path
) -> None:
    assert apply_config_file(config, tmp_path) == config  # without a file
    content = described(config)
    assert applied(config, tmp_path, content) == config
    content = changed(content, ("sample_rate",), 24000)
    content = changed(content, ("quantizer", "pre_module", "window_size"), 7)
    content = changed(content, ("quantizer", "post_module", "window_size"), 9)
    found = applied(config, tmp_path, content)
    assert (found.sample_rate, found.pre_module.window, found.post_module.window) == (24000, 7, 9)


def test_every_field_that_contradicts_the_tensors_or_is_unknown_is_refused_by_name(
    config: CodecConfig, tmp_path: Path
) -> None:
    free = {("decoder_transformer_layers",), ("sample_rate",)}
    content = described(config)
    fields = [p for p in paths_of(content) if p not in free and p[-1] != "window_size"]
    assert len(fields) >= 22
    for path in fields:
        with pytest.raises(CheckpointError, match=rf"\b{path[-1]} is 999"):
            applied(config, tmp_path, changed(content, path, 999))
    with pytest.raises(CheckpointError, match="sliding_window"):
        applied(config, tmp_path, content | {"sliding_window": 3})


def test_a_window_that_is_no_count_and_a_file_that_is_no_object_are_refused(
    config: CodecConfig, tmp_path: Path
) -> None:
    window = ("quantizer", "pre_module", "window_size")
    for wrong in (0, -1, 1.5, "128", None, True):
        with pytest.raises(CheckpointError, match=r"pre_module\.window_size"):
            applied(config, tmp_path, changed(described(config), window, wrong))
    for text in ("{", "[]", '{"quantizer": 3}', "\x00"):
        with pytest.raises(CheckpointError, match=r"codec_config\.json"):
            applied(config, tmp_path, text)
