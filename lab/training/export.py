"""Write a checkpoint folder in the layout that the engine loads, and read parts of one back."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lab.training.lm_network import LM_FILE, LMSizes, config_json, disk_name
from lab.training.plans import Plan
from lab.training.run_folder import RunFolder
from lab.training.stages.quantizer import load_quantizer
from lab.training.starting import write_space
from lab.training.tokens import END, PAD, write_tokenizer
from lab.training.trained import decoder_state, trained_decoder, trained_encoder, trained_lm
from synth.card import CARD_NAME
from synth.engine.codec.config import FILE_NAME as CODEC_CONFIG_FILE
from synth.engine.codec.halves import CodecDecoder, CodecEncoder

# How the file spells norm and direction of a weight, for each way that a module names.
_SPELLINGS = {
    "parametrized": ("parametrizations.weight.original0", "parametrizations.weight.original1"),
    "g_and_v": ("weight_g", "weight_v"),
}
CODEC_FILE = "codec.pth"
# What a new checkpoint says of itself until somebody has measured it.
_CARD = {
    "name": "demo",
    "licence": "Apache-2.0",
    "description": "Trained by train-demo on synthetic speech; not measured.",
    "languages": ["en"],
    "segment_chars": 100,
    "temperature": 0.7,
    "top_p": 0.8,
    "top_k": 30,
}


def export_checkpoint(
    folder: Path,
    sizes: LMSizes,
    lm: Mapping[str, Tensor],
    encoder: CodecEncoder,
    decoder: CodecDecoder,
) -> None:
    """Write configs, tokenizer, language model (bfloat16) and codec (float16) into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.dumps(config_json(sizes), indent=1)
    (folder / "config.json").write_text(config + "\n", encoding="utf-8")
    write_tokenizer(folder, sizes.codes)
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": END,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
    weights = {
        disk_name(name): weight.to(torch.bfloat16).contiguous() for name, weight in lm.items()
    }
    temporary = folder / f"{LM_FILE}.partial"
    save_file(weights, str(temporary))
    temporary.replace(folder / LM_FILE)
    # No tensor tells the rate.
    codec_config = json.dumps({"sample_rate": decoder.config.sample_rate})
    (folder / CODEC_CONFIG_FILE).write_text(codec_config + "\n", encoding="utf-8")
    write_codec(folder / CODEC_FILE, encoder, decoder)


def write_codec(path: Path, encoder: CodecEncoder, decoder: CodecDecoder) -> None:
    """Write both halves' weights as one file of float16, norms unfolded."""
    stored = {**unfolded(encoder), **unfolded(decoder)}
    halves = {name: weight.half().contiguous() for name, weight in stored.items()}
    temporary = path.with_suffix(".partial")
    with temporary.open("wb") as file:
        torch.save(halves, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def unfolded(half: nn.Module) -> dict[str, Tensor]:
    """Return a half's weights by the names of the file, those with a norm as norm and direction."""
    normed = {
        f"{name}.weight": _SPELLINGS[module.weight_norm]
        for name, module in half.named_modules()
        if getattr(module, "weight_norm", None) is not None
    }
    weights: dict[str, Tensor] = {}
    for name, parameter in half.named_parameters():
        weight = parameter.detach().float().cpu()
        if name not in normed:
            weights[name] = weight
            continue
        norm_name, direction_name = normed[name]
        stem = name.removesuffix("weight")
        length = torch.linalg.vector_norm(weight.flatten(1), dim=1)
        norm = length.view(-1, *([1] * (weight.dim() - 1)))
        # A filter of zeros still needs a direction; its norm of zero keeps it silent.
        direction = torch.where(norm > 0, weight / norm.clamp(min=1e-12), torch.ones_like(weight))
        weights[f"{stem}{norm_name}"], weights[f"{stem}{direction_name}"] = norm, direction
    return weights


def export_run(
    run: RunFolder,
    plan: Plan,
    folder: Path,
    *,
    start_from: Path | None,
    report: Callable[[str], None],
) -> None:
    """Write the run's checkpoint into `folder`.

    A part whose stage was not begun in the run is that of `start_from`.

    Raises:
        RunFolderError: a part is in neither.
    """
    encoder = trained_encoder(run, plan, start_from)
    decoder = trained_decoder(run, plan, start_from)
    export_checkpoint(folder, plan.sizes, trained_lm(run, plan, start_from), encoder, decoder)
    for part in ("encoder", "decoder", "lm"):
        state = decoder_state(run) if part == "decoder" else f"{part}-state"
        # A stage that was begun and left counts as the run's: say how far it came.
        came = f"this run, {run.load(state)['step']} steps" if run.has(state) else start_from
        report(f"export: {part} of {came}")
    write_space(folder, load_quantizer(run).space)
    if not (folder / CARD_NAME).is_file():
        (folder / CARD_NAME).write_text(json.dumps(_CARD, indent=2) + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    report(f"export: {folder}, {size / 1e6:.1f} MB")
