"""Check what loading does with incomplete configurations and odd weight files, and the folders.

The checkpoints that `checkpoint.json` names are made of the plain one, in a folder given.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from lab.golden import codec_checks
from lab.golden.case import (
    CaseResult,
    Check,
    GoldenFolder,
    compare_close,
    compare_value,
    not_understood,
)
from lab.golden.models import Loaded, load, new_cache
from synth.engine.errors import CheckpointError
from synth.engine.loading.weights import INDEX_NAME, PICKLE_NAME, SINGLE_NAME, load_dual_ar
from synth.engine.model.config import load_config, parse_config
from synth.engine.model.dual_ar import Span
from synth.engine.prompt import Tokenizer

FILE = "checkpoint.json"
SAME = 1e-5  # the same weights; the addresses they lie at may choose another kernel
# Null in one of these stands, in the reference, for a number that fits no checkpoint.
_SIZES = {
    *(f"text_config.{key}" for key in ("vocab_size", "n_layer", "n_head", "dim")),
    *(f"audio_decoder_config.{key}" for key in ("vocab_size", "num_codebooks", "n_layer")),
}
# The reference drops an unknown weight without a word; here every key of a file must be used.
_REFUSED_LM = {"extra_tensor"}
# These pass or fail in the reference by the folder's name alone, which means nothing here.
_NAMED_LM = {"path_with_int8", "path_with_int4"}


def check_checkpoint(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Check all sections of checkpoint.json."""
    content = folder.json("checkpoint")
    for row in content["config"]:
        yield _check_config_row(folder, row)
    plain = _last_logits(load(folder), folder)
    for row in content["lm"]:
        with tempfile.TemporaryDirectory(prefix="golden-") as parent:
            yield from _check_lm_row(folder, row, plain, Path(parent))
    yield from codec_checks.checkpoint_codec_variants(folder, content["codec"])


def _check_config_row(folder: GoldenFolder, row: dict[str, Any]) -> CaseResult:
    key, how = row["key"], row["how"]
    case = f"config.{key}.{how}"
    content = json.loads((folder.checkpoint / "config.json").read_text(encoding="utf-8"))
    if how not in ("missing", "null", "other", "added"):
        return not_understood(FILE, case)
    _edit_key(content, key, how)
    refuses = row["outcome"] == "error" or (how == "null" and key in _SIZES)
    try:
        found = _flat(asdict(parse_config(content)))
    except CheckpointError as error:
        return CaseResult(FILE, case, "error" if refuses else "ok", f"error: {error}", refuses)
    plain = _flat(asdict(load_config(folder.checkpoint)))
    changes = {name: value for name, value in found.items() if value != plain[name]}
    return compare_value(FILE, case, changes, "error" if refuses else row["changes"])


def _edit_key(content: dict[str, Any], key: str, how: str) -> None:
    owner, _, name = key.rpartition(".")
    section = content[owner] if owner else content
    if how == "missing":
        section.pop(name, None)
    else:
        section[name] = None if how == "null" else "another"


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _check_lm_row(
    folder: GoldenFolder, row: dict[str, Any], plain: Tensor, parent: Path
) -> Iterator[CaseResult]:
    name, case = row["case"], f"lm.{row['case']}"
    path = build_variant(name, folder.checkpoint, parent)
    if path is None:
        yield not_understood(FILE, case)
        return
    refuses = name not in _NAMED_LM and _is_refused(folder, row)
    try:
        loaded = Loaded(*load_dual_ar(path, dtype=torch.float32))
    except CheckpointError as error:
        wanted = "refused" if refuses else "same logits"
        yield CaseResult(FILE, case, wanted, f"refused: {error}", refuses)
        return
    if refuses:
        yield CaseResult(FILE, case, "refused", "loaded", False)
        return
    yield compare_close(FILE, f"{case}.logits", _last_logits(loaded, folder), plain, SAME)
    if "semantic_range" in row:
        special = loaded.tokenizer.special
        found = [special.semantic_begin, special.semantic_end]
        yield compare_value(FILE, f"{case}.semantic_range", found, row["semantic_range"])


