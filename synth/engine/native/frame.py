"""Make frames with the compiled code: the same step as `decode.step_tensors`, in one call."""

from __future__ import annotations

import weakref
from ctypes import POINTER, c_int32, c_uint8, cast, pointer
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.contract import MAX_TOP_K
from synth.engine.model.decode import StepOutput, advance
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR, FastAR, SlowAR
from synth.engine.model.kv_cache import Cache
from synth.engine.model.layers import Block
from synth.engine.model.linear import NativeGate, NativeLinear
from synth.engine.native.library import AttendingC, CacheC, FrameC, LayerC, Library, ModelC, StackC


class NativeFrames:
    """Hold a finalized model in the form that compiled code reads; the weights stay its own.

    What a stream gets does not depend, in one bit, on its neighbours or on how far they are.
    """

    def __init__(self, model: DualAR) -> None:
        """Gather the addresses of a model whose matrices are all native."""
        self._kept: list[object] = []  # what only addresses point to
        self.rounds = model.dtype == torch.bfloat16
        slow, fast = model.slow, model.fast
        slow_stack, fast_stack = self._stack(slow), self._stack(fast)
        project_in = fast.project_in
        assert project_in is None or isinstance(project_in, NativeLinear)
        assert isinstance(fast.output, NativeLinear)
        self.library: Library = fast.output.library
        self._model = ModelC(
            slow=pointer(slow_stack),
            fast=pointer(fast_stack),
            project_in=None if project_in is None else pointer(project_in.c),
            token_table=self._address(slow.embeddings.weight.detach()),
            columns_table=self._address(slow.codebook_embeddings.weight.detach()),
            codes_table=self._address(fast.embeddings.weight.detach()),
            tokens=self._address(slow.head_tokens),
            semantic_begin=model.special.semantic_begin,
            semantic_end=model.special.semantic_end,
            tables_are_bf16=self.rounds,
            num_codebooks=fast.num_codebooks,
            codebook_size=fast.codebook_size,
        )
        self._bound: weakref.WeakKeyDictionary[DecodeState, _BoundState] = (
            weakref.WeakKeyDictionary()
        )

    def suits(self, state: DecodeState) -> bool:
        """Return whether compiled code has room for all candidates that draws keep."""
        return state.max_top_k <= MAX_TOP_K

    def states(self, state: DecodeState) -> Tensor:
        """Return the slow AR's normalised states behind a state's last frame, float32 [B, D]."""
        return self._bound[state].states

    def step(self, model: DualAR, state: DecodeState) -> StepOutput:
        """Advance every active slot by one whole frame; see `decode.step_tensors`."""
        position = state.position.clamp(max=state.max_positions - 1)
        drawn = self._draw(state, None, position, is_first=False)
        state.position.add_(state.active)
        return self._advance(model, state, drawn, state.active.clone(), is_first=False)

    def make_frame(
        self, model: DualAR, state: DecodeState, hidden: Tensor, chosen: Tensor, *, is_first: bool
    ) -> StepOutput:
        """Draw a frame from hidden states [B, width]; see `decode.make_frame`."""
        drawn = self._draw(state, hidden, None, is_first=is_first)
        return self._advance(model, state, drawn, chosen, is_first=is_first)

    def _draw(
        self, state: DecodeState, hidden: Tensor | None, position: Tensor | None, *, is_first: bool
    ) -> _Drawn:
        """Return a frame behind the newest columns, at positions [B], or behind states [B, D]."""
        bound = self._bound.get(state)
        if bound is None:
            bound = self._bound[state] = _BoundState.of(self._model, state)
        num, codebooks = state.num_slots, self._model.num_codebooks
        drawn = _Drawn(
            first=torch.empty(num, dtype=torch.int64),
            second=torch.empty(num, dtype=torch.int64),
            columns=torch.empty(num, 1 + codebooks, dtype=torch.int64),
            finite=torch.empty(num, dtype=torch.bool),
        )
        wide = None if hidden is None else hidden.to(torch.float32).contiguous()
        c = bound.c
        c.with_slow, c.is_first = position is not None, is_first
        c.threads = torch.get_num_threads()
        c.x = None if wide is None else wide.data_ptr()
        c.position = None if position is None else position.data_ptr()
        c.first, c.second = drawn.first.data_ptr(), drawn.second.data_ptr()
        c.columns = drawn.columns.data_ptr()
        c.is_finite = cast(drawn.finite.data_ptr(), POINTER(c_uint8))
        self.library.make_frame(c)
        return drawn

    def _advance(
        self, model: DualAR, state: DecodeState, drawn: _Drawn, chosen: Tensor, *, is_first: bool
    ) -> StepOutput:
        """Write a frame back into the state of the slots `chosen`, bool [B]."""
        if not is_first:
            rolled = torch.cat([state.window[:, 1:], drawn.columns[:, :1]], dim=1)
            state.window.copy_(torch.where(chosen.unsqueeze(1), rolled, state.window))
        ended = advance(model, state, drawn.columns, chosen, drawn.finite, is_first=is_first)
        is_speech = chosen & drawn.finite & ~ended
        return StepOutput(state.columns.clone(), chosen, is_speech, drawn.first, drawn.second)

    def _stack(self, half: SlowAR | FastAR) -> StackC:
        """Describe the layers of one transformer."""
        blocks = half.blocks
        attention = blocks[0].attention
        head = half.head if isinstance(half, SlowAR) else half.output
        assert isinstance(head, NativeLinear)
        layers = (LayerC * len(blocks))(*(self._layer(block) for block in blocks))
        down = blocks[0].feed_forward.w2
        assert isinstance(down, NativeLinear)
        stack = StackC(
            num_layers=len(blocks),
            width=half.norm.weight.shape[0],
            hidden=down.columns,
            attending=AttendingC(
                heads=attention.n_head,
                kv_heads=attention.n_local_heads,
                head_dim=attention.head_dim,
                rounds=self.rounds,
                # The fast AR rounds after every step, as its weights were trained.
                rounds_scores=isinstance(half, FastAR),
                eps=half.norm_eps,
                rope=self._address(half.rope.float().contiguous()),
            ),
            layers=layers,
            norm=self._float(half.norm.weight),
            head=head.c,
        )
        self._kept += [layers, stack]
        return stack

    def _layer(self, block: Block) -> LayerC:
        attention, feed_forward = block.attention, block.feed_forward
        matrices = (attention.wqkv, attention.wo, feed_forward.w13, feed_forward.w2)
        qkv, out, gate_up, down = matrices
        assert isinstance(qkv, NativeLinear)
        assert isinstance(out, NativeLinear)
        assert isinstance(gate_up, NativeGate)
        assert isinstance(down, NativeLinear)
        norms = attention.qk_norm
        return LayerC(
            qkv=qkv.c,
            out=out.c,
            gate_up=gate_up.c,
            down=down.c,
            attention_norm=self._float(block.attention_norm.weight),
            ffn_norm=self._float(block.ffn_norm.weight),
            head_norm=None if norms is None else self._float(norms),
        )

    def _float(self, weight: Tensor) -> int:
        """Return the address of a copy in float32."""
        return self._address(weight.detach().float().contiguous())

    def _address(self, tensor: Tensor) -> int:
        """Return a tensor's address and keep it alive."""
        assert tensor.is_contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """Hold what a frame's draws gave: int64 [B], [B], [B, 1 + K] and bool [B]."""

    first: Tensor
    second: Tensor
    columns: Tensor
    finite: Tensor


