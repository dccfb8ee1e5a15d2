"""Start requests: prompts in packed passes behind kept prefixes, then their first frames."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch
from torch import Tensor

from synth.engine.device import to_device
from synth.engine.errors import InvalidSpecError
from synth.engine.model.decode import StepOutput, make_frame
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR, Span

# Positions of several prompts in one pass. A pass of fewer than about 180 costs a GPU as much as
# one of 180; above 512 nothing is gained by more, and streams that run wait longer for their frame.
MAX_PACK_POSITIONS = 512
_MADE = ("columns", "frame", "status", "active")  # what a first frame changes in a state


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


@torch.inference_mode()
def start_slots(
    model: DualAR,
    state: DecodeState,
    starts: Sequence[SlotStart],
    prefixes: PrefixCache | None = None,
) -> StepOutput:
    """Give assigned slots their prefixes, run their own parts and draw each one's first frame.

    A prefix that is not kept is run once, alone, and kept; however many slots of the call begin
    with it. Own parts go through in packs. The first frame neither looks at the repetition window
    nor enters it. A strict state's prompts and first frames are run one by one. Slots not named are
    left alone. On an error no slot has been started: those of the call are to be released.

    Args:
        state: the whole state; `assign` was called with the positions of both parts.

    Returns:
        The frame, B = the state's slots; `made` is True for the slots named.

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
    computed: dict[str, KeptPrefix] = {}
    for start in starts:
        if start.prefix_positions:
            _place_prefix(model, state, start, prefixes, computed)
    packs = _packs(starts, most=0 if state.strict else MAX_PACK_POSITIONS)
    hidden = [_run_pack(model, state, pack) for pack in packs]
    for start in starts:
        state.position[start.slot].fill_(start.positions)  # setting it would wait for the device
    nobody, none_drawn = torch.zeros_like(state.active), torch.zeros_like(state.frame)
    output = StepOutput(
        state.columns.clone(), nobody, nobody.clone(), none_drawn, none_drawn.clone()
    )
    groups = zip(packs, hidden, strict=True) if state.strict else [(starts, torch.cat(hidden))]
    for group, last in groups:
        _first_frames(model, state, [start.slot for start in group], last, output)
    return output


def _place_prefix(
    model: DualAR,
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
        last = _run_pack(model, state, [SlotStart(start.slot, start.prefix)])
        # What is not finite fails its own requests and must not outlive them: the last position has
        # attended to all others.
        if not bool(last.isfinite().all()):
            return
        kept = computed[key] = KeptPrefix(*state.cache.read_prefix(start.slot, positions))
        prefixes.put(key, kept)
    elif kept.keys.shape[2] != positions:
        raise InvalidSpecError(
            f"Prefix {key} has {kept.keys.shape[2]} positions and was given with {positions}: two "
            "prefixes have one name."
        )
    else:
        state.cache.write_prefix(start.slot, kept.keys, kept.values)
    state.note_prefix(start.slot, kept.number, positions)


def _packs(starts: Sequence[SlotStart], most: int) -> list[list[SlotStart]]:
    """Return the starts in their order, as many together as own `most` positions; none empty."""
    packs: list[list[SlotStart]] = []
    positions = 0
    for start in starts:
        positions += start.own.shape[1]
        if not packs or positions > most:
            packs.append([])
            positions = start.own.shape[1]
        packs[-1].append(start)
    return packs


def _run_pack(model: DualAR, state: DecodeState, pack: Sequence[SlotStart]) -> Tensor:
    """Run own parts through in one pass; return the hidden state behind each, [n, width]."""
    columns = torch.cat([start.own for start in pack], dim=1).T
    spans = [Span(start.slot, start.prefix_positions, start.own.shape[1]) for start in pack]
    ends = torch.tensor([span.length for span in spans]).cumsum(0) - 1
    rows = to_device(ends, model.device)
    return model.slow.prefill(to_device(columns, model.device), spans, state.cache, rows=rows)


def _first_frames(
    model: DualAR,
    state: DecodeState,
    slots: Sequence[int],
    hidden: Tensor,
    output: StepOutput,
) -> None:
    """Draw the first frames of these slots alone, from hidden [n, width]; fill in `output`."""
    rows = to_device(torch.tensor(slots), model.device)
    # Copies of the slots, as a state without caches of its own; of a frame's noise and history
    # those of the first frame alone.
    copies = {
        name: value[rows]
        for name, value in vars(state).items()
        if isinstance(value, Tensor) and name not in ("history", "words")
    }
    copies["active"] = torch.ones_like(copies["active"])
    copies["words"] = state.words[rows, :1]
    copies["history"] = state.history.new_zeros(len(slots), 2, state.history.shape[2])
    part = replace(
        state,
        **copies,  # type: ignore[arg-type]  # the names are those of the tensors
        fast_cache=state.fast_cache.first(len(slots)),
        host_positions=[0] * len(slots),
        _buckets={},
    )
    made = make_frame(model, part, hidden, part.active.clone(), is_first=True)
    for name in _MADE:
        getattr(state, name)[rows] = getattr(part, name)
    state.history[rows, 0] = part.history[:, 0]
    for name in StepOutput.__dataclass_fields__:
        getattr(output, name)[rows] = getattr(made, name)
