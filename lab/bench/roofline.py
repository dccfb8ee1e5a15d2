"""Say how fast a frame could be: its bytes and operations against the machine's measured speeds.

A frame reads every weight that takes part once for the whole batch, the fast transformer's once
per pass, and each stream's keys and values once. Activations, gathered rows of embeddings and the
fast transformer's ten positions are left out: they are a small part of one in a hundred.
"""

from __future__ import annotations

from dataclasses import dataclass

from synth.engine.model.config import LMConfig, TransformerConfig
from synth.engine.model.decode_state import DecodeState

EIGHT_BITS = ("int8", "int8-slow", "fp8")
WEIGHT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2} | dict.fromkeys(EIGHT_BITS, 1)
FAST_BYTES = {**WEIGHT_BYTES, "int8-slow": 2}  # of the fast transformer's
HEAD_EXTRA_ROWS = 1  # the end token, beside the semantic rows


@dataclass(frozen=True, slots=True)
class FrameCost:
    """Hold what one step of a whole batch reads and computes."""

    weight_bytes: int
    kv_bytes: int
    flops: int

    @property
    def num_bytes(self) -> int:
        """Return all bytes that a step reads."""
        return self.weight_bytes + self.kv_bytes


def floor_seconds(
    num_bytes: int, flops: int, bytes_per_second: float, flops_per_second: float | None
) -> tuple[float, str]:
    """Return the least time of some work, and whether memory or arithmetic sets it.

    Without a rate of arithmetic it is memory.
    """
    reading = num_bytes / bytes_per_second
    computing = 0.0 if flops_per_second is None else flops / flops_per_second
    return (reading, "memory") if reading >= computing else (computing, "arithmetic")


def kv_dtype_name(state: DecodeState) -> str:
    """Return the format of a state's keys and values."""
    return str(state.cache.keys.dtype).removeprefix("torch.")


def frame_cost(
    config: LMConfig, *, weight_dtype: str, kv_dtype: str, batch: int, context: int, shared: int = 0
) -> FrameCost:
    """Return the cost of one step of `batch` streams that attend to `context` positions each.

    The first `shared` of them are read once for all streams.
    """
    text, audio = config.text_config, config.audio_decoder_config
    slow = text.n_layer * layer_weights(text)
    head = (audio.vocab_size + HEAD_EXTRA_ROWS) * text.dim
    fast_layers, fast_head = audio.n_layer * layer_weights(audio), audio.vocab_size * audio.dim
    passes = audio.num_codebooks - 1
    fast = passes * (fast_layers + fast_head)
    # One position more than passes: the first pass has two.
    multiplied = slow + head + fast + fast_layers
    attended = text.n_layer * text.n_head * text.head_dim * context
    return FrameCost(
        weight_bytes=WEIGHT_BYTES[weight_dtype] * (slow + head) + FAST_BYTES[weight_dtype] * fast,
        kv_bytes=(batch * context - (batch - 1) * shared) * position_bytes(text, kv_dtype),
        flops=2 * batch * (multiplied + 2 * attended),
    )


def prefill_flops(config: LMConfig, *, tokens: int, start: int) -> int:
    """Return the operations of running `tokens` positions behind `start` through the slow model."""
    text = config.text_config
    attended = tokens * start + tokens * (tokens + 1) // 2
    per_pair = 4 * text.n_layer * text.n_head * text.head_dim
    return 2 * tokens * text.n_layer * layer_weights(text) + per_pair * attended


def prefill_bytes(config: LMConfig, *, weight_dtype: str) -> int:
    """Return the bytes of the slow model's layers, read once for all positions."""
    text = config.text_config
    return WEIGHT_BYTES[weight_dtype] * text.n_layer * layer_weights(text)


def layer_weights(config: TransformerConfig) -> int:
    """Return the weights of one layer's matrices; its norms are too small to count."""
    heads = config.n_head + 2 * config.n_local_heads
    attention = config.dim * config.head_dim * (heads + config.n_head)
    return attention + 3 * config.dim * config.intermediate_size


def position_bytes(config: TransformerConfig, kv_dtype: str) -> int:
    """Return the bytes of keys and values that one position of one stream takes."""
    values = 2 * config.n_layer * config.n_local_heads * config.head_dim
    return values * WEIGHT_BYTES[kv_dtype]
