"""Start requests: run prompts but for their last columns, in packed passes behind kept prefixes."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import numpy as np
import torch
from torch import Tensor

from synth.engine.device import copy_to, to_device
from synth.engine.errors import InvalidSpecError
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import KERNELS, DualAR, Span
from synth.engine.model.kv_cache import KVCache
from synth.engine.model.layers import PASS_ALIGNMENT

# Positions of several prompts in one pass. A pass of fewer than about 180 costs a GPU as much as
# one of 180; above 512 nothing is gained by more, and streams that run wait longer for their frame.
MAX_PACK_POSITIONS = 512
PASS_SIZES = (64, 128, 256, 512)  # positions of passes whose shapes are fixed


@dataclass(frozen=True, slots=True, eq=False)
class KeptPrefix:
    """Hold a prefix's keys and values on the device, [L, KV, S, D] each.

    `number` is this copy's alone: slots filled from it are equal in every bit, which those of a
    prefix that was forgotten and computed again need not be.
    """

    keys: Tensor
    values: Tensor
    number: int = field(default_factory=count(1).__next__)

    @property
    def num_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def is_finite(self) -> bool:
        """Say whether all numbers are finite; waits for the device."""
        sums = [each.sum(dtype=torch.float32) for each in (self.keys, self.values)]
        return bool(torch.stack(sums).isfinite().all())


class PrefixCache:
    """Keep prefixes by their key within a number of bytes; the least recently used goes first.

    Only the thread that owns the device calls it. Slots get copies, so that a prefix may be
    forgotten while speech behind it is made.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.num_bytes, self.hits, self.misses = 0, 0, 0
        self._kept: OrderedDict[str, KeptPrefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: str) -> bool:
        """Say whether a prefix is kept; neither counted nor a use."""
        return key in self._kept

    def get(self, key: str) -> KeptPrefix | None:
        """Return a prefix and count a hit, or None and count a miss."""
        kept = self._kept.get(key)
        if kept is None:
            self.misses += 1
            return None
        self.hits += 1
        self._kept.move_to_end(key)
        return kept

    def put(self, key: str, prefix: KeptPrefix) -> None:
        """Keep a prefix in place of the least recently used ones; one above the budget is not."""
        self.evict(key)
        if prefix.num_bytes > self.max_bytes:
            return
        while self.num_bytes + prefix.num_bytes > self.max_bytes:
            self.evict(next(iter(self._kept)))
        self._kept[key] = prefix
        self.num_bytes += prefix.num_bytes

    def evict(self, key: str) -> None:
        """Free a prefix; one that is not kept is no error."""
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.num_bytes -= kept.num_bytes

    def clear(self) -> None:
        """Free all prefixes, as when the device has no memory left."""
        self._kept.clear()
        self.num_bytes = 0


@dataclass(frozen=True, slots=True, eq=False)
class SlotStart:
    """Name an assigned slot's prompt in two parts, int64 [1 + K, S] each.

    `prefix` is what other requests begin with as well and `prefix_key` its name among them, which
    no prefix goes without; `own` is the rest.
    """

    slot: int
    own: Tensor
    prefix: Tensor | None = None
    prefix_key: str = ""

    @property
    def prefix_positions(self) -> int:
        return 0 if self.prefix is None else self.prefix.shape[1]

    @property
    def positions(self) -> int:
        return self.prefix_positions + self.own.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Hold a part of a prompt that goes through in one pass: its columns [1 + K, n] and place."""

    columns: Tensor
    span: Span


@dataclass(frozen=True, slots=True, eq=False)
class PassInputs:
    """Hold what a pass of kernels, or a captured one, reads: `numbers` int64 in one piece.

    Views of it are columns [P, 1 + K], and slots and positions [P]; a position is -1 where a pass
    has room that is not used. PASS_ALIGNMENT neighbours are consecutive positions of one stream.
    """

    numbers: Tensor
    columns: Tensor
    slots: Tensor
    positions: Tensor

    @classmethod
    def allocate(cls, size: int, height: int, device: torch.device) -> PassInputs:
        """Return inputs of a pass of `size` columns of `height` numbers in which nothing is run."""
        numbers = torch.zeros(size * (height + 2), dtype=torch.int64, device=device)
        columns, slots, positions = torch.split(numbers, [size * height, size, size])
        positions.fill_(-1)
        return cls(numbers, columns.view(size, height), slots, positions)

    def fill(self, pieces: Sequence[Piece]) -> None:
        """Write pieces of prompts, which have room together."""
        size, height = self.columns.shape
        numbers = np.zeros(size * (height + 2), np.int64)
        columns, slots, positions = np.split(numbers, [size * height, size * (height + 1)])
        columns, row = columns.reshape(size, height), 0
        positions[:] = -1
        for piece in pieces:
            span, end = piece.span, row + piece.span.length
            columns[row:end] = piece.columns.numpy().T
            positions[row:end] = range(span.start, span.end)
            slots[row : row + aligned(span.length)] = span.slot
            row += aligned(span.length)
        copy_to(self.numbers, torch.from_numpy(numbers))


def aligned(length: int) -> int:
    """Return the positions of a pass that so many of a stream take."""
    return -(-length // PASS_ALIGNMENT) * PASS_ALIGNMENT


@torch.inference_mode()
def run_inputs(model: DualAR, cache: KVCache, inputs: PassInputs) -> None:
    """Run a pass over inputs on the device; its shapes depend on nothing else.

    With one number of columns this can be captured. Without kernels all are of one stream.
    """
    arguments = (inputs.columns, inputs.positions, inputs.slots, cache)
    if model.has_kernels:
        importlib.import_module(KERNELS).fill_prompts(model, *arguments)
    else:
        model.slow.fill_slot(*arguments)


@dataclass(frozen=True, slots=True, eq=False)
class PromptPass:
    """Hold a pass of one size: `run` computes it over its inputs."""

    inputs: PassInputs
    run: Callable[[], None]

    @classmethod
    def eager(cls, model: DualAR, state: DecodeState, size: int) -> PromptPass:
        inputs = PassInputs.allocate(size, state.columns.shape[1], model.device)
        return cls(inputs, partial(run_inputs, model, state.cache, inputs))


class PromptRunner:
    """Run pieces of prompts into a state's cache: in passes of given sizes, or of any."""

    def __init__(
        self, model: DualAR, state: DecodeState, passes: Mapping[int, PromptPass] | None = None
    ) -> None:
        self._model, self._state = model, state
        self._passes = dict(sorted((passes or {}).items()))
        # Columns that go through together at most; a strict stream's prompt goes through alone.
        self.most = max(self._passes, default=MAX_PACK_POSITIONS)
        self.goes_alone = state.strict or bool(self._passes and not model.has_kernels)

    def run(self, pieces: Sequence[Piece]) -> None:
        """Run a pass of pieces of different streams, of at most `most` aligned positions."""
        size = sum(aligned(piece.span.length) for piece in pieces)
        if self._passes or self._model.has_kernels:
            fitting = [one for most, one in self._passes.items() if most >= size]
            one = fitting[0] if fitting else PromptPass.eager(self._model, self._state, size)
            one.inputs.fill(pieces)
            one.run()
        else:
            columns = torch.cat([piece.columns for piece in pieces], dim=1).T
            spans = [piece.span for piece in pieces]
            columns = to_device(columns, self._model.device)
            self._model.slow.prefill(columns, spans, self._state.cache, with_states=False)


