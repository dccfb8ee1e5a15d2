"""Stand in for a device's graphs on a CPU: record every operation of a step, and repeat them.

What is repeated are the operations on the very tensors of the recording, as a graph does: values
that the host knew then are frozen, a tensor put in another's place is not noticed, and results are
written where those of the recording were. Before a replay these are poisoned, so that nothing is
read that the replay has not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from synth.engine.model.decode import Captured, StepOutput

WARM_UP_RUNS = 2
T = TypeVar("T")


@dataclass(frozen=True)
class Operation:
    """Hold an operation with its arguments, and its results that have memory of their own."""

    function: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Tensor | None]  # None for a view, or what the operation changed in place


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Record operations while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.operations: list[Operation] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        """Run an operation and keep it."""
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        taken = {_memory(value) for value in tensors((args, kwargs))}
        results = [None if _memory(one) in taken else one for one in tensors(result)]
        self.operations.append(Operation(func, args, kwargs, results))
        return result


def launches(recorder: Recorder) -> list[Operation]:
    """Return the operations that a device would be given: no views, and no memory alone."""
    memory = ("aten.empty", "aten.new_empty", "aten.pin_memory", "aten._pin_memory")
    return [
        one
        for one in recorder.operations
        if not str(one.function).startswith(memory)
        and (one.function._schema.is_mutable or any(r is not None for r in one.results))  # type: ignore[attr-defined]  # an operation of torch's
    ]


@dataclass
class StandInGraphs:
    """Capture by recording; `fails` runs before every capture and may raise.

    `slots` are those of the steps whose captures were begun, in their order; `passes` counts those
    of other work.
    """

    fails: Callable[[int], None] = lambda slots: None
    slots: list[int] = field(default_factory=list)
    passes: int = 0
    replays: int = 0

    def capture(self, run: Callable[[], T]) -> Captured[T]:
        """Capture a step or a pass; see GraphBackend."""
        for _ in range(WARM_UP_RUNS):
            output = run()
        if isinstance(output, StepOutput):
            self.slots.append(output.columns.shape[0])
            self.fails(self.slots[-1])
        else:
            self.passes += 1
        with Recorder() as recorder:
            output = run()
        # None reads a value, or has a shape that depends on one: that would wait for a device.
        asks = ("_local_scalar_dense", "nonzero", "masked_select", "equal.")
        assert not [one for one in recorder.operations if any(n in str(one.function) for n in asks)]
        replay = partial(self._replay, recorder.operations)
        replay()
        return Captured(output, replay, len(recorder.operations))

    def _replay(self, operations: list[Operation]) -> None:
        with torch.inference_mode():
            for operation in operations:
                for result in operation.results:
                    if result is not None:
                        poison(result)
            for operation in operations:
                found = tensors(operation.function(*operation.args, **operation.kwargs))
                for result, new in zip(operation.results, found, strict=True):
                    if result is not None:
                        result.copy_(new)
        self.replays += 1


def poison(tensor: Tensor) -> None:
    """Fill a tensor with what no step gives."""
    if tensor.dtype.is_floating_point:
        tensor.fill_(float("nan"))
    elif tensor.dtype is torch.bool:
        tensor.logical_not_()
    else:
        tensor.fill_(0)
        tensor.sub_(10**6)


def tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in arguments or results, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def _memory(tensor: Tensor) -> int:
    """Return where a tensor's numbers are."""
    if tensor.layout is not torch.strided:
        return id(tensor)
    return tensor.untyped_storage().data_ptr()
