"""Measure the time from a prompt to its first frame, with and without a voice's cached prefix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.bench.arguments import check_context
from lab.bench.baseline import CACHE_LENGTH, BaselineLoop
from lab.bench.machine import Series, make_row, matmul_rate, run_facts, run_windows, spread
from lab.bench.models.preset_weights import lm_weights, special_ids
from lab.bench.models.presets import preset_dual_ar
from lab.bench.models.shapes import Preset, preset
from lab.bench.report import Options, Plot, Progress, Report
from lab.bench.roofline import floor_seconds, kv_dtype_name, prefill_bytes, prefill_flops
from lab.bench.stepping import PromptRun, random_prompt
from synth.contract import Sampling
from synth.engine.loading.engine_config import choose_numbers, resolve_device
from synth.engine.model.dual_ar import DualAR

COLUMNS = (
    "dtype",
    "prefix",
    "tokens",
    "cached",
    "milliseconds",
    "milliseconds_low",
    "milliseconds_high",
    "ratio_to_uncached",
    "ratio_to_baseline",
    "ratio_to_roofline",
    "roofline_bound",
)
_NO_FRAMES = "a prompt makes one frame; see milliseconds"


def run(options: Options, progress: Progress) -> Report:
    """Measure every pair of a prefix and a text: whole, and with the prefix copied into the slot.

    Raises:
        InvalidSpecError: the preset, the device or a length is not to be had.
    """
    shape, device = preset(options["preset"]), resolve_device(options["device"])
    check_context(shape, max(options["prefix"]) + max(options["tokens"]) + 1)
    facts = run_facts(device, seed=options["seed"], preset=shape.name)
    facts |= {"windows": options["windows"], "first_frame": "drawn, in every figure"}
    bench = _Bench(shape, device, options, facts, progress)
    rows = [row for dtype in options["dtype"] for row in bench.rows_of(dtype)]
    plot = Plot("tokens", "milliseconds", ("dtype", "prefix", "cached"))
    return Report("prefill", facts, rows, COLUMNS, plot)


@dataclass(eq=False)
class _Case:
    """Measure one prompt; `start` of its positions are copied in and not computed."""

    name: str
    prompt: PromptRun
    prefix: int
    tokens: int
    start: int

    def prepare(self) -> None:
        self.prompt.prepare()

    def work(self) -> int:
        return self.prompt.run()


@dataclass(eq=False)
class _Plain:
    """Measure the plain loop on one whole prompt."""

    name: str
    loop: BaselineLoop
    columns: torch.Tensor

    def prepare(self) -> None:
        pass

    def work(self) -> int:
        self.loop.prefill(self.columns, Sampling())
        return 1


@dataclass(eq=False)
class _Bench:
    """Hold what all measurements of a run share."""

    shape: Preset
    device: torch.device
    options: Options
    facts: dict[str, Any]
    progress: Progress

    def rows_of(self, dtype: str) -> Iterator[dict[str, Any]]:
        """Measure one dtype's prompts and yield their rows."""
        self.progress(f"making {self.shape.name} with random weights, {dtype}")
        seed = self.options["seed"]
        weights, shared = self._weights(dtype) if self.options["baseline"] else (None, None)
        model = preset_dual_ar(
            self.shape, device=self.device, dtype=dtype, seed=seed, weights=shared
        )
        cases = list(self._cases(model))
        plain = [] if weights is None else [self._plain(case, weights) for case in cases]
        windows = self.options["windows"]
        series = run_windows(
            [*cases, *plain], windows=windows, device=self.device, progress=self.progress
        )
        ours, base = series[: len(cases)], series[len(cases) :]
        whole = {
            (case.prefix, case.tokens): measured
            for case, measured in zip(cases, ours, strict=True)
            if not case.start
        }
        weight_dtype = model.weight_format
        for index, (case, measured) in enumerate(zip(cases, ours, strict=True)):
            uncached = whole[case.prefix, case.tokens]
            row = self._figures(case, measured, weight_dtype)
            row["kv_dtype"] = kv_dtype_name(case.prompt.state)
            row["ratio_to_uncached"] = measured.ratio_to(uncached).median
            row["ratio_to_baseline"] = measured.ratio_to(base[index]).median if base else None
            why = {"frames_per_second": _NO_FRAMES}
            if not base:
                why["ratio_to_baseline"] = "the plain loop runs with --baseline only"
            yield make_row(self.facts, row, why_null=why)

    def _cases(self, model: DualAR) -> Iterator[_Case]:
        seed = self.options["seed"]
        for prefix in self.options["prefix"]:
            for tokens in self.options["tokens"]:
                for start in sorted({0, prefix}):
                    columns = random_prompt(model, prefix + tokens, seed=seed)
                    name = f"{prefix} + {tokens} positions, {start} of them cached"
                    prompt = PromptRun(model, columns, start=start, seed=seed)
                    yield _Case(name, prompt, prefix, tokens, start)

    def _weights(self, dtype: str) -> tuple[dict[str, Tensor], dict[str, Tensor] | None]:
        """Return the plain loop's weights, and those for the model too where they are the same.

        The loop computes in float32 on a CPU. On CUDA it does in the model's format: in float32 it
        would be slower, and the weights of both would take three times the room.
        """
        numbers = choose_numbers(dtype, self.device, self.shape.config)
        wanted = torch.float32 if self.device.type == "cpu" else numbers.dtype
        seed = self.options["seed"]
        drawn = dict(lm_weights(self.shape, device=self.device, dtype=wanted, seed=seed))
        return drawn, drawn if numbers.dtype is wanted else None

    def _plain(self, case: _Case, weights: dict[str, Tensor]) -> _Plain:
        length = max(CACHE_LENGTH, case.prefix + case.tokens)
        loop = BaselineLoop(
            self.shape.config, special_ids(self.shape), weights, cache_length=length
        )
        return _Plain(f"plain {case.name}", loop, case.prompt.columns)

    def _figures(self, case: _Case, measured: Series, weight_dtype: str) -> dict[str, Any]:
        seconds = spread([1 / rate for rate in measured.rates])
        computed = case.prefix + case.tokens - case.start
        flops = prefill_flops(self.shape.config, tokens=computed, start=case.start)
        num_bytes = prefill_bytes(self.shape.config, weight_dtype=weight_dtype)
        copy = self.facts["copy_gigabytes_per_second"] * 1e9
        rate = matmul_rate(self.device, weight_dtype)
        floor, bound = floor_seconds(num_bytes, flops, copy, rate)
        return {
            "dtype": weight_dtype,
            "batch": 1,
            "context": case.prefix + case.tokens,
            "cache_length": case.prompt.state.max_positions,
            "prefix": case.prefix,
            "tokens": case.tokens,
            "cached": bool(case.start),
            "milliseconds": 1000 * seconds.median,
            "milliseconds_low": 1000 * seconds.low,
            "milliseconds_high": 1000 * seconds.high,
            "positions_per_second": computed / seconds.median,
            "ratio_to_roofline": floor / seconds.median,
            "roofline_bound": bound,
        }
