"""Build the codec's causal transformer, in which a query sees a window of the newest keys."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from synth.engine.codec.config import HEAD_DIM, TransformerConfig
from synth.engine.model.layers import apply_rope, rms_norm, rope_table

ROPE_BASE = 10000.0
NORM_EPS = 1e-5
MIN_KEPT_POSITIONS, MAX_KEPT_POSITIONS = 512, 16384  # rotary rows; 16384 take 4 MB


def windowed_attention(q: Tensor, k: Tensor, v: Tensor, window: int) -> Tensor:
    """Attend causally, each query to the `window` keys up to its own; all [B, H, S, head_dim].

    Longer inputs go in blocks of `window` queries, so memory grows with S and not with its square.
    """
    length = q.shape[2]
    if length <= window:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    blocks = []
    for start in range(0, length, window):
        stop, oldest = min(start + window, length), max(0, start - window + 1)
        query = torch.arange(start, stop, device=q.device)[:, None]
        key = torch.arange(oldest, stop, device=q.device)[None, :]
        seen = (key <= query) & (key > query - window)
        blocks.append(
            F.scaled_dot_product_attention(
                q[:, :, start:stop], k[:, :, oldest:stop], v[:, :, oldest:stop], attn_mask=seen
            )
        )
    return torch.cat(blocks, dim=2)


class RopeRows:
    """Keep the rotary numbers of the first positions by device; all codec transformers share them.

    Copying them there for every chunk would make the host wait for the device each time. Of each
    device at most MAX_KEPT_POSITIONS are kept.
    """

    def __init__(self) -> None:
        self._tables: dict[torch.device, Tensor] = {}

    def rows(self, start: int, stop: int, device: torch.device) -> Tensor:
        """Return the numbers of positions start to stop - 1, float32 [S, head_dim / 2, 2]."""
        if stop > MAX_KEPT_POSITIONS:
            return rope_table(torch.arange(start, stop, device=device), HEAD_DIM, ROPE_BASE)
        table = self._tables.get(device)
        if table is None or table.shape[0] < stop:
            length = max(MIN_KEPT_POSITIONS, 1 << (stop - 1).bit_length())
            # An ordinary tensor, so that training may use what a measurement before it left here.
            with torch.inference_mode(False):
                table = rope_table(torch.arange(length, device=device), HEAD_DIM, ROPE_BASE)
            self._tables[device] = table  # of two threads' tables either is right
        return table[start:stop]


ROPE_ROWS = RopeRows()  # this process's; empty until something is asked of it


class RMSNorm(nn.Module):
    """Divide by the root mean square over channels; the weight comes after the cast back."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., dim] to the same shape."""
        return rms_norm(x, self.weight, NORM_EPS)


class LayerScale(nn.Module):
    """Multiply each channel by a learnt number."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(dim))

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., dim] to the same shape."""
        return x * self.gamma


class Attention(nn.Module):
    """Attend over a causal window with rotary positions; every head has its own keys."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        inner = config.num_heads * HEAD_DIM
        self.window = config.window
        self.wqkv = nn.Linear(config.dim, 3 * inner, bias=False)
        self.wo = nn.Linear(inner, config.dim, bias=False)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """Map [B, S, dim] to the same shape; `table` holds the rotary numbers of S positions."""
        return self.merge(windowed_attention(*self.project(x, table), self.window))

    def project(self, x: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of x [B, S, dim], each [B, H, S, head_dim], rotated."""
        heads = self.wqkv(x).unflatten(-1, (3, -1, HEAD_DIM)).transpose(1, 3)
        q, k, v = heads.unbind(2)
        return apply_rope(q, table), apply_rope(k, table), v

    def merge(self, mixed: Tensor) -> Tensor:
        """Map what the heads attended to, [B, H, S, head_dim], to [B, S, dim]."""
        y: Tensor = self.wo(mixed.transpose(1, 2).flatten(2))
        return y


class FeedForward(nn.Module):
    """Map each position through a SwiGLU of `ffn_dim`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w2 = nn.Linear(config.ffn_dim, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, S, dim] to the same shape."""
        y: Tensor = self.w2(F.silu(self.w1(x)) * self.w3(x))
        return y


class TransformerLayer(nn.Module):
    """Add attention, then feed-forward, each on a normed input and scaled per channel."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.feed_forward = FeedForward(config)
        self.attention_norm = RMSNorm(config.dim)
        self.ffn_norm = RMSNorm(config.dim)
        self.attention_layer_scale = LayerScale(config.dim)
        self.ffn_layer_scale = LayerScale(config.dim)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """Map [B, S, dim] to the same shape."""
        return self.finish(x, self.attention(self.attention_norm(x), table))

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add the attention's output and then the feed-forward's to x, all [B, S, dim]."""
        x = x + self.attention_layer_scale(attended)
        y: Tensor = x + self.ffn_layer_scale(self.feed_forward(self.ffn_norm(x)))
        return y


class WindowedTransformer(nn.Module):
    """Run the layers and a last norm, channel-first outside; positions count from 0."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.window = config.window
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, dim, S] to the same shape."""
        table = ROPE_ROWS.rows(0, x.shape[-1], x.device)
        hidden = x.transpose(1, 2)
        for layer in self.layers:
            hidden = layer(hidden, table)
        y: Tensor = self.norm(hidden).transpose(1, 2)
        return y
