"""Run the decoder's stages on the next frames alone, with what earlier frames left behind.

The weights are those of the whole decoder: every module is run as it is, but for the three kinds
that look back. A convolution gets the inputs that its zeros stand for at the start, a transposed
one the inputs whose tails still change its first outputs, an attention its newest keys and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.codec.config import HEAD_DIM
from synth.engine.codec.decoder_layers import DecoderBlock, DecodingQuantizer, WaveDecoder
from synth.engine.codec.layers import (
    CausalConv1d,
    CausalConvTranspose1d,
    ConvNeXtBlock,
    ResidualUnit,
    Snake,
)
from synth.engine.codec.transformer import (
    ROPE_ROWS,
    Attention,
    TransformerLayer,
    WindowedTransformer,
)

MAX_PIECE_FRAMES = 128  # more at once is no faster and only takes memory
Carried = Mapping[nn.Module, tuple[Tensor, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class StreamState:
    """Hold what B streams carry from chunk to chunk; a chunk makes a new one.

    `carried` maps each convolution to its newest inputs [B, D, context] and each attention to its
    newest keys and values [B, H, window - 1, head_dim], zeros before a stream's start; `frames`
    counts each stream's frames so far.
    """

    carried: Carried
    frames: tuple[int, ...]

    def split(self) -> list[StreamState]:
        """Return each stream's own state, as views."""
        return [
            StreamState(
                {key: tuple(t[row : row + 1] for t in kept) for key, kept in self.carried.items()},
                (count,),
            )
            for row, count in enumerate(self.frames)
        ]


def join(states: Sequence[StreamState]) -> StreamState:
    """Return the state of several streams of one decoder as one batch, in this order."""
    if len(states) == 1:
        return states[0]
    carried = {
        key: tuple(
            torch.cat(parts) for parts in zip(*(s.carried[key] for s in states), strict=True)
        )
        for key in states[0].carried
    }
    return StreamState(carried, tuple(count for state in states for count in state.frames))


def initial_state(quantizer: DecodingQuantizer, decoder: WaveDecoder) -> StreamState:
    """Return the state of one stream that has had no frame: zeros, as the convolutions pad."""
    like = quantizer.post_module.norm.weight
    carried: dict[nn.Module, tuple[Tensor, ...]] = {}
    for module in (*quantizer.modules(), *decoder.modules()):
        if isinstance(module, (CausalConv1d, CausalConvTranspose1d)):
            context = _context(module)
            if context:
                carried[module] = (like.new_zeros(1, module.conv.in_channels, context),)
        elif isinstance(module, Attention):
            heads = module.wo.in_features // HEAD_DIM
            empty = like.new_zeros(1, heads, module.window - 1, HEAD_DIM)
            carried[module] = (empty, empty)
    return StreamState(carried, (0,))


def run_frames(
    quantizer: DecodingQuantizer,
    decoder: WaveDecoder,
    codes: Tensor,
    state: StreamState,
    piece: int,
) -> tuple[Tensor, StreamState]:
    """Return the samples of the next frames, and the state after them.

    Args:
        codes: int64 [B, K, n] on the model's device, n at least 1.
        state: of these B streams; left as it is, so that a failed call can be made again.
        piece: frames that go through the layers at once.

    Returns:
        The samples [B, hop_length * n] in the model's dtype, and the new state.
    """
    length, waves = codes.shape[-1], []
    for start, stop in pairwise([*range(0, length, piece), length]):
        chunk = _Chunk(state, stop - start)
        waves.append(chunk.decode(quantizer, decoder, codes[..., start:stop]))
        state = StreamState(chunk.carried, tuple(count + stop - start for count in state.frames))
    return (waves[0] if len(waves) == 1 else torch.cat(waves, dim=-1)), state


def _context(module: CausalConv1d | CausalConvTranspose1d) -> int:
    """Return how many inputs before the next one its first outputs depend on."""
    if isinstance(module, CausalConv1d):
        return module.left
    return (module.conv.kernel_size[0] - 1) // module.stride


