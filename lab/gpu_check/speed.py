"""Measure the transformers: whole frames, the fast AR, prompts, memory, each kernel."""

from __future__ import annotations

from pathlib import Path

import torch

from lab.bench.machine import copy_bandwidth, matmul_rate
from lab.bench.models.presets import preset_models
from lab.gpu_check import conv_tiles, profiles
from lab.gpu_check.benches import found_of, run_bench, value_of
from lab.gpu_check.kernels import cases_on, first_line
from lab.gpu_check.steps import Context, Found, Step, has_fp8
from lab.gpu_check.timing import COLD_BYTES, seconds_of
from synth.engine import Engine, EngineConfig

MEMORY_SLOTS, MEMORY_POSITIONS = 64, 2048
MACHINE_COLUMNS = ("what", "value", "unit")
MEMORY_COLUMNS = ("what", "gigabytes")
KERNEL_COLUMNS = (
    "kernel",
    "shape",
    "kernel_microseconds",
    "torch_microseconds",
    "speedup",
    "gigabytes_per_second",
    "share_of_copy",
    "cache",
)


def measure_machine(context: Context) -> Found:
    """Measure what the machine itself can do: the ceilings of everything below."""
    copy = copy_bandwidth(context.device) / 1e9
    rows: list[dict[str, object]] = [
        {"what": "copy, read and written", "value": copy, "unit": "GB/s"}
    ]
    for dtype in ("bfloat16", "tf32", "float32") if context.on_gpu else ("float32",):
        rate = matmul_rate(context.device, dtype)
        if rate is not None:
            rows.append({"what": f"product, {dtype}", "value": rate / 1e12, "unit": "TFLOP/s"})
    return Found(rows=rows, columns=MACHINE_COLUMNS)


def measure_ar(context: Context) -> Found:
    """Measure whole frames beside the plain loop and the roofline; on a GPU replayed ones."""
    if not context.on_gpu:
        sizes = ("--frames", "8", "--windows", "2", "--baseline-frames", "2")
        report = run_bench(context, "ar", "--batch", "1,4", "--baseline", "--graphs", "off", *sizes)
        dtype = report.rows[0]["dtype"]
        return found_of(report, rtf=value_of(report.rows, "real_time_factor", batch=1, dtype=dtype))
    sizes = ("--batch", "1,8,64", "--graphs", "on", "--windows", "3")
    report = run_bench(context, "ar", "--dtype", "bfloat16", "--baseline", *sizes)
    formats = "int8,fp8" if has_fp8(context.device) else "int8"
    eight = run_bench(context, "ar", "--dtype", formats, *sizes)
    found = found_of(
        report,
        rtf=value_of(report.rows, "real_time_factor", batch=1),
        rtf_int8=value_of(eight.rows, "real_time_factor", batch=1, dtype="int8"),
    )
    found.rows = [*report.rows, *eight.rows]
    return found


def measure_contexts(context: Context) -> Found:
    """Measure whole frames over short and long contexts, in slots of the usual length."""
    if context.on_gpu:
        sweep = ("--context", "300,1200,2000", "--batch", "1,64", "--positions", "2048")
        sizes = ("--frames", "32", "--windows", "3")
    else:
        sweep = ("--context", "40,120", "--batch", "1,2", "--positions", "256")
        sizes = ("--frames", "4", "--windows", "2")
    return found_of(run_bench(context, "ar", *sweep, *sizes))


def measure_fast(context: Context) -> Found:
    """Measure the passes of the fast AR alone, with graphs off and on."""
    if not context.on_gpu:
        report = run_bench(context, "fast", "--batch", "1,2", "--frames", "4", "--windows", "2")
        return found_of(report, fast_ms=value_of(report.rows, "milliseconds", batch=1))
    kernels = ("--kernels", "auto,off")  # the figure is of the first of them
    report = run_bench(context, "fast", "--batch", "1,8,64", "--graphs", "off,on", *kernels)
    return found_of(report, fast_ms=value_of(report.rows, "milliseconds", batch=1, graphs="on"))


def measure_prefill(context: Context) -> Found:
    """Measure prompts with and without a stored voice."""
    if context.on_gpu:
        return found_of(run_bench(context, "prefill", "--prefix", "0,600,1000", "--baseline"))
    sizes = ("--tokens", "20", "--prefix", "0,30", "--windows", "2")
    return found_of(run_bench(context, "prefill", *sizes))


def measure_memory(context: Context) -> Found:
    """Measure what an engine of 64 slots of 2048 positions takes of the device, warmed up."""
    context.need_gpu("the memory of 64 slots")
    before = _count_used_bytes(context.device)
    models = preset_models(context.preset, device=context.device)
    weights = _count_used_bytes(context.device)
    config = EngineConfig(
        checkpoint=Path(context.preset),  # only a name here: nothing is read from it
        device=str(context.device),
        slots=MEMORY_SLOTS,
        max_positions=MEMORY_POSITIONS,
    )
    engine = Engine(config, models)
    try:
        engine.warm_up()
        taken = {
            "weights": weights - before,
            "the device, all in all": _count_used_bytes(context.device),
            "of it before the engine": before,
            "held by torch, at most": torch.cuda.max_memory_reserved(context.device),
            "in tensors, at most": torch.cuda.max_memory_allocated(context.device),
        }
    finally:
        engine.close()
    rows = [{"what": what, "gigabytes": num_bytes / 1e9} for what, num_bytes in taken.items()]
    total = taken["the device, all in all"] / 1e9
    return Found(rows=rows, columns=MEMORY_COLUMNS, figures={"memory_gb": total})


def measure_kernels(context: Context) -> Found:
    """Time each kernel beside its torch form, in bfloat16."""
    copy = copy_bandwidth(context.device)
    rows = []
    found = Found(columns=KERNEL_COLUMNS)
    for case in cases_on(context, torch.bfloat16):
        try:
            kernel, plain = (
                seconds_of(run, context.device, num_bytes=case.num_bytes)
                for run in (case.kernel, case.torch_form)
            )
        except Exception as error:  # of torch, or of whatever compiles the kernel; the others go on  # noqa: BLE001
            found.mismatches.append(f"{case.name} {case.shape}: {first_line(error)}")
            continue
        rows.append(
            {
                "kernel": case.name,
                "shape": case.shape,
                "kernel_microseconds": 1e6 * kernel,
                "torch_microseconds": 1e6 * plain,
                "speedup": plain / kernel,
                "gigabytes_per_second": case.num_bytes / kernel / 1e9,
                "share_of_copy": case.num_bytes / kernel / copy,
                "cache": "cold" if case.num_bytes >= COLD_BYTES else "warm",
            }
        )
    found.rows = rows
    return found


def measure_kernels_off(context: Context) -> Found:
    """Measure whole frames with all kernels and with none, replayed as graphs."""
    context.need_gpu("leaving kernels out")
    sizes = ("--batch", "1,64", "--kernels", "auto,off", "--frames", "32", "--windows", "3")
    return found_of(run_bench(context, "ar", *sizes, "--graphs", "on"))


def _count_used_bytes(device: torch.device) -> int:
    """Return the bytes of the device that are not free, other processes' included."""
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    return total - free


STEPS = (
    Step("machine", 15, measure_machine),
    Step("ar", 60, measure_ar),
    Step("fast", 45, measure_fast),
    Step("memory", 15, measure_memory),
    Step("kernels", 50, measure_kernels),
    Step("kernels-off", 60, measure_kernels_off),
    Step("contexts", 70, measure_contexts),
    Step("prefill", 50, measure_prefill),
    *profiles.STEPS,
    *conv_tiles.STEPS,
)
