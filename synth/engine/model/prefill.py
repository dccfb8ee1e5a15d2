"""Start requests: prompts in packed passes behind kept prefixes, then their first frames."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch
from torch import Tensor

from synth.engine.device import to_device
from synth.engine.errors import InvalidSpecError
from synth.engine.model.decode import StepOutput, make_frame
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR, Span
from synth.engine.model.sampling import NoiseSource

# Positions of several prompts in one pass. A pass of fewer than about 180 costs a GPU as much as
# one of 180; above 512 nothing is gained by more, and streams that run wait longer for their frame.
MAX_PACK_POSITIONS = 512
_MADE = ("columns", "frame", "status", "active")  # what a first frame changes in a state


@dataclass(frozen=True, slots=True)
class PrefixKeys:
    """Name prefixes by what their keys and values depend on: the columns and how they are computed.

    `form` says the latter: the model, the numbers it computes with, the cache's, and whether
    attention is the strict one. The rotary table follows from the model.
    """

    form: str

    @classmethod
    def of(cls, model_fingerprint: str, model: DualAR, state: DecodeState) -> PrefixKeys:
        """Return the names for one model and the slots that the prefixes are copied into."""
        device = model.device.type
        numbers = f"{model.dtype} {model.form.value} {model.weight_format} {state.cache.keys.dtype}"
        return cls(f"{model_fingerprint} {device} {numbers} strict={state.strict}")

    def key(self, prefix: Tensor) -> str:
        """Return the name of a prefix, int64 [1 + K, S]: a digest of all its rows and the form."""
        digest = hashlib.sha256(f"{self.form} {tuple(prefix.shape)}\n".encode())
        digest.update(prefix.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


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
class SlotPrompt:
    """Name a slot's prompt: columns int64 [1 + K, S] behind `start` positions it holds already."""

    slot: int
    columns: Tensor
    start: int = 0

    @property
    def positions(self) -> int:
        return self.columns.shape[1]


@dataclass(frozen=True, slots=True, eq=False)
class SlotStart:
    """Name an assigned slot's prompt in two parts, int64 [1 + K, S] each.

    `prefix` is what other requests begin with as well and `prefix_key` its name among them, of
    `PrefixKeys`; without a name it is computed for this slot alone. `own` is the rest.
    """

    slot: int
    own: Tensor
    prefix: Tensor | None = None
    prefix_key: str | None = None

    @property
    def prefix_positions(self) -> int:
        return 0 if self.prefix is None else self.prefix.shape[1]


@torch.inference_mode()
def start_slots(
    model: DualAR,
    state: DecodeState,
    starts: Sequence[SlotStart],
    prefixes: PrefixCache | None = None,
    noise: NoiseSource | None = None,
) -> StepOutput:
    """Give assigned slots their prefixes, run their own parts and draw each one's first frame.

    A prefix that is not kept is run once, alone, and kept; however many slots of the call begin
    with it. On an error no slot has been started: those of the call are to be released.

    Args:
        state: the whole state; `assign` was called with the positions of both parts.
        noise: the state's own counter-based numbers when None.

    Returns:
        The frame, B = the state's slots; `made` is True for the slots named.

    Raises:
        InvalidSpecError: a slot's own part is empty, or was assigned another number of positions.
    """
    for start in starts:
        if not start.own.shape[1]:
            raise InvalidSpecError("A prompt needs a column of its own behind what it begins with.")
        positions = start.prefix_positions + start.own.shape[1]
        if state.host_positions[start.slot] != positions:
            raise InvalidSpecError(
                f"Slot {start.slot} was assigned {state.host_positions[start.slot]} positions; "
                f"its prompt has {positions}."
            )
    computed: dict[str, KeptPrefix] = {}
    for start in starts:
        if start.prefix_positions:
            _place_prefix(model, state, start, prefixes, computed)
    prompts = [SlotPrompt(start.slot, start.own, start.prefix_positions) for start in starts]
    return prefill(model, state, prompts, noise)


