"""Arrange by chance what happens between the frames of a batch, the same for every runner."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from torch import Tensor

from lab.golden.models import Loaded
from synth.contract import Sampling
from synth.engine.model.decode import StepOutput, StepRunner
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.prefill import SlotStart, start_slots

SLOTS = 5

Operation = Callable[[StepRunner, DecodeState], StepOutput | None]


class Arrangement:
    """Say by chance what happens between two frames: joins, cancels and moves to the front."""

    def __init__(self, loaded: Loaded, prompts: list[Tensor], seed: int) -> None:
        self._loaded, self._prompts, self._random = loaded, prompts, random.Random(seed)
        self._used: list[bool] = [False] * SLOTS
        self.kinds: set[str] = set()

    def operations(self) -> Iterator[Operation]:
        """Yield what to do with a runner's state before the next frame, then the frame."""
        choice, free = self._random.random(), self._used.count(False)
        if choice < 0.3 and free:
            yield self._join(self._used.index(False))
        elif choice < 0.45 and free < SLOTS:
            yield self._cancel(self._chosen())
        elif choice < 0.6 and 0 < free < SLOTS and self._used.index(False) < self._last():
            yield self._move(self._last(), self._used.index(False))
        yield self._step()

    def _join(self, slot: int) -> Operation:
        sampling = Sampling(seed=self._random.randrange(99), max_frames=self._random.randint(1, 30))
        prompt = self._random.choice(self._prompts)
        self._used[slot] = True
        self.kinds.add("join")

        def join(runner: StepRunner, state: DecodeState) -> None:
            state.assign(slot, sampling, prompt_positions=prompt.shape[1])
            starts = [SlotStart(slot, prompt)]
            start_slots(self._loaded.model, state, starts, runner=runner.prompts)

        return join

    def _cancel(self, slot: int) -> Operation:
        self._used[slot] = False
        self.kinds.add("cancel")
        return lambda runner, state: state.release(slot)

    def _move(self, source: int, target: int) -> Operation:
        self._used[source], self._used[target] = False, True
        self.kinds.add("move")
        return lambda runner, state: state.move(source, target)

    def _step(self) -> Operation:
        needed = self._last() + 1
        self.kinds.add(f"{needed} slots")

        def step(runner: StepRunner, state: DecodeState) -> StepOutput:
            return runner.step(next(size for size in runner.buckets if size >= needed))

        return step

    def _chosen(self) -> int:
        return self._random.choice([slot for slot, used in enumerate(self._used) if used])

    def _last(self) -> int:
        return max((slot for slot, used in enumerate(self._used) if used), default=0)
