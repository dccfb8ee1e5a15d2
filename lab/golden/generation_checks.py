"""Check whole generations: greedy and seeded sequences, edge cases, limits, probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lab.golden.case import (
    CaseResult,
    Check,
    GoldenFolder,
    compare_close,
    compare_equal,
    compare_value,
    not_understood,
)
from lab.golden.generate import Generation
from lab.golden.generation_jobs import Job, Outcome, RunJobs, run_alone
from lab.golden.models import Loaded, load, noise_of
from lab.golden.noise import FixedFrame
from synth.contract import FinishReason
from synth.engine.model.linear import LinearForm
from synth.engine.model.sampling import Cut, FrameNoise, best_candidates, probabilities

_EDGE_ROW = {
    "text",
    "prompt_text",
    "chunk_length",
    "seed",
    "top_k",
    "top_p",
    "temperature",
    "max_new_tokens",
    "min_top2_gap",  # a statistic: how near the second best token was
    "trace",
    "batches",
}
_STORED = " with stored numbers"
_GREEDY_ROW = {"top_k": 1, "temperature": 1.0, "max_new_tokens": 64}


def check_greedy(
    folder: GoldenFolder, run_jobs: RunJobs = run_alone, form: LinearForm = LinearForm.PLAIN
) -> Iterator[CaseResult]:
    """Compare greedy sequences from the stored prompts, and the prompts' own text."""
    file, arrays = "greedy.safetensors", folder.tensors("greedy")
    rows = folder.json("lm")["greedy"]
    cases = sorted({key.split(".")[0] for key in arrays})
    jobs = [Job(case, _GREEDY_ROW, arrays[f"{case}.prompt"]) for case in cases]
    run = run_jobs(file, load(folder, form=form), jobs)
    yield from run.results
    for case in cases:
        found = run.outcomes[case].succeeded()[-1]
        yield compare_equal(file, f"{case}.frames", found.columns, arrays[f"{case}.frames"])
        yield compare_equal(file, f"{case}.codes", found.codes, arrays[f"{case}.codes"])
        row = rows.get(case)
        if row is None:
            yield not_understood("lm.json", f"greedy.{case}")
            continue
        facts: dict[str, object] = {
            "prompt_len": found.prompt.shape[1],
            "frames": found.columns.shape[1],
            "codes": found.codes.shape[1],
            "stopped_on_im_end": found.finish_reason is FinishReason.END,
            "unique_per_row": [int(line.unique().numel()) for line in found.columns],
        }
        for name, value in facts.items():
            yield compare_value("lm.json", f"greedy.{case}.{name}", value, row[name])
    for case in sorted(set(rows) - set(cases)):
        yield not_understood("lm.json", f"greedy.{case}")


def check_sampling(folder: GoldenFolder, run_jobs: RunJobs = run_alone) -> Iterator[CaseResult]:
    """Compare seeded sequences, drawn in the reference's order and from its stored numbers."""
    file, arrays = "sampling.safetensors", folder.tensors("sampling")
    loaded, rows = load(folder), folder.json("lm")["sampling"]
    cases = sorted({key.split(".")[0] for key in arrays} | set(rows))
    known = [case for case in cases if case in rows and f"{case}.frames" in arrays]
    jobs = [Job(case, rows[case], arrays[f"{case}.prompt"]) for case in known]
    jobs += [_stored_job(case, rows[case], arrays) for case in known if _has_stored(case, arrays)]
    run = run_jobs(file, loaded, jobs)
    yield from run.results
    for case in cases:
        if case not in known:
            yield not_understood(file, case)
            continue
        row, found = rows[case], run.outcomes[case].succeeded()[-1]
        yield compare_equal(file, f"{case}.frames", found.columns, arrays[f"{case}.frames"])
        trace = [[line["normal"], line["high"], line["chosen"]] for line in row["trace"]]
        yield compare_equal(file, f"{case}.trace", _trace(found), torch.tensor(trace))
        replaced = int((_trace(found)[:, 0] != _trace(found)[:, 2]).sum())
        yield compare_value(file, f"{case}.ras_replaced", replaced, len(row["ras_replaced"]))
        if _has_stored(case, arrays):
            yield from _check_stored_noise(file, case, row, loaded, arrays)
            shorter = run.outcomes[f"{case}{_STORED}"].succeeded()[-1].columns
            expected = arrays[f"{case}.frames"][:, : len(_stored_noise(case, arrays))]
            yield compare_equal(file, f"{case}.uniform.frames", shorter, expected)