class _Chunk:
    """Run modules on `length` frames behind a state, collecting the state after them."""

    def __init__(self, state: StreamState, length: int) -> None:
        self._before, self._length = state, length
        self.carried: dict[nn.Module, tuple[Tensor, ...]] = {}

    def decode(self, quantizer: DecodingQuantizer, decoder: WaveDecoder, codes: Tensor) -> Tensor:
        """Return the samples [B, hop_length * length] of codes [B, K, length]."""
        latents = self._transformer(quantizer.post_module, quantizer.lookup(codes))
        return self._run(decoder, self._run(quantizer.upsample, latents))[:, 0]

    def _run(self, module: nn.Module, x: Tensor) -> Tensor:
        """Map x [B, D, T] as the module does where x goes on from the state."""
        match module:
            case nn.Sequential():
                for child in module:
                    x = self._run(child, x)
                return x
            case Snake() | nn.Tanh():
                y: Tensor = module(x)
                return y
            case CausalConv1d():
                return self._conv(module, x)
            case CausalConvTranspose1d():
                return self._transposed(module, x)
            case ResidualUnit():
                return x + self._run(module.block, x)
            case ConvNeXtBlock():
                return x + module.mix(self._conv(module.dwconv, x))
            case DecoderBlock():
                return self._run(module.block, x)
            case WaveDecoder():
                return self._run(module.model, x)
        # Running it as it is would forget what came before.
        raise TypeError(f"{type(module).__name__} cannot be run in chunks")

    def _with_context(self, module: CausalConv1d | CausalConvTranspose1d, x: Tensor) -> Tensor:
        """Put the inputs before x in front of it, and keep the newest ones."""
        if module not in self._before.carried:
            return x
        (left,) = self._before.carried[module]
        x = torch.cat([left, x], dim=-1)
        # A copy: a view would keep the whole chunk's tensor in memory.
        self.carried[module] = (x[..., x.shape[-1] - left.shape[-1] :].clone(),)
        return x

    def _conv(self, conv: CausalConv1d, x: Tensor) -> Tensor:
        y: Tensor = conv.conv(self._with_context(conv, x))
        return y

    def _transposed(self, conv: CausalConvTranspose1d, x: Tensor) -> Tensor:
        start = conv.stride * _context(conv)  # outputs that the chunks before have given
        y: Tensor = conv.conv(self._with_context(conv, x))
        return y[..., start : start + conv.stride * x.shape[-1]]

    def _transformer(self, module: WindowedTransformer, x: Tensor) -> Tensor:
        rows = [
            ROPE_ROWS.rows(count, count + self._length, x.device) for count in self._before.frames
        ]
        table = rows[0] if len(rows) == 1 else torch.stack(rows)[:, None]
        hidden, seen = x.transpose(1, 2), self._visible(module, x.device)
        for layer in cast("Iterable[TransformerLayer]", module.layers):
            attended = self._attend(layer.attention, layer.attention_norm(hidden), table, seen)
            hidden = layer.finish(hidden, attended)
        y: Tensor = module.norm(hidden).transpose(1, 2)
        return y

    def _attend(self, attention: Attention, x: Tensor, table: Tensor, seen: Tensor) -> Tensor:
        q, k, v = attention.project(x, table)
        keys, values = self._before.carried[attention]
        k, v = torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)
        newest = slice(self._length, None)
        self.carried[attention] = (k[:, :, newest].clone(), v[:, :, newest].clone())
        return attention.merge(F.scaled_dot_product_attention(q, k, v, attn_mask=seen))

    def _visible(self, module: WindowedTransformer, device: torch.device) -> Tensor:
        """Return which keys each query sees, bool [n, window - 1 + n] or [B, 1, n, ...]."""
        window, frames = module.window, self._before.frames
        query = torch.arange(self._length, device=device)[:, None]
        key = torch.arange(window - 1 + self._length, device=device)
        seen = (key >= query) & (key < query + window)
        # The carried keys are right-aligned: those before a stream's first frame are only zeros.
        unused = [max(0, window - 1 - count) for count in frames]
        if len(set(unused)) == 1:
            return seen & (key >= unused[0]) if unused[0] else seen
        return seen & (key >= torch.tensor(unused, device=device)[:, None, None, None])