def _is_refused(folder: GoldenFolder, row: dict[str, Any]) -> bool:
    """Say whether a strict loader refuses the row: also where the reference loads silently."""
    special = load(folder).tokenizer.special
    plain_range = [special.semantic_begin, special.semantic_end]
    return (
        row["outcome"] == "error"
        or row["logits"] != "same"
        or row["semantic_range"] != plain_range
        or not row["tokenizer_loaded"]
        or row["case"] in _REFUSED_LM
    )


@torch.inference_mode()
def _last_logits(loaded: Loaded, folder: GoldenFolder) -> Tensor:
    """Return the logits behind a stored prompt."""
    prompt = folder.tensors("lm_bf16")["prompt"]
    cache = new_cache(loaded.model, prompt.shape[1])
    hidden = loaded.model.slow.prefill(prompt.T, [Span(0, 0, prompt.shape[1])], cache)
    return loaded.model.slow.logits(hidden[-1:])


def check_plain_folder(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Check that the plain checkpoint loads; its numbers are what the other files check."""
    loaded = load(folder)
    count = sum(parameter.numel() for parameter in loaded.model.parameters())
    yield CaseResult("tiny-s2/", "model.safetensors", "loads", f"{count} parameters", count > 0)
    yield from _check_side_files("tiny-s2/", folder.checkpoint)
    codec = folder.checkpoint / "codec.pth"
    found = "there" if codec.is_file() else "missing"
    yield CaseResult("tiny-s2/", "codec.pth", "there", found, codec.is_file())


def check_sharded_folder(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Check that the bfloat16 shards load to the numbers of the plain checkpoint."""
    plain = dict(load(folder).model.state_dict())
    sharded = load_dual_ar(folder.sharded, dtype=torch.float32)[0].state_dict()
    different = [
        name
        for name in sorted({*plain, *sharded})
        if name not in plain or name not in sharded or not torch.equal(plain[name], sharded[name])
    ]
    yield compare_value("tiny-s2-sharded/", "model.safetensors.index.json", different, [])
    yield from _check_side_files("tiny-s2-sharded/", folder.sharded)


def _check_side_files(file: str, checkpoint_dir: Path) -> Iterator[CaseResult]:
    config = load_config(checkpoint_dir)
    yield compare_value(file, "config.json", config.model_type, "fish_qwen3_omni")
    special = Tokenizer.from_checkpoint(checkpoint_dir).special
    codes = config.audio_decoder_config.vocab_size
    yield compare_value(file, "tokenizer.json", special.num_semantic, codes)
    card = checkpoint_dir / "card.json"  # ours, of which the public implementation knows nothing
    if card.is_file():
        content = json.loads(card.read_text(encoding="utf-8"))
        yield compare_value(file, "card.json", isinstance(content, dict), True)


def check_info(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Check that the statistics speak of these vectors."""
    file, info = "info.json", folder.json("info")
    lm = folder.json("lm")
    yield compare_value(file, "greedy", info["greedy"], lm["greedy"])
    arrays = folder.tensors("codec_encode")
    for row in info["codec"]["waves"]:
        codes = arrays[f"{row['name']}.codes"]
        yield compare_value(file, f"codec.{row['name']}", codes.shape[1], row["frames"])
        counts = [int(line.unique().numel()) for line in codes]
        yield compare_value(file, f"codec.{row['name']}.unique", counts, row["unique_codes"])
    yield CaseResult(file, "torch", "stated", str(info["torch"]), bool(info["torch"]))


CHECKS: dict[str, Check] = {
    FILE: check_checkpoint,
    "info.json": check_info,
    "tiny-s2/": check_plain_folder,
    "tiny-s2-sharded/": check_sharded_folder,
}
COMPANIONS: dict[str, str] = {}
# What lies in a checkpoint folder besides; none of it is read by the language model's loader.
KNOWN_CHECKPOINT_FILES = frozenset(
    {
        "card.json",
        "codec_config.json",
        "codec.pth",
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
)


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
