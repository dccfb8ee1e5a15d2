"""Check the transformers' arithmetic: rotary tables, teacher-forced logits, bfloat16 rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.golden.case import (
    CaseResult,
    Check,
    GoldenFolder,
    compare_close,
    compare_equal,
    not_understood,
)
from lab.golden.models import load, new_cache
from synth.engine.model.dual_ar import DualAR, Span
from synth.engine.model.layers import rope_table
from synth.engine.model.linear import LinearForm

TOLERANCE = 1e-4
_REAL_ROPE = (128, 1000000.0)  # of the published model, whatever checkpoint lies beside the vectors
_CODEC_ROPE = (64, 10000.0)
_BF16_STATISTICS = ("same_twice", "rms_of_values", "column_by_column", "float32")


@dataclass(frozen=True, slots=True, eq=False)
class Forced:
    """Hold a teacher-forced run: normalised hidden states and logits of the kept rows.

    `prefill_hidden` [S, D]; `hidden` [1 + n, D] and `logits` [1 + n, R]: after the prompt, then
    after each of n further columns.
    """

    prefill_hidden: Tensor
    hidden: Tensor
    logits: Tensor


RunForced = Callable[[DualAR, Tensor, Tensor], Forced]  # of a prompt and the steps behind it


@torch.inference_mode()
def run_forced(model: DualAR, prompt: Tensor, steps: Tensor, *, by_column: bool = False) -> Forced:
    """Feed a prompt [1 + K, S] at once or column by column, then steps [1 + K, n] one by one."""
    length, total = prompt.shape[1], prompt.shape[1] + steps.shape[1]
    cache = new_cache(model, total)
    prompt, steps = prompt.to(model.device), steps.to(model.device)

    def step(column: Tensor, position: int) -> Tensor:
        place = torch.tensor([position], device=model.device)
        return model.slow.step(column.unsqueeze(0), place, cache, length=position + 1)[0]

    if by_column:
        prefill = torch.stack([step(prompt[:, i], i) for i in range(length)])
    else:
        prefill = model.slow.prefill(prompt.T, [Span(0, 0, length)], cache)
    rows = [prefill[-1], *(step(steps[:, i], length + i) for i in range(steps.shape[1]))]
    hidden = torch.stack(rows)
    return Forced(prefill.float(), hidden.float(), model.slow.logits(hidden).float())


@torch.inference_mode()
def run_fast(model: DualAR, hidden: Tensor, codes: Tensor) -> Tensor:
    """Return the logits [K, codebook_size] of a frame whose codes [K] are given."""
    cache, codes = model.fast.allocate_cache(1), codes.to(model.device)
    start = hidden.to(model.device, model.dtype).unsqueeze(0)
    begun = model.fast.begin(start, codes[:1], cache)[0]
    first = model.fast.output(begun)
    later = [
        model.fast.next(codes[k - 1 : k], k, cache) for k in range(2, model.fast.num_codebooks)
    ]
    return torch.cat([first, *later]).float()


def check_rope(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Compare rotary tables bit for bit."""
    file, arrays = "rope.safetensors", folder.tensors("rope")
    config = load(folder).model.config
    shapes = {
        "lm": (config.text_config.head_dim, config.text_config.rope_base),
        "fast": (config.audio_decoder_config.head_dim, config.text_config.rope_base),
        "codec": _CODEC_ROPE,
        "real": _REAL_ROPE,
    }
    for case in sorted({key.split(".")[0] for key in arrays}):
        if case not in shapes:
            yield not_understood(file, case)
            continue
        found = rope_table(arrays[f"{case}.positions"], *shapes[case])
        yield compare_close(file, case, found, arrays[f"{case}.table"], 0.0)


def check_lm(
    folder: GoldenFolder, run: RunForced = run_forced, form: LinearForm = LinearForm.PLAIN
) -> Iterator[CaseResult]:
    """Compare hidden states and logits of forced runs, and the fast AR from stored states."""
    file, arrays = "lm.safetensors", folder.tensors("lm")
    loaded = load(folder, form=form)
    for case in sorted({key.split(".")[0] for key in arrays}):
        forced = run(loaded.model, arrays[f"{case}.prompt"], arrays[f"{case}.step_inputs"])
        own = {key.removeprefix(f"{case}."): key for key in arrays if key.startswith(f"{case}.")}
        for name in sorted(own):
            if name.startswith("prefill_"):
                yield from _compare_prefill(file, f"{case}.", name, forced, loaded.model, arrays)
        yield compare_close(file, f"{case}.hidden", forced.hidden, arrays[own["hidden"]], TOLERANCE)
        expected = arrays[own["logits"]][:, loaded.kept]
        yield compare_close(file, f"{case}.logits", forced.logits, expected, TOLERANCE)
        for name in sorted(n for n in own if n.startswith("fast.") and n.endswith(".logits")):
            stem = f"{case}.{name.removesuffix('.logits')}"
            found = run_fast(loaded.model, arrays[f"{stem}.hidden"], arrays[f"{stem}.codes"])
            yield compare_close(file, stem, found, arrays[f"{stem}.logits"], TOLERANCE)