def check_edge(folder: GoldenFolder, run_jobs: RunJobs = run_alone) -> Iterator[CaseResult]:
    """Compare generations at the edges: several batches, the repetition window, first-frame end."""
    file, arrays = "edge.safetensors", folder.tensors("edge")
    rows = dict(folder.json("edge").items())
    known = [case for case, row in rows.items() if set(row) <= _EDGE_ROW]
    jobs = [
        Job(case, rows[case], arrays.get(f"{case}.prompt.0"), arrays)
        if rows[case]["text"] is None
        else Job(case, rows[case], arrays=arrays)
        for case in known
    ]
    run = run_jobs(file, load(folder), jobs)
    yield from run.results
    for case, row in rows.items():
        if case not in known:
            yield not_understood(file, case)
            continue
        found = run.outcomes[case].succeeded()
        yield compare_value(file, f"{case}.batches", len(found), row["batches"])
        for number, one in enumerate(found):
            for name, tensor in (
                ("prompt", one.prompt),
                ("frames", one.columns),
                ("codes", one.codes),
            ):
                key = f"{case}.{name}.{number}"
                yield compare_equal(file, key, tensor, arrays[key])
        if "trace" in row:
            expected = torch.tensor(row["trace"])
            yield compare_equal(file, f"{case}.trace", _trace(found[-1]), expected)


def check_limits(folder: GoldenFolder, run_jobs: RunJobs = run_alone) -> Iterator[CaseResult]:
    """Compare how requests and single generations end that meet a limit."""
    file, arrays = "limits.safetensors", folder.tensors("limits")
    rows = folder.json("limits")
    jobs = []
    for row in rows:
        if row["call"] == "request":
            jobs.append(Job(row["case"], row, arrays=arrays))
        elif row["call"] == "generate":
            prompt = arrays["prompt"][:, : row["prompt_columns"]]
            jobs.append(Job(row["case"], row, prompt, max_seq_len=row["max_seq_len"]))
        else:
            yield not_understood(file, row["case"])
    run = run_jobs(file, load(folder), jobs)
    yield from run.results
    for row in rows:
        if row["case"] in run.outcomes:
            yield from _compare_ending(file, row, run.outcomes[row["case"]], arrays)


