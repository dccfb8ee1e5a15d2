"""Test that a strict engine gives the same bits whatever else it does, in all arrangements."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.bench.models.presets import preset_models
from synth.contract import RenderSpec, SegmentAudio, Turn
from synth.engine import Engine
from synth.engine.loading.loaded_models import LoadedModels
from synth.engine.slots.requests import SlotRequest
from tests.synth.engine.engine_runs import (
    CONFIG,
    Start,
    assert_same_codes,
    models_of,
    render,
    spec,
    voice,
)

SLOTS = 8
FRAMES = 7
STRICT = replace(CONFIG, slots=SLOTS, max_positions=1024, strict=True)

Bits = list[Tensor]


@dataclass
class Traces:
    """Keep, per request, the hidden state of every frame, its logits, and all keys and values."""

    engine: Engine
    bits: dict[Future[SegmentAudio], Bits] = field(default_factory=dict)

    def __post_init__(self) -> None:
        batch = self.engine._slots.batch
        slow = self.engine._models.dual_ar.slow
        logits, step, release = type(slow).logits, batch.step, batch.release
        native = self.engine._models.dual_ar.native
        steps: list[list[SlotRequest]] = []

        def traced_step(bucket: int) -> int:
            steps.append(batch.running)
            number = step(bucket)
            made = steps.pop()
            if native is None:
                return number
            # Compiled frames keep their logits to themselves; what each draws shows them.
            states = native.states(batch.state.bucket(bucket))
            for one in made:
                found = [states[one.slot].clone(), batch.state.columns[one.slot].clone()]
                self.bits.setdefault(one.future, []).extend(found)
            return number

        def traced_logits(hidden: Tensor) -> Tensor:
            found = logits(slow, hidden)
            for one in steps[0] if steps else []:
                rows = self.bits.setdefault(one.future, [])
                rows += [hidden[one.slot].clone(), found[one.slot].clone()]
            return found

        def traced_release(request: SlotRequest) -> None:
            slot = request.slot
            if slot is not None:
                end, cache = int(batch.state.position[slot]), batch.state.cache
                rows = self.bits.setdefault(request.future, [])
                rows += [t[:, slot, :, :end].clone() for t in (cache.keys, cache.values)]
            release(request)

        batch.step, batch.release = traced_step, traced_release  # type: ignore[method-assign]
        slow.logits = traced_logits  # type: ignore[method-assign]  # until the engine is closed

    def of(self, future: Future[SegmentAudio]) -> tuple[SegmentAudio, Bits]:
        """Wait for a request; return its answer and what was traced of it."""
        return future.result(120), self.bits[future]


Begin = Callable[[LoadedModels], Traces]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Start traced strict engines, closed and untraced when the test ends."""
    traced: list[Traces] = []

    def start(models: LoadedModels) -> Traces:
        if traced:
            close(traced.pop())
        traced.append(Traces(Engine(STRICT, models)))
        return traced[-1]

    yield start
    close(traced.pop())


def close(traces: Traces) -> None:
    traces.engine.close()
    del traces.engine._models.dual_ar.slow.logits


@pytest.fixture(
    scope="module",
    params=[
        ("golden", "float32", "off"),
        ("golden", "bfloat16", "off"),
        ("golden", "int8", "off"),
        # Sizes at which one row alone and one of a few are multiplied in another order.
        pytest.param(("mid", "float32", "off"), marks=pytest.mark.thorough),
        pytest.param(("mid", "bfloat16", "off"), marks=pytest.mark.thorough),
        pytest.param(("golden", "float32", "auto"), marks=pytest.mark.compiler),
        pytest.param(
            ("mid", "bfloat16", "auto"), marks=[pytest.mark.compiler, pytest.mark.thorough]
        ),
        pytest.param(("golden", "int8", "auto"), marks=pytest.mark.compiler),
        pytest.param(("mid", "int8", "auto"), marks=[pytest.mark.compiler, pytest.mark.thorough]),
    ],
    ids="-".join,
)
def models(request: pytest.FixtureRequest) -> LoadedModels:
    name, dtype, kernels = request.param
    if name == "golden":
        return models_of(replace(STRICT, dtype=dtype, kernels=kernels))
    return preset_models(name, device="cpu", dtype=dtype, kernels=kernels)