@torch.inference_mode()
def prefill(
    model: DualAR,
    state: DecodeState,
    prompts: Sequence[SlotPrompt],
    noise: NoiseSource | None = None,
) -> StepOutput:
    """Run assigned slots' prompts through in packs and draw each one's first frame.

    Slots not named are left alone. The first frame neither looks at the repetition window nor
    enters it. A strict state's prompts and first frames are run one by one.

    Returns:
        The frame, B = the state's slots; `made` is True for the slots named.
    """
    most = 0 if state.strict else MAX_PACK_POSITIONS
    hidden = [_run_pack(model, state, pack) for pack in _packs(prompts, most)]
    for prompt in prompts:
        end = prompt.start + prompt.positions
        state.position[prompt.slot].fill_(end)  # setting it would wait for the device
        state.host_positions[prompt.slot] = end
    slots = [prompt.slot for prompt in prompts]
    nobody, none_drawn = torch.zeros_like(state.active), torch.zeros_like(state.frame)
    output = StepOutput(
        state.columns.clone(), nobody, nobody.clone(), none_drawn, none_drawn.clone()
    )
    groups = [([slot], last) for slot, last in zip(slots, hidden, strict=False)]
    for group, last in groups if state.strict else [(slots, torch.cat(hidden))]:
        _first_frames(model, state, group, last, noise, output)
    return output


def _place_prefix(
    model: DualAR,
    state: DecodeState,
    start: SlotStart,
    prefixes: PrefixCache | None,
    computed: dict[str, KeptPrefix],
) -> None:
    """Put a slot's prefix into its cache: a kept one, one of this call, or one computed now."""
    assert start.prefix is not None
    key = start.prefix_key
    kept = None if key is None else computed.get(key)
    if kept is None and key is not None and prefixes is not None:
        kept = prefixes.get(key)
    if kept is not None:
        if kept.keys.shape[2] != start.prefix_positions:
            raise InvalidSpecError(
                f"Prefix {key} has {kept.keys.shape[2]} positions and was given with "
                f"{start.prefix_positions}: two prefixes have one name."
            )
        state.cache.write_prefix(start.slot, kept.keys, kept.values)
        state.note_prefix(start.slot, kept.number, start.prefix_positions)
        return
    last = _run_pack(model, state, [SlotPrompt(start.slot, start.prefix)])
    # What is not finite fails its own requests and must not outlive them: the last position has
    # attended to all others.
    if key is not None and bool(last.isfinite().all()):
        kept = KeptPrefix(*state.cache.read_prefix(start.slot, start.prefix_positions))
        state.note_prefix(start.slot, kept.number, start.prefix_positions)
        computed[key] = kept
        if prefixes is not None:
            prefixes.put(key, kept)


def _packs(prompts: Sequence[SlotPrompt], most: int) -> Iterator[list[SlotPrompt]]:
    """Yield the prompts in their order, as many together as have `most` positions; never none."""
    pack: list[SlotPrompt] = []
    for prompt in prompts:
        if pack and sum(each.positions for each in pack) + prompt.positions > most:
            yield pack
            pack = []
        pack.append(prompt)
    if pack:
        yield pack


def _run_pack(model: DualAR, state: DecodeState, pack: Sequence[SlotPrompt]) -> Tensor:
    """Run prompts through in one pass; return the hidden state behind each, [n, width]."""
    columns = torch.cat([prompt.columns for prompt in pack], dim=1).T
    spans = [Span(prompt.slot, prompt.start, prompt.positions) for prompt in pack]
    ends = torch.tensor([span.length for span in spans]).cumsum(0) - 1
    rows = to_device(ends, model.device)
    return model.slow.prefill(to_device(columns, model.device), spans, state.cache, rows=rows)


def _first_frames(
    model: DualAR,
    state: DecodeState,
    slots: Sequence[int],
    hidden: Tensor,
    noise: NoiseSource | None,
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
    made = make_frame(model, part, hidden, part.active.clone(), noise, is_first=True)
    for name in _MADE:
        getattr(state, name)[rows] = getattr(part, name)
    state.history[rows, 0] = part.history[:, 0]
    for name in StepOutput.__dataclass_fields__:
        getattr(output, name)[rows] = getattr(made, name)