@dataclass(slots=True, eq=False)
class _BoundState:
    """Hold the addresses of a state's tensors, which are changed in place and never replaced."""

    c: FrameC
    states: Tensor
    kept: list[Tensor]

    @classmethod
    def of(cls, model: ModelC, state: DecodeState) -> _BoundState:
        """Look the addresses up."""
        width = model.slow.contents.width
        states = torch.empty(state.num_slots, width)
        rows = [state.temperature, state.top_p, state.top_k, state.frame, state.window]
        rows += [state.columns, state.prefix, state.prefix_positions]
        assert all(each.is_contiguous() for each in rows)
        assert state.words[0].is_contiguous()
        temperature, top_p, top_k, frame, window, newest, prefix, alike = (
            each.data_ptr() for each in rows
        )
        c = FrameC(
            model=pointer(model),
            streams=state.num_slots,
            cache=_cache(state.cache),
            frame_cache=_cache(state.fast_cache),
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            frame=frame,
            window=window,
            newest=newest,
            prefix=prefix,
            prefix_positions=alike,
            words=state.words.data_ptr(),
            words_stride=state.words.stride(0),
            draws=c_int32(state.words.shape[2]),
            states=states.data_ptr(),
        )
        kept = [*rows, state.words, state.cache.keys, state.cache.values]
        return cls(c, states, [*kept, state.fast_cache.keys, state.fast_cache.values])


def _cache(cache: Cache) -> CacheC:
    """Describe a cache of float32, or raise ValueError."""
    keys, values = cache.keys, cache.values
    if keys.dtype != torch.float32 or keys.stride() != values.stride():
        raise ValueError("compiled frames need caches of float32, keys and values laid out alike")
    if keys.stride()[-2:] != (keys.shape[-1], 1):
        raise ValueError("the positions of a head must lie one behind the other")
    layer, stream, head = keys.stride()[:3]
    return CacheC(keys.data_ptr(), values.data_ptr(), layer, stream, head)
