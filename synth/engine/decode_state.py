"""Hold everything that changes while a batch of streams is decoded: one slot per stream."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from synth.contract import FinishReason, Sampling
from synth.engine.compat import PRODUCT, Compat
from synth.engine.dual_ar import DualAR
from synth.engine.errors import InvalidSpecError
from synth.engine.kv_cache import KVCache
from synth.engine.sampling import DEFAULT_MAX_TOP_K, RAS_WINDOW, check_sampling

RUNNING, ENDED, FRAME_LIMIT, CONTEXT_FULL, FAILED = range(5)
FINISH_REASONS = {
    ENDED: FinishReason.END,
    FRAME_LIMIT: FinishReason.FRAME_LIMIT,
    CONTEXT_FULL: FinishReason.CONTEXT_FULL,
}
_LENGTH_STEP = 64  # attention runs over a multiple of this many positions


@dataclass(eq=False)
class DecodeState:
    """Hold the slots of one batch; tensors are changed in place and never replaced.

    All tensors are on the model's device and begin with the slots B. `decode_step` reads and writes
    tensors only, so it can be captured as a graph when it is given a fixed `length`; what the host
    knows besides (`host_positions`) is kept by the functions that are not captured.
    """

    cache: KVCache
    fast_cache: KVCache
    columns: Tensor  # int64 [B, 1 + K], the newest frame, input of the next step
    window: Tensor  # int64 [B, RAS_WINDOW], tokens chosen from frame 2 on
    position: Tensor  # int64 [B], where the newest frame will be written
    frame: Tensor  # int64 [B], frames made
    frame_limit: Tensor  # int64 [B]
    limit_status: Tensor  # int64 [B], what reaching the limit is called
    noise_offset: Tensor  # int64 [B], frames made for earlier batches of the same request
    seed: Tensor  # int64 [B]
    temperature: Tensor  # float32 [B]
    top_p: Tensor  # float32 [B]
    top_k: Tensor  # int64 [B]
    active: Tensor  # bool [B]
    status: Tensor  # int64 [B], RUNNING or why the slot stopped
    max_top_k: int
    num_rows: int
    compat: Compat
    host_positions: list[int]  # upper bounds of `position`; 0 for a free slot

    @classmethod
    def allocate(
        cls,
        model: DualAR,
        *,
        num_slots: int,
        max_positions: int,
        max_top_k: int = DEFAULT_MAX_TOP_K,
        compat: Compat = PRODUCT,
    ) -> DecodeState:
        """Return free slots of `max_positions` positions each, never above the model's own.

        `max_top_k` is fixed for the state's life; a request with a larger top_k is refused.
        """
        if not 0 < max_positions <= model.config.text_config.max_seq_len:
            raise InvalidSpecError(
                f"A slot of {max_positions} positions was asked for; the model has "
                f"{model.config.text_config.max_seq_len}."
            )
        device, size = model.device, (num_slots,)

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int64, device=device)

        return cls(
            cache=KVCache.allocate(
                model.config.text_config,
                num_slots=num_slots,
                num_positions=max_positions,
                device=device,
                dtype=model.dtype,
            ),
            fast_cache=model.fast.allocate_cache(num_slots),
            columns=zeros(num_slots, 1 + model.slow.num_codebooks),
            window=zeros(num_slots, RAS_WINDOW),
            position=zeros(num_slots),
            frame=zeros(num_slots),
            frame_limit=zeros(num_slots),
            limit_status=zeros(num_slots),
            noise_offset=zeros(num_slots),
            seed=zeros(num_slots),
            temperature=torch.ones(size, device=device),
            top_p=torch.ones(size, device=device),
            top_k=torch.ones(size, dtype=torch.int64, device=device),
            active=torch.zeros(size, dtype=torch.bool, device=device),
            status=zeros(num_slots),
            max_top_k=max_top_k,
            num_rows=model.slow.head_tokens.shape[0],
            compat=compat,
            host_positions=[0] * num_slots,
        )

    @property
    def num_slots(self) -> int:
        """Return how many streams there are, free ones included."""
        return len(self.host_positions)

    @property
    def max_positions(self) -> int:
        """Return the positions of each slot."""
        return self.cache.num_positions

    def assign(
        self, slot: int, sampling: Sampling, *, prompt_positions: int, noise_offset: int = 0
    ) -> None:
        """Give a free slot to a request; `prefill` is what starts it.

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
            lenient=self.compat.lenient_limits,
        )
        limit, status = self._frame_limit(sampling.max_frames, prompt_positions)
        self.cache.wipe(slot)
        self.window[slot] = 0
        self.frame[slot] = 0
        self.frame_limit[slot] = limit
        self.limit_status[slot] = status
        self.noise_offset[slot] = noise_offset
        self.seed[slot] = sampling.seed
        self.temperature[slot] = sampling.temperature
        self.top_p[slot] = sampling.top_p
        self.top_k[slot] = max(sampling.top_k, 1)
        self.status[slot] = RUNNING
        self.active[slot] = False
        self.host_positions[slot] = prompt_positions

    def release(self, slot: int) -> None:
        """Free a slot; it takes part in later steps without effect."""
        self.active[slot] = False
        self.position[slot] = 0
        self.host_positions[slot] = 0

    def live_length(self) -> int:
        """Return the positions the next step must attend over, known without asking the device."""
        longest = max(self.host_positions) + 1
        return min(-(-longest // _LENGTH_STEP) * _LENGTH_STEP, self.max_positions)

    def note_step(self) -> None:
        """Count one position for every occupied slot; an upper bound, as some may have stopped."""
        last = self.max_positions - 1
        self.host_positions = [min(p + 1, last) if p else 0 for p in self.host_positions]

    def _frame_limit(self, max_frames: int, prompt_positions: int) -> tuple[int, int]:
        """Return how many frames may be made and what stopping there is called."""
        room = self.max_positions - prompt_positions
        if self.compat.drop_last_frame and (room < 2 or max_frames == 1):
            raise InvalidSpecError("With the last frame dropped nothing would be left.")
        if room < 1:
            raise InvalidSpecError(
                f"The prompt's {prompt_positions} positions leave no room for a frame in "
                f"{self.max_positions}."
            )
        if max_frames == 0 or max_frames > room:
            return room, CONTEXT_FULL
        return max_frames, FRAME_LIMIT
