"""Hold everything that changes while a batch of streams is decoded: one slot per stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from synth.contract import MAX_TOP_K, FinishReason, Sampling
from synth.engine.device import to_device
from synth.engine.errors import InvalidSpecError
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.kv_cache import Cache, FrameCache, KVCache
from synth.engine.model.layers import SPLIT_POSITIONS
from synth.engine.model.sampling import (
    DEFAULT_MAX_TOP_K,
    RAS_WINDOW,
    NoiseSource,
    check_sampling,
)

RUNNING, ENDED, FRAME_LIMIT, CONTEXT_FULL, FAILED = range(5)
FINISH_REASONS = {
    ENDED: FinishReason.END,
    FRAME_LIMIT: FinishReason.FRAME_LIMIT,
    CONTEXT_FULL: FinishReason.CONTEXT_FULL,
}
_LENGTH_STEP = 64  # attention runs over a multiple of this many positions
# `status` and `frame` come first: they are what the host looks at, in one copy.
INTEGERS = ("status", "frame", "position", "frame_limit", "limit_status", "noise_offset", "seed",
            "top_k", "prefix", "prefix_positions")  # fmt: skip
FLOATS = ("temperature", "top_p")


@dataclass(eq=False)
class DecodeState:
    """Hold the slots of one batch; tensors are changed in place and never replaced.

    All tensors are on the model's device and begin with the slots B. `decode_step` reads and writes
    tensors only, so it can be captured as a graph when it is given a fixed `length`; what the host
    knows besides (`host_...`) is kept by the functions that are not captured. The tensors of one
    number per slot are rows of `rows`.
    """

    cache: KVCache
    fast_cache: FrameCache
    columns: Tensor  # int64 [B, 1 + K], the newest ones, input of the next step
    history: Tensor  # int32 [B, F, 1 + K], all frames made; the row after the last is scratch
    window: Tensor  # int64 [B, RAS_WINDOW], tokens chosen from frame 2 on
    position: Tensor  # int64 [B], where the newest column will be written
    frame: Tensor  # int64 [B], frames made; 0: the newest column is the last one of the prompt
    frame_limit: Tensor  # int64 [B]
    limit_status: Tensor  # int64 [B], what reaching the limit is called
    noise_offset: Tensor  # int64 [B], frames made for earlier batches of the same request
    seed: Tensor  # int64 [B]
    temperature: Tensor  # float32 [B]
    top_p: Tensor  # float32 [B]
    top_k: Tensor  # int64 [B]
    prefix: Tensor  # int64 [B], the number of the kept prefix that a slot has a copy of, or 0
    prefix_positions: Tensor  # int64 [B], its length
    active: Tensor  # bool [B]
    status: Tensor  # int64 [B], RUNNING or why the slot stopped
    max_top_k: int
    num_rows: int
    like_reference: bool
    strict: bool
    noise: NoiseSource | None  # in place of the numbers of each slot's seed
    rows: SlotRows
    host_positions: list[int]  # upper bounds of `position` + 1; 0 for a free slot
    host_numbers: list[dict[str, float]]  # of `rows`, which `begin` writes
    host_limits: list[int]  # `frame_limit` of the request that has or had the slot
    # Whether the last request left numbers that are not finite; None where only the device knows.
    host_failed: list[bool | None]
    _buckets: dict[int, DecodeState] = field(default_factory=dict)

    @classmethod
    def allocate(
        cls,
        model: DualAR,
        *,
        num_slots: int,
        max_positions: int,
        max_top_k: int = DEFAULT_MAX_TOP_K,
        like_reference: bool = False,
        strict: bool = False,
        noise: NoiseSource | None = None,
    ) -> DecodeState:
        """Return free slots of `max_positions` positions each, never above the model's own.

        `max_top_k` is fixed for the state's life; a request with a larger top_k is refused.
        `strict`: a slot's frames do not depend on the other slots in one bit, at some cost in time.
        `like_reference`: keep the public code's quirks, which vectors pin: an end token in the
        first frame ends nothing, top_k 0 acts as 1, max_frames 0 as "until the context is full".
        """
        if not 0 < max_positions <= model.config.text_config.max_seq_len:
            raise InvalidSpecError(
                f"A slot of {max_positions} positions was requested, but the model has only "
                f"{model.config.text_config.max_seq_len}; lower TTS_ENGINE_MAX_POSITIONS."
            )
        device = model.device
        columns = 1 + model.slow.num_codebooks

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        step = SPLIT_POSITIONS if strict else 1
        rows = SlotRows.allocate(num_slots, device)
        return cls(
            **rows.tensors(),  # type: ignore[arg-type]  # the names are those of the fields
            cache=KVCache.allocate(
                model.config.text_config,
                num_slots=num_slots,
                num_positions=-(-max_positions // step) * step,
                device=device,
                dtype=model.dtype,
            ),
            fast_cache=model.fast.allocate_cache(num_slots),
            columns=zeros(num_slots, columns),
            history=zeros(num_slots, max_positions + 1, columns, dtype=torch.int32),
            window=zeros(num_slots, RAS_WINDOW),
            active=zeros(num_slots, dtype=torch.bool),
            max_top_k=max_top_k,
            num_rows=model.slow.head_tokens.shape[0],
            like_reference=like_reference,
            strict=strict,
            noise=noise,
            rows=rows,
            host_positions=[0] * num_slots,
            host_numbers=[{} for _ in range(num_slots)],
            host_limits=[0] * num_slots,
            host_failed=[None] * num_slots,
        )

    @property
    def num_slots(self) -> int:
        return self.position.shape[0]

    @property
    def max_positions(self) -> int:
        return self.history.shape[1] - 1

    @property
    def suits_own_code(self) -> bool:
        """Return whether kernels and compiled code may compute its frames, where there are any."""
        return self.noise is None and self.max_top_k <= MAX_TOP_K

    def bucket(self, num_slots: int) -> DecodeState:
        """Return the first slots as a state over the same memory; made once for each number."""
        if num_slots == self.num_slots:
            return self
        if num_slots not in self._buckets:
            views: dict[str, object] = {
                name: value[:num_slots] if isinstance(value, Tensor) else value.first(num_slots)
                for name, value in self._items()
                if isinstance(value, Tensor | Cache)
            }
            self._buckets[num_slots] = replace(self, **views, _buckets={})  # type: ignore[arg-type]
        return self._buckets[num_slots]

    def assign(
        self, slot: int, sampling: Sampling, *, prompt_positions: int, noise_offset: int = 0
    ) -> None:
        """Give a free slot to a request; nothing runs in it before `begin`.

        Args:
            prompt_positions: columns of the prompt, a copied prefix included.
            noise_offset: frames that earlier batches of the same request made.

        Raises:
            InvalidSpecError: a sampling value is out of range, or no frame fits behind the prompt.
        """
        check_sampling(
            sampling,
            max_top_k=self.max_top_k,
            num_rows=self.num_rows,
            lenient=self.like_reference,
        )
        room = self.max_positions - prompt_positions
        if room < 1:
            raise InvalidSpecError(
                f"The prompt's {prompt_positions} positions leave no room for a frame "
                f"within {self.max_positions}; use a shorter text, a shorter clip, or a "
                "larger TTS_ENGINE_MAX_POSITIONS."
            )
        is_cut_short = sampling.max_frames == 0 or sampling.max_frames > room
        limit = room if is_cut_short else sampling.max_frames
        self._wipe_if_failed(slot)
        self.host_numbers[slot] = {
            "status": RUNNING,
            "position": prompt_positions - 1,
            "frame_limit": limit,
            "limit_status": CONTEXT_FULL if is_cut_short else FRAME_LIMIT,
            "noise_offset": noise_offset,
            "seed": sampling.seed,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": max(sampling.top_k, 1),
        }
        self.host_positions[slot], self.host_limits[slot] = prompt_positions, limit
        self.host_failed[slot] = None

    def note_prefix(self, slot: int, number: int, positions: int) -> None:
        """Note that a slot begins with a copy of a prefix: slots with one number have equal ones.

        To be called before `begin`.

        Args:
            number: of that one copy's source, never 0 and never given again.
        """
        self.host_numbers[slot] |= {"prefix": number, "prefix_positions": positions}

    def begin(self, slots: Sequence[int], columns: Tensor) -> None:
        """Let assigned slots run: the next step makes their first frames.

        Args:
            columns: int64 [n, 1 + K], the last of each prompt; the cache holds all before it.
        """
        places = torch.tensor(slots)
        given = to_device(torch.cat([places.unsqueeze(1), columns], dim=1), self.columns.device)
        there = given[:, 0].contiguous()
        self.rows.write(there, [self.host_numbers[slot] for slot in slots])
        self.columns.index_copy_(0, there, given[:, 1:])
        self.window.index_fill_(0, there, 0)
        self.active.index_fill_(0, there, True)

    def release(self, slot: int, *, failed: bool | None = None) -> None:
        """Free a slot; it takes part in later steps without effect.

        Args:
            failed: whether its status was seen to be FAILED; None where nobody looked after its
                last step: the next request then has to ask the device, and wait for it.
        """
        # Not by `[slot] = 0`: torch would copy that number from the host and wait for the copy.
        self.active[slot].zero_()
        self.position[slot].zero_()
        self.prefix[slot].zero_()  # steps still write its first position
        self.host_positions[slot] = 0
        self.host_failed[slot] = failed

    def move(self, source: int, target: int) -> None:
        """Put a running stream into a free slot and free its own; nothing of the stream changes."""
        self._wipe_if_failed(target)
        self.cache.move(source, target, self.host_positions[source])
        self.rows.move(source, target)
        frames = self.host_limits[source]
        in_rows = self.rows.tensors()
        for name, value in self._items():
            if name == "history":
                value[target, :frames] = value[source, :frames]  # type: ignore[index]  # a tensor
            elif isinstance(value, Tensor) and name not in in_rows:
                value[target] = value[source]
        self.host_positions[target], self.host_limits[target] = self.host_positions[source], frames
        self.host_failed[target] = None
        self.release(source)

    def live_length(self) -> int:
        """Return the positions the next step must attend over, known without asking the device."""
        step = SPLIT_POSITIONS if self.strict else _LENGTH_STEP
        longest = max(*self.host_positions[: self.num_slots], 1)
        return min(-(-longest // step) * step, self.cache.num_positions)

    def note_step(self) -> None:
        """Count one position for every occupied slot; an upper bound, as some may have stopped."""
        for slot, positions in enumerate(self.host_positions[: self.num_slots]):
            self.host_positions[slot] = min(positions + 1, self.max_positions) if positions else 0

    def _items(self) -> list[tuple[str, object]]:
        return [(item.name, getattr(self, item.name)) for item in fields(self)]

    def _wipe_if_failed(self, slot: int) -> None:
        """Zero the cache that a failed request left, as it may hold NaN; any other cannot."""
        failed = self.host_failed[slot]
        if failed is None:
            failed = int(self.status[slot]) == FAILED
        if failed:
            self.cache.wipe(slot)


@dataclass(frozen=True, slots=True, eq=False)
class SlotRows:
    """Hold one row per number, each with all slots: int64 [I, B] and float32 [F, B]."""

    integers: Tensor
    floats: Tensor

    @classmethod
    def allocate(cls, num_slots: int, device: torch.device) -> SlotRows:
        integers = torch.zeros((len(INTEGERS), num_slots), dtype=torch.int64, device=device)
        integers[INTEGERS.index("top_k")] = 1
        return cls(integers, torch.ones((len(FLOATS), num_slots), device=device))

    def tensors(self) -> dict[str, Tensor]:
        """Return each number of all slots by its name, [B], over the same memory."""
        rows = (*self.integers.unbind(), *self.floats.unbind())
        return dict(zip(INTEGERS + FLOATS, rows, strict=True))

    @property
    def progress(self) -> Tensor:
        """Return status and frame of all slots, int64 [2, B], over the same memory."""
        return self.integers[:2]

    def write(self, slots: Tensor, values: Sequence[Mapping[str, float]]) -> None:
        """Set numbers of slots, int64 [n] on the device: those of the names given, 0 for others."""
        unknown = {name for one in values for name in one} - {*INTEGERS, *FLOATS}
        if unknown:
            raise ValueError(f"a slot has no {sorted(unknown)}")
        for rows, names, kind in (
            (self.integers, INTEGERS, torch.int64),
            (self.floats, FLOATS, torch.float32),
        ):
            numbers = [[one.get(name, 0) for one in values] for name in names]
            rows.index_copy_(1, slots, to_device(torch.tensor(numbers, dtype=kind), slots.device))

    def move(self, source: int, target: int) -> None:
        self.integers[:, target] = self.integers[:, source]
        self.floats[:, target] = self.floats[:, source]
