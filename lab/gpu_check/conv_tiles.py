"""Time the decoder's convolution in several tiles, to choose those of `synth.engine.kernels`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import torch

from lab.gpu_check.kernels import first_line
from lab.gpu_check.steps import Context, Found, NotMeasuredError, Step
from lab.gpu_check.timing import time_round
from synth.engine.kernels import why_unavailable

if TYPE_CHECKING:
    from lab.gpu_check.conv_layers import ConvCall, ConvLayer
    from synth.engine.kernels.convolution import Tile

COLUMNS = ("layer", "shape", "tile", "microseconds", "teraflops", "chosen", "same")
# A pass of segments of 200 frames, a chunk of 16 streams, one of a stream alone.
SHAPES = ((2, 200), (16, 8), (1, 8))
COMPILERS, ROUNDS = 16, 5
FLUSH_BYTES = 1 << 30  # long enough that the launch is there when it has been written
# Columns, output channels and input channels of a tile, warps, stages.
MANY = ((128, 128, 64, 8, 3), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 256, 64, 8, 3))
FEW = ((64, 64, 64, 4, 4), (64, 32, 128, 4, 4), (64, 16, 128, 4, 4))
NARROW = ((128, 128, 32, 8, 4), (128, 64, 32, 4, 4), (128, 32, 32, 4, 4))
ONE = ((128, 16, 32, 4, 4), (64, 16, 32, 4, 4), (128, 16, 64, 4, 4))


def time_tiles(context: Context) -> Found:
    """Time every layer of the full decoder in the tiles that suit it, and in the one it has."""
    context.need_gpu("a compiled kernel")
    reason = why_unavailable(context.device)
    if reason is not None:
        raise NotMeasuredError(reason)
    from lab.gpu_check.conv_layers import conv_layers  # needs Triton

    found = Found(columns=COLUMNS)
    layers = list(conv_layers())
    _compile(layers, context.device)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=context.device)
    rows: list[dict[str, object]] = []
    for batch, frames in SHAPES:
        for layer in layers:
            call = _call(layer, batch, frames, context.device)
            rows += _rows(layer, call, batch * frames, flush, found)
            del call
        best = [_best(rows, layer, call_shape(batch, frames)) for layer in layers]
        chosen = [_chosen(rows, layer, call_shape(batch, frames)) for layer in layers]
        note = f"{batch} x {frames}: {sum(chosen):.0f} us as chosen, {sum(best):.0f} us at best"
        found.notes.append(f"{note}, all convolutions of a pass")
    found.rows = rows
    return found


def call_shape(batch: int, frames: int) -> str:
    return f"{batch} x {frames} frames"


def _call(layer: ConvLayer, batch: int, frames: int, device: torch.device) -> ConvCall:
    from lab.gpu_check.conv_layers import ConvCall
    from lab.gpu_check.kernel_cases import random

    return ConvCall(layer, batch, frames, partial(random, device=device), torch.float16)


def _tiles(layer: ConvLayer) -> list[Tile]:
    from synth.engine.kernels.convolution import Tile

    if layer.outs < 16:
        shapes: Iterable[tuple[int, ...]] = ONE
    elif layer.ins % 64:
        shapes = NARROW + FEW[:1] + MANY[:1]
    else:
        shapes = MANY + FEW
    return [Tile(*shape) for shape in shapes]


def _compile(layers: Iterable[ConvLayer], device: torch.device) -> None:
    """Compile what is to be timed, several at a time; one that cannot be shows when it is timed."""
    calls = {}
    for layer in layers:
        kind = (layer.adds, layer.keeps, layer.snake > 0)
        for tile in _tiles(layer):
            calls[kind, layer.ins % tile.ins > 0, tile] = layer
    small = {layer: _call(layer, 1, 1, device) for layer in set(calls.values())}
    with ThreadPoolExecutor(COMPILERS) as pool:
        done = [pool.submit(small[layer], tile) for (*_, tile), layer in calls.items()]
        for future in done:
            future.exception()
    torch.cuda.synchronize(device)


def _rows(
    layer: ConvLayer, call: ConvCall, frames: int, flush: torch.Tensor, found: Found
) -> Iterable[dict[str, object]]:
    expected = call()
    for tile in dict.fromkeys([call.tile, *_tiles(layer)]):
        run = partial(call, tile)
        name = f"{layer.name} {layer.ins} to {layer.outs}"
        try:
            result = run()
            same = all(torch.equal(a, b) for a, b in zip(result, expected, strict=True))
            del result
            seconds = statistics.median(time_round(run, flush.zero_) for _ in range(ROUNDS))
        except Exception as error:  # of Triton; a tile may be more than a device holds  # noqa: BLE001
            found.notes.append(f"{name}, {tile}: {first_line(error)}")
            continue
        yield {
            "layer": name,
            "shape": call.shape,
            "count": layer.count,
            "tile": f"{tile.rows} x {tile.outs} x {tile.ins}, {tile.warps} w, {tile.stages} s",
            "microseconds": 1e6 * seconds,
            "teraflops": layer.flops * frames / seconds / 1e12,
            "chosen": tile == call.tile,
            "same": same,  # to the last bit as in the chosen tile
        }


def _times(
    rows: Iterable[dict[str, object]], layer: ConvLayer, shape: str
) -> list[dict[str, object]]:
    name = f"{layer.name} {layer.ins} to {layer.outs}"
    return [row for row in rows if row["layer"] == name and row["shape"] == shape]


def _best(rows: Iterable[dict[str, object]], layer: ConvLayer, shape: str) -> float:
    times = [float(str(row["microseconds"])) for row in _times(rows, layer, shape)]
    return layer.count * min(times, default=0.0)


def _chosen(rows: Iterable[dict[str, object]], layer: ConvLayer, shape: str) -> float:
    found = _times(rows, layer, shape)
    times = [float(str(row["microseconds"])) for row in found if row["chosen"]]
    return layer.count * min(times, default=0.0)


STEPS = (Step("conv-tiles", 40, time_tiles),)
