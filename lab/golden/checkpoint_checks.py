"""Check what loading does with incomplete configurations and odd weight files, and the folders."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
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
from lab.golden.checkpoint_variants import build_variant
from lab.golden.models import Loaded, load, new_cache
from synth.engine.errors import CheckpointError
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.config import load_config, parse_config
from synth.engine.model.dual_ar import Span
from synth.engine.tokenizer import Tokenizer

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