def check_lm_far(
    folder: GoldenFolder, run: RunForced = run_forced, form: LinearForm = LinearForm.PLAIN
) -> Iterator[CaseResult]:
    """Compare a forced run at far positions."""
    file, arrays = "lm_far.safetensors", folder.tensors("lm_far")
    loaded = load(folder, form=form)
    forced = run(loaded.model, arrays["prompt"], arrays["step_inputs"])
    for name in sorted(key for key in arrays if key.startswith("prefill_")):
        yield from _compare_prefill(file, "", name, forced, loaded.model, arrays)
    yield compare_close(file, "hidden", forced.hidden, arrays["hidden"], TOLERANCE)
    expected = arrays["logits"][:, loaded.kept]
    yield compare_close(file, "logits", forced.logits, expected, TOLERANCE)


def _compare_prefill(
    file: str, prefix: str, name: str, run: Forced, model: DualAR, arrays: dict[str, Tensor]
) -> Iterator[CaseResult]:
    """Compare the stored last rows of a prefill: as many as the array holds."""
    expected, case = arrays[prefix + name], prefix + name
    rows = run.prefill_hidden[-expected.shape[0] :]
    if name.startswith("prefill_hidden"):
        yield compare_close(file, case, rows, expected, TOLERANCE)
    elif name.startswith("prefill_logits"):
        kept = expected[:, model.slow.head_tokens.cpu()]
        yield compare_close(file, case, model.slow.logits(rows), kept, TOLERANCE)
    else:
        yield not_understood(file, case)


def check_lm_bf16(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Compare a bfloat16 run: within `tolerance` at once, within `strict` column by column."""
    file, arrays = "lm_bf16.safetensors", folder.tensors("lm_bf16")
    bounds = folder.json("bf16")
    for name in _BF16_STATISTICS:  # what the reference itself varied by; nothing to compare with
        bounds.get(name)
    loaded = load(folder, torch.bfloat16)
    prompt, steps = arrays["prompt"], arrays["step_inputs"]
    for prefix, level in (("", "tolerance"), ("columns.", "strict")):
        run = run_forced(loaded.model, prompt, steps, by_column=prefix == "columns.")
        for name, found, kind in (
            ("prefill_hidden_all", run.prefill_hidden, "hidden"),
            ("hidden", run.hidden, "hidden"),
            ("logits", run.logits, "logits"),
        ):
            expected = arrays[prefix + name]
            if kind == "logits":
                expected = expected[:, loaded.kept]
            bound = bounds[level][kind]
            yield _compare_bounds(file, prefix + name, found, expected, bound)
    for key in sorted(k for k in arrays if k.startswith("fast.") and k.endswith(".logits")):
        stem = key.removesuffix(".logits")
        found = run_fast(loaded.model, arrays[f"{stem}.hidden"], arrays[f"{stem}.codes"])
        yield _compare_bounds(file, stem, found, arrays[key], bounds["strict"]["fast"])


def _compare_bounds(
    file: str, case: str, found: Tensor, expected: Tensor, bound: dict[str, float]
) -> CaseResult:
    """Compare by the largest and the root mean square difference."""
    want = f"max {bound['max']:g}, rms {bound['rms']:g}"
    if found.shape != expected.shape:
        return compare_equal(file, case, found, expected)
    error = found.double().cpu() - expected.double()
    largest, rms = error.abs().max().item(), error.square().mean().sqrt().item()
    passed = largest <= bound["max"] and rms <= bound["rms"]
    return CaseResult(file, case, want, f"max {largest:.3g}, rms {rms:.3g}", passed)


CHECKS: dict[str, Check] = {
    "rope.safetensors": check_rope,
    "lm.safetensors": check_lm,
    "lm_far.safetensors": check_lm_far,
    "lm_bf16.safetensors": check_lm_bf16,
}
COMPANIONS: dict[str, str] = {"bf16.json": "lm_bf16.safetensors"}
