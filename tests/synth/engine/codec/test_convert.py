"""Test the one-time conversion of codec.pth."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from synth.engine.codec.files import convert
from synth.engine.codec.files.codec_file import open_codec
from synth.engine.codec.files.conversion_record import file_sha256
from synth.engine.codec.files.convert import convert_codec
from synth.engine.codec.files.fingerprint import codec_fingerprint
from synth.engine.errors import CheckpointError
from tests.synth.engine.codec.conftest import State

WriteCodec = Callable[..., Path]


def test_the_converted_file_holds_the_same_tensors_under_plain_names(
    state: State, write_codec: WriteCodec
) -> None:
    half = {f"generator.{name}": tensor.half() for name, tensor in state.items()}
    checkpoint = write_codec({"state_dict": half})

    result = convert_codec(checkpoint)

    found = load_file(result.path)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name].half()) for name in state)
    assert result.num_tensors == len(state)
    assert result.num_bytes == result.path.stat().st_size


def test_file_and_record_name_the_source_and_the_fingerprint(checkpoint: Path) -> None:
    result = convert_codec(checkpoint)

    digest = file_sha256(checkpoint / "codec.pth")
    with safe_open(result.path, "pt") as opened:
        metadata = opened.metadata()
    assert metadata["source_sha256"] == result.source_sha256 == digest
    assert len(metadata["encoder_sha256"]) == len(metadata["decoder_sha256"]) == 64
    record = json.loads(result.record.read_text(encoding="utf-8"))
    assert record["source"] == "codec.pth"
    assert record["source_sha256"] == digest
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


def test_a_codec_that_would_not_load_is_not_converted(
    state: State, write_codec: WriteCodec
) -> None:
    del state["decoder.model.5.alpha"]
    checkpoint = write_codec(state)

    with pytest.raises(CheckpointError, match=r"decoder\.model\.5\.alpha"):
        convert_codec(checkpoint)

    assert [path.name for path in checkpoint.iterdir()] == ["codec.pth"]


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


def test_nothing_to_convert_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing to convert"):
        convert_codec(tmp_path)


def test_a_disk_that_fills_up_leaves_no_part_behind(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(tensors: State, path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert, "save_file", write_half)

    with pytest.raises(CheckpointError, match="No space left"):
        convert_codec(checkpoint)

    assert [path.name for path in checkpoint.iterdir()] == ["codec.pth"]
