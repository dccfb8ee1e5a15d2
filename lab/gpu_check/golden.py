"""Run the golden vectors on the device: float32 by every path, bfloat16 within stated bounds."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

from lab.golden import checkpoint_checks, codec_checks, forward_checks, text_checks
from lab.golden.case import CaseResult, GoldenFolder
from lab.golden.runner import PATHS, run_golden
from lab.gpu_check.codec_parity import decode_error
from lab.gpu_check.steps import Context, Found, Step
from synth.engine.codec.load import load_decoder

COLUMNS = ("file", "cases", "failed", "worst")
# What is of files and texts alone; no device computes it.
_WITHOUT_DEVICE = (*text_checks.CHECKS, *checkpoint_checks.CHECKS)
_BF16 = "lm_bf16.safetensors"
_NO_TOKENIZER = "NoTokenizerError"
# On a CPU a few files show that the step runs; `./tts verify-golden` runs all of them there.
_ON_CPU = {"lm.safetensors", "greedy.safetensors", "resample.safetensors", "end_to_end.safetensors"}
# Of a codec with random weights in bfloat16 against float32: 31 dB were measured on a CPU.
CODEC_BF16_LEAST_DB = 20.0


def check_path(context: Context, path: str) -> Found:
    """Run every vector that a device computes by one path through the engine, in float32."""
    results: list[CaseResult] = []
    left_out = {*_WITHOUT_DEVICE, _BF16}
    if not context.on_gpu:
        left_out |= {name for module in PATHS[path] for name in module.CHECKS} - _ON_CPU
    run_golden(
        context.golden, report=results.append, path=path, device=context.device, leave_out=left_out
    )
    found = _sum_up(results)
    if not context.on_gpu:
        found.notes.append("on a CPU ./tts verify-golden checks the other files")
    return found


def check_bfloat16(context: Context) -> Found:
    """Run the language model's bfloat16 vectors within their own bounds, and the codec's audio."""
    folder = GoldenFolder(context.golden, context.device)
    results = list(forward_checks.CHECKS[_BF16](folder))
    results.append(_codec_bfloat16(folder))
    return _sum_up(results)


def _codec_bfloat16(folder: GoldenFolder) -> CaseResult:
    vectors = folder.tensors(codec_checks.LONG)
    exact = load_decoder(folder.checkpoint, folder.device)
    rounded = load_decoder(folder.checkpoint, folder.device, "bfloat16")
    error = decode_error(exact, rounded, [vectors["codes"]])
    return CaseResult(
        codec_checks.LONG,
        "audio in bfloat16",
        f"at least {CODEC_BF16_LEAST_DB:g} dB",
        f"{error.snr_db:.1f} dB, max {error.max_abs:.3g}",
        error.snr_db >= CODEC_BF16_LEAST_DB,
    )


def _sum_up(results: list[CaseResult]) -> Found:
    """Return a row for each file; what only a missing library keeps from running is a note."""
    unable = [result for result in results if result.found.startswith(_NO_TOKENIZER)]
    checked = [result for result in results if result not in unable]
    by_file: defaultdict[str, list[CaseResult]] = defaultdict(list)
    for result in checked:
        by_file[result.file].append(result)
    failed = [result for result in checked if not result.passed]
    return Found(
        rows=[_row(file, results) for file, results in by_file.items()],
        columns=COLUMNS,
        mismatches=[f"{r.file} {r.case}: {r.found}, not {r.expected}" for r in failed],
        notes=[f"not checked: {result.file}: {result.found}" for result in unable],
    )


def _row(file: str, results: list[CaseResult]) -> dict[str, object]:
    errors = [r for r in results if r.found.startswith("max error ")]
    worst = max(errors, key=lambda r: float(r.found.split()[-1]), default=None)
    return {
        "file": file,
        "cases": len(results),
        "failed": sum(not result.passed for result in results),
        "worst": f"{worst.found}, {worst.expected}" if worst else None,
    }


STEPS = (
    Step("golden-plain", 60, partial(check_path, path="plain")),
    Step("golden-batched", 50, partial(check_path, path="batched")),
    Step("golden-streamed", 30, partial(check_path, path="streamed")),
    Step("golden-bfloat16", 15, check_bfloat16),
)
