"""Measure frames per second of whole decode steps, beside a plain loop and the roofline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
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
from lab.bench.roofline import floor_seconds, frame_cost, kv_dtype_name
from lab.bench.stepping import (
    Agreement,
    DecodeBatch,
    has_kernels,
    measure_agreement,
    prompt_positions,
    random_prompt,
    without_kernels,
)
from synth.contract import Sampling
from synth.engine.device import free_cached_memory
from synth.engine.errors import InvalidSpecError
from synth.engine.loading.engine_config import choose_numbers, resolve_device, wants_graphs
from synth.engine.model.dual_ar import DualAR

COLUMNS = (
    "dtype",
    "batch",
    "context",
    "shared",
    "kernels",
    "graphs",
    "graph_nodes",
    "milliseconds_per_step",
    "real_time_factor",
    "frames_per_second",
    "frames_per_second_low",
    "frames_per_second_high",
    "acoustic_tokens_per_second",
    "ratio_to_baseline",
    "ratio_to_baseline_cpu_time",
    "ratio_to_roofline",
    "roofline_bound",
    "logits_error",
)
AGREEMENT_FRAMES = 16


def run(options: Options, progress: Progress) -> Report:
    """Measure every combination, one dtype after the other, each beside the plain loop.

    Raises:
        InvalidSpecError: the preset, the device, a context or a shared beginning is not to be had.
    """
    shape, device = preset(options["preset"]), resolve_device(options["device"])
    options = {**options, "baseline_dtype": baseline_dtypes(options, device)}
    graphs = list(dict.fromkeys(wants_graphs(name, device) for name in options["graphs"]))
    for context in options["context"]:
        longest = prompt_positions(context, options["frames"]) + options["frames"] + 1
        check_context(shape, max(longest, options["positions"]))
        _check_shared(options, context)
    facts = run_facts(device, seed=options["seed"], preset=shape.name)
    facts |= {
        "frames_per_window": options["frames"],
        "windows": options["windows"],
        "baseline": baseline_facts(options) if options["baseline"] else None,
    }
    bench = _Bench(shape, device, options, graphs, facts, progress)
    rows = [row for dtype in options["dtype"] for row in bench.rows_of(dtype)]
    plot = Plot(
        "batch",
        "frames_per_second",
        ("dtype", "context", "shared", "graphs", "kernels"),
        low="frames_per_second_low",
        high="frames_per_second_high",
    )
    return Report("ar", facts, rows, COLUMNS, plot)


@dataclass(eq=False)
class _Bench:
    """Hold what all measurements of a run share."""

    shape: Preset
    device: torch.device
    options: Options
    graphs: list[bool]
    facts: dict[str, Any]
    progress: Progress

    def rows_of(self, dtype: str) -> Iterator[dict[str, Any]]:
        """Measure one dtype's sweep together with the plain loop and yield its rows."""
        self.progress(f"making {self.shape.name} with random weights, {dtype}")
        shared = self._shared_weights(dtype)
        models = self._models(dtype, shared)
        ours = [
            self._ours(model, dtype, batch, context, alike, graphs)
            for context in self.options["context"]
            for alike in self.options["shared"]
            for batch in self.options["batch"]
            for graphs in self.graphs
            for model in models
        ]
        plain = self._plain(models[0], shared) if self.options["baseline"] else []
        series = run_windows(
            [*ours, *plain],
            windows=self.options["windows"],
            device=self.device,
            progress=self.progress,
        )
        base = faster(plain, series[len(ours) :])
        agreements = {model.form: self._agreement(model) for model in models}
        for contender, measured in zip(ours, series, strict=False):
            model = contender.batch.model
            row = self._row(contender, measured, base, model.weight_format)
            agreement = agreements[model.form]
            yield row | (asdict(agreement) if agreement else {})
        del models, model, shared, ours, plain, contender
        free_cached_memory(self.device)  # the next dtype's weights need the room

    def _models(self, dtype: str, shared: dict[str, Tensor] | None) -> list[DualAR]:
        """Return the model with kernels, without, or both, as is asked for and can be had.

        On a CPU the two lay their matrices out differently; on CUDA they share them.
        """
        asked = list(dict.fromkeys(self.options["kernels"]))
        if self.device.type == "cpu":
            made = [self._model(dtype, shared, choice) for choice in asked]
            return made if any(model.has_own_frames for model in made) else made[:1]
        model = self._model(dtype, shared, "auto")
        if not has_kernels(model):
            return [model]
        return [model if choice == "auto" else without_kernels(model) for choice in asked]

    def _model(self, dtype: str, shared: dict[str, Tensor] | None, kernels: str) -> DualAR:
        return preset_dual_ar(
            self.shape,
            device=self.device,
            dtype=dtype,
            seed=self.options["seed"],
            weights=shared,
            kernels=kernels,
        )

    def _shared_weights(self, dtype: str) -> dict[str, Tensor] | None:
        """Return weights that the model and the plain loop both use; None where they cannot.

        At full size a second copy would be 9 GB.
        """
        numbers = choose_numbers(dtype, self.device, self.shape.config)
        if not self.options["baseline"] or numbers.name not in self.options["baseline_dtype"]:
            return None
        return self._weights(numbers.dtype)

    def _weights(self, dtype: torch.dtype) -> dict[str, Tensor]:
        seed = self.options["seed"]
        return dict(lm_weights(self.shape, device=self.device, dtype=dtype, seed=seed))

    def _agreement(self, model: DualAR) -> Agreement | None:
        """Hold the model's logits to those of float32; None where that takes too much memory."""
        if self.shape.name == "full":
            return None
        self.progress(f"comparing {model.weight_format} with float32")
        seed = self.options["seed"]
        exact = preset_dual_ar(
            self.shape, device=self.device, dtype="float32", seed=seed, kernels="off"
        )
        return measure_agreement(model, exact, frames=AGREEMENT_FRAMES, seed=seed)

    def _ours(
        self, model: DualAR, dtype: str, batch: int, context: int, shared: int, graphs: bool
    ) -> Ours:
        self.progress(f"prefilling {batch} streams for a context of {context}")
        options = self.options
        made = DecodeBatch(
            model,
            batch=batch,
            context=context,
            frames=options["frames"],
            seed=options["seed"],
            graphs=graphs,
            positions=options["positions"],
            shared=shared,
        )
        name = f"{dtype} batch {batch} context {context} shared {shared} graphs {_on_off(graphs)}"
        name += f" kernels {_on_off(model.has_own_frames)}"
        return Ours(name, made, context, shared, graphs, model.has_own_frames)

    def _plain(self, model: DualAR, shared: dict[str, Tensor] | None) -> list[Plain]:
        frames, seed = self.options["baseline_frames"], self.options["seed"]
        # Its cost does not depend on the context: it attends to all of its cache.
        start = min(prompt_positions(min(self.options["context"]), frames), CACHE_LENGTH - frames)
        prompt, sampling = random_prompt(model, start, seed=seed), Sampling(seed=seed)
        contenders = []
        for dtype in self.options["baseline_dtype"]:
            wanted: torch.dtype = getattr(torch, dtype)
            is_shared = shared is not None and model.dtype is wanted
            weights = shared if shared is not None and is_shared else self._weights(wanted)
            loop = BaselineLoop(self.shape.config, special_ids(self.shape), weights)
            loop.prefill(prompt, sampling)
            contenders.append(Plain(f"plain {dtype}", dtype, loop, start, frames, sampling))
        return contenders

    def _row(
        self, contender: Ours, series: Series, base: tuple[str, Series] | None, weight_dtype: str
    ) -> dict[str, Any]:
        batch, speed, codec = contender.batch.batch, spread(series.rates), self.shape.codec
        kv_dtype = kv_dtype_name(contender.batch.state)
        cost = frame_cost(
            self.shape.config,
            weight_dtype=weight_dtype,
            kv_dtype=kv_dtype,
            batch=batch,
            context=contender.context,
            shared=contender.shared if contender.batch.model.native else 0,
        )
        copy = self.facts["copy_gigabytes_per_second"] * 1e9
        rate = matmul_rate(self.device, weight_dtype)
        floor, bound = floor_seconds(cost.num_bytes, cost.flops, copy, rate)
        ratio = series.ratio_to(base[1]) if base else None
        values = {
            "dtype": weight_dtype,
            "linear_form": str(contender.batch.model.form),
            "kv_dtype": kv_dtype,
            "batch": batch,
            "context": contender.context,
            "shared": contender.shared,
            "cache_length": contender.batch.cache_length,
            "kernels": _on_off(contender.kernels),
            "graphs": _on_off(contender.graphs),
            "graph_nodes": contender.batch.graph_nodes,
            "frames_per_second": speed.median,
            "frames_per_second_low": speed.low,
            "frames_per_second_high": speed.high,
            "milliseconds_per_step": 1000 * batch / speed.median,
            "real_time_factor": batch * codec.sample_rate / codec.hop_length / speed.median,
            "acoustic_tokens_per_second": codec.num_codebooks * speed.median,
            "frames_per_cpu_second": spread(series.cpu_rates).median,
            "ratio_to_baseline": ratio.median if ratio else None,
            "ratio_to_baseline_low": ratio.low if ratio else None,
            "ratio_to_baseline_high": ratio.high if ratio else None,
            "ratio_to_baseline_cpu_time": series.cpu_ratio_to(base[1]).median if base else None,
            "baseline_dtype": base[0] if base else None,
            "baseline_frames_per_second": base[1].median() if base else None,
            "ratio_to_roofline": speed.median * floor / batch,
            "roofline_bound": bound,
            "ratio_to_copy_bandwidth": speed.median * cost.num_bytes / copy / batch,
            "step_megabytes": cost.num_bytes / 1e6,
            "gigaflops_per_second": speed.median * cost.flops / batch / 1e9,
        }
        why = {} if base else {"ratio_to_baseline": "the plain loop runs only with --baseline"}
        return make_row(self.facts, values, why_null=why)


