"""Test weights; the golden `checkpoint.json` rows pin the variants of the format."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from lab.golden.case import GoldenFolder
from synth.engine.errors import CheckpointError
from synth.engine.loading.weights import check_dual_ar, find_weight_files, load_dual_ar
from tests.synth.engine.random_checkpoint import write_checkpoint

NORM = "text_model.model.layers.1.ffn_norm.weight"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def _rewrite(checkpoint: Path, changes: dict[str, torch.Tensor | None]) -> None:
    """Replace, add or (with None) remove tensors of the single weight file."""
    path = checkpoint / "model.safetensors"
    weights = {key: tensor.clone() for key, tensor in load_file(path).items()}
    for name, tensor in changes.items():
        weights.pop(name, None)
        if tensor is not None:
            weights[name] = tensor
    save_file(weights, path)


def _load_error(checkpoint: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_dual_ar(checkpoint, dtype=torch.float32)
    return str(caught.value)


CHANGES: list[tuple[dict[str, torch.Tensor | None], list[str]]] = [
    ({NORM: None}, [f"{NORM} is missing"]),
    (
        {NORM: None, NORM.replace("ffn_norm", "ffn_normal"): torch.ones(48)},
        ["layers.1.ffn_normal.weight is unknown"],
    ),
    ({NORM: torch.ones(47)}, ["layers.1.ffn_norm.weight", "(47,)", "(48,)"]),
    ({NORM: torch.ones(48, dtype=torch.int8)}, ["floating-point"]),
    ({"norm.weight": torch.ones(48)}, ["is there twice"]),
]


@pytest.mark.parametrize(("changes", "words"), CHANGES)
def test_a_key_that_does_not_fit_is_named_also_by_the_headers_alone(
    checkpoint: Path, changes: dict[str, torch.Tensor | None], words: list[str]
) -> None:
    _rewrite(checkpoint, changes)
    message = _load_error(checkpoint)
    assert all(word in message for word in words)
    with pytest.raises(CheckpointError) as caught:
        check_dual_ar(checkpoint)
    assert str(caught.value) == message


def test_files_that_cannot_be_read_are_refused(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    assert "model.safetensors cannot be read" in _load_error(checkpoint)
    path.unlink()
    torch.save({"norm.weight": Path("x")}, checkpoint / "model.pth")
    assert "plain tensors" in _load_error(checkpoint)
    index = '{"weight_map": {"norm.weight": "../model.safetensors"}}'
    (checkpoint / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    assert "not a file beside it" in _load_error(checkpoint)


def test_weights_are_cast_once_to_the_dtype_asked_for(checkpoint: Path) -> None:
    stored = load_file(checkpoint / "model.safetensors")[NORM]
    model, _ = load_dual_ar(checkpoint, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    assert torch.equal(model.slow.blocks[1].ffn_norm.weight, stored.to(torch.bfloat16))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"audio": {"vocab_size": 255}}, "256 semantic tokens"),
        ({"text": {"vocab_size": 867}}, "vocab_size"),  # less than the tokenizer's ids
    ],
)
def test_sizes_other_than_the_tokenizers_are_refused(
    tmp_path: Path, sizes: dict[str, dict[str, int]], words: str
) -> None:
    write_checkpoint(tmp_path, **sizes)
    assert words in _load_error(tmp_path)


def test_only_the_rows_that_may_be_drawn_are_kept_of_the_head(checkpoint: Path) -> None:
    model, tokenizer = load_dual_ar(checkpoint, dtype=torch.float32)
    table = load_file(checkpoint / "model.safetensors")["text_model.model.embeddings.weight"]
    special = tokenizer.special
    ids = [special.im_end, *range(special.semantic_begin, special.semantic_end + 1)]
    assert model.slow.head_tokens.tolist() == sorted(ids)
    width = table.shape[1]
    assert torch.equal(model.slow.logits(torch.eye(width)), table[sorted(ids)].T)
    assert model.slow.head(torch.eye(width)).shape[1] % 16 == 0


def test_the_shards_of_an_index_are_what_is_found(golden: GoldenFolder) -> None:
    names = [path.name for path in find_weight_files(golden.sharded)]
    assert names == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]


def test_headers_alone_give_the_number_of_parameters(checkpoint: Path) -> None:
    stored = load_file(checkpoint / "model.safetensors")
    assert check_dual_ar(checkpoint) == sum(tensor.numel() for tensor in stored.values())
