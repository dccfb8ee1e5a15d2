"""Hold captured graphs to the eager step, frame by frame and bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields

import torch
from torch import Tensor

from lab.bench.models.presets import preset_dual_ar
from lab.bench.models.shapes import preset
from lab.bench.stepping import random_prompt
from lab.gpu_check.steps import Context, Found, Step
from synth.contract import Sampling
from synth.engine.model.decode import GraphBackend, StepOutput, StepRunner, capture_steps
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.prefill import SlotStart, start_slots

SLOTS, POSITIONS, PROMPT = 8, 320, 40
COLUMNS = ("bucket", "frames", "different", "nodes", "capture_seconds")
# What happens to the slots, and how many of the first ones are computed behind it for how long:
# they are joined, left, moved and cancelled, and the bucket grows and shrinks.
_PLAY: tuple[tuple[str, tuple[int, ...], int, int], ...] = (
    ("start", (0,), 1, 6),
    ("start", (1, 2), 4, 6),
    ("start", (3, 4, 5, 6, 7), 8, 10),
    ("release", (1, 4), 8, 6),
    ("move", (7, 1), 8, 4),
    ("release", (5, 6), 8, 2),
    ("move", (3, 4), 8, 2),
    ("start", (3,), 8, 6),
    ("release", (2, 3, 4), 2, 8),
)


def check_graphs(context: Context) -> Found:
    """Play the same scenes on two states, one stepped eagerly and one by replays."""
    context.need_gpu("a CUDA graph")
    from synth.engine.model.decode import CudaGraphs

    model = preset_dual_ar(preset(context.preset), device=context.device)
    return compare_runs(model, CudaGraphs(context.device))


def compare_runs(model: DualAR, backend: GraphBackend) -> Found:
    """Compare a backend's replays with eager steps over the same positions, on any device."""
    states = [DecodeState.allocate(model, num_slots=SLOTS, max_positions=POSITIONS) for _ in "ab"]
    graphs = capture_steps(model, states[1], backend)
    length = states[0].cache.num_positions
    eager = StepRunner(model, states[0], length=length)
    frames: dict[int, int] = {}
    different: dict[int, list[str]] = {}
    for bucket, made, replayed in _play(model, states, eager, graphs):
        frames[bucket] = frames.get(bucket, 0) + 1
        wrong = [name for name in made if not torch.equal(made[name], replayed[name])]
        if wrong:
            different.setdefault(bucket, []).append(f"frame {frames[bucket]}: {', '.join(wrong)}")
    found = Found(columns=COLUMNS)
    found.mismatches = [f"bucket {bucket}, {texts[0]}" for bucket, texts in different.items()]
    found.mismatches += [f"state.{name}" for name in _state_differences(*states)]
    captured = {row["slots"]: row for row in graphs.describe()["graph_buckets"]}
    found.rows = [
        {
            "bucket": bucket,
            "frames": count,
            "different": len(different.get(bucket, [])),
            "nodes": captured[bucket]["nodes"],
            "capture_seconds": captured[bucket]["seconds"],
        }
        for bucket, count in sorted(frames.items())
    ]
    return found


def _play(
    model: DualAR, states: list[DecodeState], eager: StepRunner, graphs: StepRunner
) -> Iterator[tuple[int, dict[str, Tensor], dict[str, Tensor]]]:
    """Yield the bucket and both outputs of each frame; a graph's are spoilt before the next one."""
    for number, (act, slots, bucket, count) in enumerate(_PLAY):
        for state, runner in zip(states, (eager, graphs), strict=True):
            _ACTS[act](model, state, runner, slots, number)
        for _ in range(count):
            made = _copy_output(eager.step(bucket))
            output = graphs.step(bucket)
            replayed = _copy_output(output)
            _spoil(output)
            yield bucket, made, replayed


def _start(
    model: DualAR, state: DecodeState, runner: StepRunner, slots: tuple[int, ...], number: int
) -> None:
    starts = []
    for slot in slots:
        seed = 100 * number + slot
        sampling = Sampling(
            seed=seed, top_k=5 + slot, top_p=0.7 + 0.03 * slot, max_frames=20 + 30 * (slot % 3)
        )
        positions = PROMPT + 7 * slot
        state.assign(slot, sampling, prompt_positions=positions)
        starts.append(SlotStart(slot, random_prompt(model, positions, seed=seed)))
    start_slots(model, state, starts, runner=runner.prompts)


def _release(
    model: DualAR, state: DecodeState, runner: StepRunner, slots: tuple[int, ...], number: int
) -> None:
    for slot in slots:
        state.release(slot)


def _move(
    model: DualAR, state: DecodeState, runner: StepRunner, slots: tuple[int, ...], number: int
) -> None:
    state.move(slots[0], slots[1])


_Act = Callable[[DualAR, DecodeState, StepRunner, tuple[int, ...], int], None]
_ACTS: dict[str, _Act] = {"start": _start, "release": _release, "move": _move}


def _copy_output(output: StepOutput) -> dict[str, Tensor]:
    """Return copies of what active slots were given; the others' numbers mean nothing."""
    made = output.made.clone()
    copies = {field.name: getattr(output, field.name)[made].clone() for field in fields(output)}
    return copies | {"made": made}


@torch.inference_mode()
def _spoil(output: StepOutput) -> None:
    """Overwrite a graph's output, so that a replay that leaves it alone is seen."""
    for field in fields(output):
        tensor = getattr(output, field.name)
        if tensor.dtype is torch.bool:
            tensor.logical_not_()
        else:
            tensor.fill_(-1)


def _state_differences(one: DecodeState, other: DecodeState) -> list[str]:
    """Return the names of what the two states do not agree on, of slots that are in use."""
    names = ("columns", "window", "position", "frame", "status", "active")
    found = [n for n in names if not torch.equal(getattr(one, n), getattr(other, n))]
    for slot, positions in enumerate(one.host_positions):
        if not positions:
            continue
        frames = int(one.frame[slot])
        if not torch.equal(one.history[slot, :frames], other.history[slot, :frames]):
            found.append(f"history[{slot}]")
        end = int(one.position[slot])
        for name in ("keys", "values"):
            a, b = (getattr(state.cache, name)[:, slot, :, :end] for state in (one, other))
            if not torch.equal(a, b):
                found.append(f"cache.{name}[{slot}]")
    return found


STEPS = (Step("graphs", 25, check_graphs),)
