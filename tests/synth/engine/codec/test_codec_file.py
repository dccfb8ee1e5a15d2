"""Test that only a file with exactly a codec's tensors is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lab.golden.case import GoldenFolder
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.files.codec_file import checked_config, expected_shapes, open_codec
from synth.engine.codec.files.convert import convert_codec
from synth.engine.errors import CheckpointError
from tests.synth.engine.codec.conftest import State

WriteCodec = Callable[..., Path]


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