def _check_shared(options: Options, context: int) -> None:
    """Refuse a shared beginning that leaves a stream no column of its own."""
    positions = prompt_positions(context, options["frames"])
    for shared in options["shared"]:
        if shared >= positions:
            raise InvalidSpecError(
                f"{shared} shared positions were requested, but prompts of a context of "
                f"{context} with {options['frames']} frames have only {positions} "
                "positions; choose a longer context."
            )


def _on_off(is_on: bool) -> str:
    return "on" if is_on else "off"


@dataclass(eq=False)
class Ours:
    """Measure the engine's step at one batch, context and shared beginning."""

    name: str
    batch: DecodeBatch
    context: int
    shared: int
    graphs: bool
    kernels: bool

    def prepare(self) -> None:
        """Go back to where the prompts ended."""
        self.batch.rewind()

    def work(self) -> int:
        """Make the frames; return how many."""
        return self.batch.decode()


@dataclass(eq=False)
class Plain:
    """Measure the plain loop in one dtype."""

    name: str
    dtype: str
    loop: BaselineLoop
    start: int
    frames: int
    sampling: Sampling

    def prepare(self) -> None:
        """Go back to where the prompts ended."""
        self.loop.rewind(self.start)

    def work(self) -> int:
        """Make the frames; return how many."""
        return self.loop.decode(self.frames, self.sampling)


def faster(plain: Sequence[Plain], series: Sequence[Series]) -> tuple[str, Series] | None:
    """Return the dtype and the windows of the faster plain loop, None where none was measured."""
    if not plain:
        return None
    best = max(range(len(plain)), key=lambda index: series[index].median())
    return plain[best].dtype, series[best]


def baseline_dtypes(options: Options, device: torch.device) -> list[str]:
    """Return the formats of the plain loop: on CUDA float32 is slower and takes 18 GB more."""
    both = ["bfloat16", "float32"]
    return options["baseline_dtype"] or (both[:1] if device.type == "cuda" else both)


def baseline_facts(options: Options) -> dict[str, Any]:
    """Return what a report says of the plain loop."""
    return {
        "what": "eager plain loop, batch 1, attention over the whole cache, full head and sorts",
        "cache_length": CACHE_LENGTH,
        "frames_per_window": options["baseline_frames"],
        "dtypes_measured": options["baseline_dtype"],
    }