@torch.inference_mode()
def start_slots(
    model: DualAR,
    state: DecodeState,
    starts: Sequence[SlotStart],
    prefixes: PrefixCache | None = None,
    runner: PromptRunner | None = None,
) -> None:
    """Let assigned slots run: the next step makes their first frames.

    Each slot gets its prefix and the rest of its prompt but for the last column, which the next
    step takes in place of a frame. A prefix that is not kept is run once, alone, and kept; however
    many slots of the call begin with it. Own parts go through in packs, a strict state's one by
    one. Slots not named are left alone. On an error no slot has been started: those of the call
    are to be released.

    Args:
        state: the whole state; `assign` was called with the positions of both parts.
        runner: of this state; without it passes are computed eagerly.

    Raises:
        InvalidSpecError: a slot's own part is empty, its prefix has no name, or it was assigned
            another number of positions.
    """
    for start in starts:
        if not start.own.shape[1]:
            raise InvalidSpecError("A prompt needs a column of its own behind what it begins with.")
        if start.prefix_positions and not start.prefix_key:
            raise InvalidSpecError(
                "A prefix needs a name: all those without one would be the same."
            )
        if state.host_positions[start.slot] != start.positions:
            raise InvalidSpecError(
                f"Slot {start.slot} was assigned {state.host_positions[start.slot]} positions; "
                f"its prompt has {start.positions}."
            )
    prefixes = PrefixCache(0) if prefixes is None else prefixes
    runner = PromptRunner(model, state) if runner is None else runner
    computed: dict[str, KeptPrefix] = {}
    for start in starts:
        if start.prefix_positions:
            _place_prefix(runner, state, start, prefixes, computed)
    for pack in _packs(starts, runner):
        runner.run(pack)
    columns = torch.stack([start.own[:, -1] for start in starts])
    state.begin([start.slot for start in starts], columns)


def _place_prefix(
    runner: PromptRunner,
    state: DecodeState,
    start: SlotStart,
    prefixes: PrefixCache,
    computed: dict[str, KeptPrefix],
) -> None:
    """Put a slot's prefix into its cache: a kept one, one of this call, or one computed now."""
    assert start.prefix is not None
    key, positions = start.prefix_key, start.prefix_positions
    kept = computed.get(key) or prefixes.get(key)
    if kept is None:
        for piece in _pieces(start.slot, start.prefix, 0, runner.most):
            runner.run([piece])
        kept = KeptPrefix(*state.cache.read_prefix(start.slot, positions))
        # What is not finite fails its own requests and must not outlive them.
        if not kept.is_finite():
            return
        computed[key] = kept
        prefixes.put(key, kept)
    elif kept.keys.shape[2] != positions:
        raise InvalidSpecError(
            f"Prefix {key} has {kept.keys.shape[2]} positions and was given with {positions}: two "
            "prefixes have one name."
        )
    else:
        state.cache.write_prefix(start.slot, kept.keys, kept.values)
    state.note_prefix(start.slot, kept.number, positions)


def _pieces(slot: int, columns: Tensor, start: int, most: int) -> list[Piece]:
    """Cut columns [1 + K, S] of a stream from position `start` on; no part has more than `most`."""
    parts = torch.split(columns, most, dim=1) if columns.shape[1] else ()
    return [
        Piece(part, Span(slot, start + nth * most, part.shape[1])) for nth, part in enumerate(parts)
    ]


def _packs(starts: Sequence[SlotStart], runner: PromptRunner) -> list[list[Piece]]:
    """Return own parts without their last columns, in their order, as many together as may be."""
    packs: list[list[Piece]] = []
    most = 0 if runner.goes_alone else runner.most
    positions = 0
    for start in starts:
        own = start.own[:, :-1]
        for piece in _pieces(start.slot, own, start.prefix_positions, runner.most):
            positions += aligned(piece.span.length)
            if not packs or positions > most:
                packs.append([])
                positions = aligned(piece.span.length)
            packs[-1].append(piece)
    return packs