MINE = spec("The same words each time.", voice(1, 40), seed=77, max_frames=FRAMES)
AFTER = replace(
    MINE, history=(Turn("What was said before.", voice(5, 30).codes), Turn("Next.", voice(6).codes))
)


def others(number: int, *, voice_frames: int) -> list[RenderSpec]:
    """Return different requests of three voices and different lengths."""
    texts = [f"Sentence {n} " * (1 + n % 4) for n in range(number)]
    voices = [voice(n, voice_frames + n) for n in range(3)]
    return [spec(text, voices[n % 3], seed=n, max_frames=3 + n % 6) for n, text in enumerate(texts)]


def assert_same(found: tuple[SegmentAudio, Bits], expected: tuple[SegmentAudio, Bits]) -> None:
    assert np.array_equal(found[0].codes, expected[0].codes)
    assert np.array_equal(found[0].audio, expected[0].audio)
    assert len(found[1]) == len(expected[1]) == 2 * FRAMES + 2
    assert all(torch.equal(a, b) for a, b in zip(found[1], expected[1], strict=True))


def with_mine_at(place: int, specs: Sequence[RenderSpec]) -> list[RenderSpec]:
    return [*specs[:place], MINE, *specs[place:]]


def test_the_bits_are_the_same_in_every_arrangement(models: LoadedModels, begin: Begin) -> None:
    traces = begin(models)
    alone = traces.of(traces.engine.submit(MINE))
    assert alone[0].codes.shape[1] == FRAMES

    for place in (0, SLOTS - 1):  # among the same neighbours, in other slots
        specs = with_mine_at(place, others(SLOTS - 1, voice_frames=10))
        futures = [traces.engine.submit(one) for one in specs]
        assert_same(traces.of(futures[place]), alone)
        for future in futures:
            future.result(120)

    # Beside neighbours so long that a second split of positions is attended, joining midway.
    futures = [traces.engine.submit(one) for one in others(6, voice_frames=300)]
    futures[0].result(120)
    mine = traces.engine.submit(MINE)
    futures += [traces.engine.submit(one) for one in others(4, voice_frames=10)]
    assert_same(traces.of(mine), alone)
    for future in futures:
        future.result(120)

    resumed = begin(models)  # another engine, whose prefix is computed anew
    assert_same(resumed.of(resumed.engine.submit(MINE)), alone)


def test_the_bits_are_the_same_behind_a_history(models: LoadedModels, begin: Begin) -> None:
    traces = begin(models)
    alone = traces.of(traces.engine.submit(AFTER))
    without = traces.of(traces.engine.submit(MINE))
    assert not torch.equal(alone[1][0], without[1][0]), "the history is heard"

    specs = [*others(3, voice_frames=10), AFTER, *others(2, voice_frames=300)]
    futures = [traces.engine.submit(one) for one in specs]
    assert_same(traces.of(futures[3]), alone)
    for future in futures:
        future.result(120)


def test_the_bits_are_the_same_after_memory_ran_out(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = begin(models_of(STRICT))
    alone = traces.of(traces.engine.submit(MINE))
    batch, tries = traces.engine._slots.batch, []
    step = batch.step

    def fail_once(bucket: int) -> int:
        tries.append(True)
        if len(tries) == 4:
            traces.bits.clear()
            raise torch.OutOfMemoryError("no memory")
        return step(bucket)

    monkeypatch.setattr(batch, "step", fail_once)
    specs = with_mine_at(2, others(5, voice_frames=10))
    futures = [traces.engine.submit(one) for one in specs]

    take, bits = traces.of(futures[2])

    assert len(tries) > 4
    assert np.array_equal(take.codes, alone[0].codes)
    assert all(torch.equal(a, b) for a, b in zip(bits[-2:], alone[1][-2:], strict=True))


def test_without_strict_mode_codes_are_equal_where_logits_agree(start: Start) -> None:
    """The golden model's products are small: one row's bits do not depend on the other rows."""
    engine = start(slots=SLOTS, max_positions=1024, dtype="float32")
    alone = [engine.render(MINE)]
    takes = render(engine, with_mine_at(7, others(SLOTS - 1, voice_frames=10)))
    assert_same_codes([takes[7]], alone)
    takes = render(engine, with_mine_at(6, others(6, voice_frames=300)))
    assert_same_codes([takes[6]], alone)
