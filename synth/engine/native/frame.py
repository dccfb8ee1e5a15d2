"""Make frames with the compiled code: the same step as `decode.step_tensors`, in one call."""

from __future__ import annotations

import weakref
from ctypes import POINTER, c_uint8, cast, pointer
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.model.decode import StepOutput, advance, roll_window
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR, FastAR, SlowAR
from synth.engine.model.kv_cache import Cache
from synth.engine.model.layers import Block
from synth.engine.model.linear import NativeLinear
from synth.engine.native.library import AttendingC, CacheC, FrameC, LayerC, Library, ModelC, StackC

# Of a state, whose addresses are fields of the same name.
_STATE_TENSORS = ("temperature", "top_p", "top_k", "frame", "window", "seed", "noise_offset",
                  "prefix", "prefix_positions")  # fmt: skip


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
        self.library: Library = _matrix(fast.output).library
        self._model = ModelC(
            slow=pointer(slow_stack),
            fast=pointer(fast_stack),
            project_in=None if project_in is None else pointer(_matrix(project_in).c),
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

    def states(self, state: DecodeState) -> Tensor:
        """Return the slow AR's normalised states behind a state's last frame, float32 [B, D]."""
        return self._bound[state].states

    def make_frame(self, model: DualAR, state: DecodeState) -> StepOutput:
        """Advance every active slot by one whole frame; see `decode.step_tensors`."""
        bound = self._bound.get(state)
        if bound is None:
            bound = self._bound[state] = self._bind(state)
        num, c = state.num_slots, bound.c
        first, second = torch.empty(2, num, dtype=torch.int64)
        columns = torch.empty(num, 1 + self._model.num_codebooks, dtype=torch.int64)
        finite = torch.empty(num, dtype=torch.bool)
        position = state.position.clamp(max=state.max_positions - 1)
        c.threads = torch.get_num_threads()
        c.position = position.data_ptr()
        c.first, c.second, c.columns = first.data_ptr(), second.data_ptr(), columns.data_ptr()
        c.is_finite = cast(finite.data_ptr(), POINTER(c_uint8))
        self.library.make_frame(c)
        state.position.add_(state.active)
        chosen = state.active.clone()
        roll_window(state, columns, chosen)
        return advance(model, state, columns, chosen, finite, (first, second))

    def _bind(self, state: DecodeState) -> _BoundState:
        states = torch.empty(state.num_slots, self._model.slow.contents.width)
        c = FrameC(
            model=pointer(self._model),
            streams=state.num_slots,
            cache=_cache(state.cache),
            frame_cache=_cache(state.fast_cache),
            newest=state.columns.data_ptr(),
            states=states.data_ptr(),
        )
        kept = [state.columns]
        for name in _STATE_TENSORS:
            tensor = getattr(state, name)
            setattr(c, name, tensor.data_ptr())
            kept.append(tensor)
        assert all(each.is_contiguous() for each in kept)
        for cache in (state.cache, state.fast_cache):
            kept += [cache.keys, cache.values]
        return _BoundState(c, states, kept)

    def _stack(self, half: SlowAR | FastAR) -> StackC:
        blocks = half.blocks
        attention = blocks[0].attention
        head = _matrix(half.head if isinstance(half, SlowAR) else half.output)
        layers = (LayerC * len(blocks))(*(self._layer(block) for block in blocks))
        stack = StackC(
            num_layers=len(blocks),
            width=half.norm.weight.shape[0],
            hidden=_matrix(blocks[0].feed_forward.w2).columns,
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
        norms = attention.qk_norm
        return LayerC(
            qkv=_matrix(attention.wqkv).c,
            out=_matrix(attention.wo).c,
            gate_up=_matrix(feed_forward.w13).c,
            down=_matrix(feed_forward.w2).c,
            attention_norm=self._float(block.attention_norm.weight),
            ffn_norm=self._float(block.ffn_norm.weight),
            head_norm=None if norms is None else self._float(norms),
        )

    def _float(self, weight: Tensor) -> int:
        return self._address(weight.detach().float().contiguous())

    def _address(self, tensor: Tensor) -> int:
        """Return a tensor's address and keep it alive."""
        assert tensor.is_contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


@dataclass(slots=True, eq=False)
class _BoundState:
    """Hold the addresses of a state's tensors, which are changed in place and never replaced."""

    c: FrameC
    states: Tensor
    kept: list[Tensor]


def _matrix(linear: object) -> NativeLinear:
    assert isinstance(linear, NativeLinear)
    return linear


def _cache(cache: Cache) -> CacheC:
    """Describe a cache of float32, or raise ValueError."""
    keys, values = cache.keys, cache.values
    if keys.dtype != torch.float32 or keys.stride() != values.stride():
        raise ValueError("compiled frames need caches of float32, keys and values laid out alike")
    if keys.stride()[-2:] != (keys.shape[-1], 1):
        raise ValueError("the positions of a head must lie one behind the other")
    layer, stream, head = keys.stride()[:3]
    return CacheC(keys.data_ptr(), values.data_ptr(), layer, stream, head)
