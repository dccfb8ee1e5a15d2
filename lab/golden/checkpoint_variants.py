"""Make the checkpoints that `checkpoint.json` names out of the plain one, in a folder given."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from synth.engine.loading.weights import INDEX_NAME, PICKLE_NAME, SINGLE_NAME
from synth.engine.model.config import load_config

Weights = dict[str, Tensor]
_QKV = ".attention.wqkv.weight"
_COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def build_variant(case: str, plain: Path, parent: Path) -> Path | None:
    """Write the variant `case` of the checkpoint `plain` below `parent`; None if unknown."""
    builder = _BUILDERS.get(case)
    if builder is None:
        return None
    folder = parent / (case if case.startswith("path_with_") else f"variant_{len(case)}")
    folder.mkdir(parents=True)
    for name in _COPIED:
        if (plain / name).is_file():
            shutil.copyfile(plain / name, folder / name)
    builder(folder, load_file(plain / SINGLE_NAME))
    return folder


def _save(folder: Path, weights: Weights, name: str = SINGLE_NAME) -> None:
    save_file({key: tensor.contiguous() for key, tensor in weights.items()}, folder / name)


def _edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    edit(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def _split_qkv(folder: Path, weights: Weights, *, only: str = "", drop: str = "") -> None:
    """Store wq, wk and wv instead of wqkv in the layers whose name begins with `only`."""
    config = load_config(folder)
    out: Weights = {}
    for key, tensor in weights.items():
        if not (key.endswith(_QKV) and key.startswith(only)):
            out[key] = tensor
            continue
        is_fast = key.startswith("audio_decoder.")
        sizes = config.audio_decoder_config if is_fast else config.text_config
        kv = sizes.n_local_heads * sizes.head_dim
        parts = torch.split(tensor, [sizes.n_head * sizes.head_dim, kv, kv])
        for letter, part in zip("qkv", parts, strict=True):
            if letter != drop:
                out[key.replace("wqkv", f"w{letter}")] = part
    _save(folder, out)


def _memory_names(weights: Weights, *, keep_audio: bool = False) -> Weights:
    """Return the weights under the names that the reference gives them in memory."""
    out: Weights = {}
    for key, tensor in weights.items():
        if key.startswith("text_model.model."):
            out[key.removeprefix("text_model.model.")] = tensor
        elif keep_audio:
            out[key] = tensor
        elif key.startswith("audio_decoder.codebook_embeddings."):
            out[key.removeprefix("audio_decoder.")] = tensor
        else:
            out["fast_" + key.removeprefix("audio_decoder.")] = tensor
    return out


def _pickle(folder: Path, content: object) -> None:
    torch.save(content, folder / PICKLE_NAME)


def _zeros(weights: Weights) -> Weights:
    """Return weights of the same shapes that would give other logits, were they loaded."""
    return {key: torch.zeros_like(tensor) for key, tensor in weights.items()}


def _without(folder: Path, weights: Weights, ending: str) -> None:
    """Leave out the first weight whose name ends so."""
    name = next(key for key in weights if key.endswith(ending))
    _save(folder, {key: tensor for key, tensor in weights.items() if key != name})


def _wrong_shape(folder: Path, weights: Weights) -> None:
    name = "text_model.model.norm.weight"
    _save(folder, {**weights, name: weights[name][:-1]})


def _shards(folder: Path, weights: Weights, *, lose: bool = False, list_one: bool = False) -> None:
    """Write two shards and their index; `lose` the second, or list one name of each."""
    names = list(weights)
    half = len(names) // 2
    listed: dict[str, str] = {}
    for number, part in enumerate((names[:half], names[half:]), start=1):
        shard = f"model-{number:05d}-of-00002.safetensors"
        if not (lose and number == 2):
            _save(folder, {name: weights[name] for name in part}, shard)
        listed.update(dict.fromkeys(part[:1] if list_one else part, shard))
    index = {"metadata": {}, "weight_map": listed}
    (folder / INDEX_NAME).write_text(json.dumps(index), encoding="utf-8")


def _index_and_single(folder: Path, weights: Weights) -> None:
    _shards(folder, weights)
    _save(folder, _zeros(weights))


def _single_and_pth(folder: Path, weights: Weights) -> None:
    _save(folder, weights)
    _pickle(folder, _memory_names(_zeros(weights)))


def _config_ids(folder: Path, weights: Weights, *, shift: int | None) -> None:
    """Shift config.json's semantic ids, or remove them when `shift` is None."""

    def edit(config: dict[str, Any]) -> None:
        for key in ("semantic_start_token_id", "semantic_end_token_id"):
            if shift is None:
                config.pop(key, None)
            else:
                config[key] += shift

    _edit_json(folder / "config.json", edit)
    _save(folder, weights)