def check_probs(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Compare the probabilities made of logits."""
    file, arrays = "probs.safetensors", folder.tensors("probs")
    for row in folder.json("lm")["probs"]:
        # Our sampler works in float32 whatever the model's dtype, so bfloat16 rows run in it too.
        logits = arrays[row["input"]].unsqueeze(0)
        size = logits.shape[-1]
        candidates = best_candidates(logits, size)
        temperature, top_p = torch.tensor([[row["temperature"]], [row["top_p"]]])
        cut = Cut.of(temperature, top_p, torch.tensor([row["top_k"]]), size)
        kept = probabilities(candidates, cut)
        found = torch.zeros(1, size).scatter(1, candidates.rows, kept)[0]
        expected = arrays[row["output"]]
        ordered = logits[0].sort(descending=True).values
        edge = row["top_k"]
        if edge < size and ordered[edge - 1] == ordered[edge]:
            # Which of equal logits at the edge survives is the sort's affair.
            found, expected = found.sort().values, expected.sort().values
        tolerance = 1e-6 if row["dtype"] == "float32" else 1e-2
        yield compare_close(file, row["output"], found, expected, tolerance)
        if row["top_p"] < 1 or edge < size:
            count = int((found > 0).sum())
            yield compare_value(file, f"{row['output']}.kept", count, row["kept"])


def check_end_to_end(folder: GoldenFolder, run_jobs: RunJobs = run_alone) -> Iterator[CaseResult]:
    """Compare the codes that the end-to-end audio is made of."""
    file, prompt = "end_to_end.safetensors", folder.tensors("greedy")["one_voice.prompt"]
    run = run_jobs(file, load(folder), [Job("codes", _GREEDY_ROW, prompt)])
    yield from run.results
    expected = folder.tensors("end_to_end")["codes"]
    yield compare_equal(file, "codes", run.outcomes["codes"].succeeded()[-1].codes, expected)


def _trace(generation: Generation) -> Tensor:
    """Return [n, 3]: first draw, second draw, token chosen."""
    return torch.cat([generation.draws, generation.columns[:1].T], dim=1)


def _compare_ending(
    file: str, row: dict[str, Any], ending: Outcome, arrays: dict[str, Tensor]
) -> Iterator[CaseResult]:
    case, found, error = row["case"], ending.generations, ending.error
    # A row that is not required shows a failing of the reference: nothing of it may be met here.
    wanted = row["outcome"] if row.get("required", True) else "ok"
    outcome = "ok" if error is None else "error"
    text = outcome if error is None else f"error: {error.code}"
    yield CaseResult(file, case, wanted, text, outcome == wanted)
    if "prompt_lengths" in row:
        lengths = [one.prompt.shape[1] for one in found]
        yield compare_value(file, f"{case}.prompt_lengths", lengths, row["prompt_lengths"])
    names = [name for name in arrays if name.startswith(f"{case}.frames.")]
    if row.get("required", True):
        yield compare_value(file, f"{case}.batches", len(found), len(names))
    for number, one in enumerate(found[: len(names)]):
        key = f"{case}.frames.{number}"
        yield compare_equal(file, key, one.columns, arrays[key])


class _StoredNoise:
    """Give uniform numbers that were stored frame by frame."""

    def __init__(self, frames: list[list[Tensor]]) -> None:
        self._frames = iter(frames)

    def frame(self, seeds: Tensor, frames: Tensor, num_draws: int) -> FrameNoise:
        """Return the next stored frame."""
        return FixedFrame(next(self._frames))


def _has_stored(case: str, arrays: dict[str, Tensor]) -> bool:
    return f"{case}.uniform.0.slow" in arrays


def _stored_noise(case: str, arrays: dict[str, Tensor]) -> list[list[Tensor]]:
    """Return the stored numbers of each frame, one row per draw."""
    stored: list[list[Tensor]] = []
    while f"{case}.uniform.{len(stored)}.slow" in arrays:
        stem = f"{case}.uniform.{len(stored)}"
        stored.append([*arrays[f"{stem}.slow"], *arrays[f"{stem}.fast"]])
    return stored


def _stored_job(case: str, row: dict[str, Any], arrays: dict[str, Tensor]) -> Job:
    """Return the frames that stored numbers give, as a job."""
    stored = _stored_noise(case, arrays)
    shorter = {**row, "max_new_tokens": len(stored)}
    noise = _StoredNoise(stored)
    return Job(f"{case}{_STORED}", shorter, arrays[f"{case}.prompt"], noise=noise)


def _check_stored_noise(
    file: str, case: str, row: dict[str, Any], loaded: Loaded, arrays: dict[str, Tensor]
) -> Iterator[CaseResult]:
    """Compare our draws from the seeded generator with the stored ones."""
    source = noise_of(loaded, row)
    for frame, stored in enumerate(_stored_noise(case, arrays)):
        stem = f"{case}.uniform.{frame}"
        one = source.frame(torch.zeros(1), torch.zeros(1), len(stored))
        slow, fast = arrays[f"{stem}.slow"], arrays[f"{stem}.fast"]
        for name, expected, first in (("slow", slow, 0), ("fast", fast, len(slow))):
            ids = torch.arange(expected.shape[1])
            found = torch.stack([one.uniform(first + i, ids) for i in range(len(expected))])
            yield compare_close(file, f"{stem}.{name}", found, expected, 0.0)


CHECKS: dict[str, Check] = {
    "greedy.safetensors": check_greedy,
    "sampling.safetensors": check_sampling,
    "edge.safetensors": check_edge,
    "limits.safetensors": check_limits,
    "probs.safetensors": check_probs,
    "end_to_end.safetensors": check_end_to_end,
}
COMPANIONS: dict[str, str] = {
    "edge.json": "edge.safetensors",
    "limits.json": "limits.safetensors",
    "lm.json": "greedy.safetensors",
}
