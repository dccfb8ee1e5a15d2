"""Measure the fast AR alone: the passes that fill one frame's residual codes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from lab.bench.machine import Series, make_row, matmul_rate, run_facts, run_windows, spread
from lab.bench.models.presets import preset_dual_ar
from lab.bench.models.shapes import preset
from lab.bench.report import Options, Plot, Progress, Report
from lab.bench.roofline import WEIGHT_BYTES, floor_seconds, layer_weights
from lab.bench.stepping import has_kernels
from synth.engine.loading.engine_config import resolve_device, wants_graphs
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR

COLUMNS = (
    "dtype",
    "batch",
    "kernels",
    "graphs",
    "graph_nodes",
    "milliseconds",
    "milliseconds_low",
    "milliseconds_high",
    "floor_milliseconds",
    "ratio_to_roofline",
    "roofline_bound",
)
_NO_BASELINE = "the plain loop has no such part alone; see ar"


def run(options: Options, progress: Progress) -> Report:
    """Measure a frame's passes at each batch.

    With kernels each code is drawn as in a frame; without, it is the most likely one.

    Raises:
        InvalidSpecError: the preset, the device or a format is not to be had.
    """
    shape, device = preset(options["preset"]), resolve_device(options["device"])
    graphs = list(dict.fromkeys(wants_graphs(name, device) for name in options["graphs"]))
    facts = run_facts(device, seed=options["seed"], preset=shape.name)
    facts |= {"frames_per_window": options["frames"], "windows": options["windows"]}
    progress(f"making {shape.name} with random weights")
    model = preset_dual_ar(shape, device=device, dtype=options["dtype"], seed=options["seed"])
    asked = options["kernels"] if has_kernels(model) else ["off"]
    cases = [
        _Case(model, batch, is_graph, options["frames"], options["seed"], kernels=choice == "auto")
        for batch in options["batch"]
        for is_graph in graphs
        for choice in asked
    ]
    series = run_windows(cases, windows=options["windows"], device=device, progress=progress)
    rows = [_row(facts, case, one) for case, one in zip(cases, series, strict=True)]
    return Report("fast", facts, rows, COLUMNS, Plot("batch", "milliseconds", ("graphs",)))


class _Case:
    """Fill frame after frame of a batch from one hidden state."""

    def __init__(
        self,
        model: DualAR,
        batch: int,
        is_graph: bool,
        frames: int,
        seed: int,
        *,
        kernels: bool = False,
    ) -> None:
        self.model, self.batch, self.is_graph, self.frames = model, batch, is_graph, frames
        self.kernels = kernels
        self.name = f"batch {batch} graphs {is_graph} kernels {kernels}"
        generator = torch.Generator().manual_seed(seed)
        width = model.config.text_config.dim
        hidden = torch.randn(batch, width, generator=generator)
        self.hidden = hidden.to(model.device, model.dtype)
        codes = torch.randint(model.fast.codebook_size, (batch,), generator=generator)
        self.codes = codes.to(model.device)
        self.cache = model.fast.allocate_cache(batch)
        self.graph_nodes: int | None = None
        self._fill: Callable[[], object] = self._with_kernels() if kernels else self.fill
        if is_graph:
            self._capture()

    @torch.inference_mode()
    def fill(self) -> Tensor:
        """Return the codes of one frame, int64 [B, K]."""
        fast, codes = self.model.fast, [self.codes]
        logits = fast.first(self.hidden, self.codes, self.cache)
        codes.append(logits.argmax(-1))
        for codebook in range(2, fast.num_codebooks):
            codes.append(fast.next(codes[-1], codebook, self.cache).argmax(-1))
        return torch.stack(codes, dim=1)

    def _with_kernels(self) -> Callable[[], object]:
        """Return what fills a frame with kernels, draws included."""
        frame, sampler = (
            import_module(f"synth.engine.kernels.{name}") for name in ("frame", "sampler")
        )
        state = DecodeState.allocate(self.model, num_slots=self.batch, max_positions=8)
        draws = sampler.DrawInputs.of(state)
        finite = torch.ones(self.batch, dtype=torch.bool, device=self.model.device)

        @torch.inference_mode()
        def fill() -> object:
            return frame._codes(self.model, state, self.hidden, self.codes, draws, finite)

        return fill

    def prepare(self) -> None:
        """Do nothing: every frame is the same."""

    def work(self) -> int:
        """Fill a window's frames; return how many, of one stream."""
        for _ in range(self.frames):
            self._fill()
        return self.frames

    def _capture(self) -> None:
        from synth.engine.model.decode import CudaGraphs

        captured = CudaGraphs(self.model.device).capture(self._fill)
        self.graph_nodes, self._fill = captured.num_nodes, captured.replay


def _row(facts: dict[str, Any], case: _Case, series: Series) -> dict[str, Any]:
    config, dtype = case.model.config.audio_decoder_config, case.model.weight_format
    passes = config.num_codebooks - 1
    layers, head = config.n_layer * layer_weights(config), config.vocab_size * config.dim
    num_bytes = WEIGHT_BYTES[dtype] * passes * (layers + head)
    flops = 2 * case.batch * ((passes + 1) * layers + passes * head)  # the first has two positions
    floor, bound = floor_seconds(
        num_bytes,
        flops,
        facts["copy_gigabytes_per_second"] * 1e9,
        matmul_rate(case.model.device, dtype),
    )
    seconds = spread([1 / rate for rate in series.rates])
    values = {
        "dtype": dtype,
        "batch": case.batch,
        "cache_length": config.num_codebooks,
        "kernels": "on" if case.kernels else "off",
        "graphs": "on" if case.is_graph else "off",
        "graph_nodes": case.graph_nodes,
        "frames_per_second": case.batch / seconds.median,
        "milliseconds": 1000 * seconds.median,
        "milliseconds_low": 1000 * seconds.low,
        "milliseconds_high": 1000 * seconds.high,
        "floor_milliseconds": 1000 * floor,
        "ratio_to_roofline": floor / seconds.median,
        "roofline_bound": bound,
    }
    return make_row(facts, values, why_null={"ratio_to_baseline": _NO_BASELINE})