def _tokenizer_without(folder: Path, weights: Weights, *, codes: range | None) -> None:
    """Take the semantic tokens of these codes out of tokenizer.json; all of them for None."""
    prefix = "<|semantic:"
    gone = None if codes is None else {f"{prefix}{code}|>" for code in codes}

    def edit(content: dict[str, Any]) -> None:
        content["added_tokens"] = [
            token
            for token in content["added_tokens"]
            if not (
                token["content"].startswith(prefix) if gone is None else token["content"] in gone
            )
        ]

    _edit_json(folder / "tokenizer.json", edit)
    _save(folder, weights)


def _no_tokenizer(folder: Path, weights: Weights) -> None:
    for path in (p for p in folder.iterdir() if p.name != "config.json"):
        path.unlink()
    _save(folder, weights)


_BUILDERS: dict[str, Callable[[Path, Weights], None]] = {
    "plain": _save,
    "qkv_split": _split_qkv,
    "qkv_split_fast_only": lambda f, w: _split_qkv(f, w, only="audio_decoder."),
    "qkv_split_without_k": lambda f, w: _split_qkv(f, w, drop="k"),
    "qkv_split_without_q": lambda f, w: _split_qkv(f, w, drop="q"),
    "memory_names": lambda f, w: _save(f, _memory_names(w)),
    "mixed_names": lambda f, w: _save(f, _memory_names(w, keep_audio=True)),
    "extra_tensor": lambda f, w: _save(f, {**w, "text_model.model.extra.weight": torch.ones(3)}),
    "missing_norm": lambda f, w: _without(f, w, "ffn_norm.weight"),
    "missing_matrix": lambda f, w: _without(f, w, "attention.wo.weight"),
    "wrong_shape": _wrong_shape,
    "bfloat16_file": lambda f, w: _save(f, {k: t.to(torch.bfloat16) for k, t in w.items()}),
    "index_and_single": _index_and_single,
    "single_and_pth": _single_and_pth,
    "shard_absent": lambda f, w: _shards(f, w, lose=True),
    "index_lists_one_name": lambda f, w: _shards(f, w, list_one=True),
    "no_weights": lambda f, w: None,
    "pth_memory_names": lambda f, w: _pickle(f, _memory_names(w)),
    "pth_state_dict": lambda f, w: _pickle(f, {"state_dict": _memory_names(w)}),
    "pth_model_prefix": lambda f, w: _pickle(
        f, {f"model.{k}": t for k, t in _memory_names(w).items()}
    ),
    "pth_disk_names": _pickle,
    "config_ids_wrong": lambda f, w: _config_ids(f, w, shift=-7),
    "config_ids_missing": lambda f, w: _config_ids(f, w, shift=None),
    "no_tokenizer": _no_tokenizer,
    "tokenizer_without_semantic_tokens": lambda f, w: _tokenizer_without(f, w, codes=None),
    "tokenizer_without_the_first_two": lambda f, w: _tokenizer_without(f, w, codes=range(2)),
    "tokenizer_without_one_between": lambda f, w: _tokenizer_without(f, w, codes=range(9, 10)),
    "path_with_int8": _save,
    "path_with_int4": _save,
}
