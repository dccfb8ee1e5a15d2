"""Predict from a model's sizes alone how much memory an engine takes, before any is taken.

Counts weights as they are held after loading, one slot's keys, values and history, and the working
memory of a frame, a prompt and the codec; bytes throughout, GB are 10^9.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.halves import PIECE_FRAMES, CodecDecoder, CodecEncoder
from synth.engine.model.config import LMConfig, TransformerConfig
from synth.engine.model.dual_ar import HEAD_STEP, FastAR, SlowAR
from synth.engine.model.linear import Int8Linear

# What each part of a plan is, in the order of its table. The first ones are weights.
WEIGHT_PARTS: Mapping[str, str] = {
    "slow_weights": "slow transformer",
    "fast_weights": "fast transformer",
    "embeddings": "embedding tables",
    "head": "head of the rows that may be drawn",
    "tables": "rotary tables",
    "encoder_weights": "codec, encoding half",
    "decoder_weights": "codec, decoding half",
}
SLOT_PARTS: Mapping[str, str] = {
    "keys_and_values": "keys and values of the slots",
    "frame_cache": "keys and values within a frame",
    "history": "codes of the slots",
    "attention_work": "attention of one layer, all slots",
}
SHARED_PARTS: Mapping[str, str] = {
    "prompt_work": "prompts that are being processed",
    "codec_work": "audio that is being decoded",
    "codec_graphs": "recorded chunks of live audio",
    "prefix_cache": "kept voice prefixes",
    "reserve": "reserve",
}
HELD_FOR_SLOTS = ("keys_and_values", "frame_cache", "history")

FLOAT_BYTES = 4
# A codec half's peak, fitted to halves of 1/16, 1/4 and full width on a CPU: copies of its
# widest layer, whose channels the decoder's kernels pad, and for the encoder numbers per sample
# besides. bfloat16 takes a decoder no less, as its convolutions widen.
DECODER_COPIES, CHANNEL_STEP = 6.75, 32
# With its own kernel, by count: the residual in float32, two inputs of 16 bits, and a quarter more.
OWN_COPIES = 2.5
ENCODER_COPIES, ENCODER_NUMBERS = 5, 150


@dataclass(frozen=True, slots=True)
class NumberFormats:
    """Hold what decides how many bytes a number takes.

    `matrix_bytes` is that of the transformers' weight matrices, which may be in 8 bits (and a
    fraction for what is kept beside them) while embeddings and norms are in `model`;
    `fast_matrix_bytes` that of the fast transformer's, None where it is the same.
    `has_own_waves` says that one kernel does the decoder's convolutions.
    """

    model: torch.dtype
    cache: torch.dtype
    encoder: torch.dtype
    decoder: torch.dtype
    matrix_bytes: float
    has_own_waves: bool = False
    fast_matrix_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Demand:
    """Hold what a model takes: `weights` and one slot by part, then what all slots share.

    `codec_graphs` is 0 where nothing is recorded; graphs of frames need no memory of their own
    beside what a frame needs. `smaller` is what the same model takes in number formats that need
    less, by the value of TTS_DTYPE.
    """

    weights: Mapping[str, int]
    slot: Mapping[str, int]
    max_positions: int
    prompt_work: int
    codec_frame_work: int
    encode_work: int
    codec_graphs: int = 0
    smaller: Mapping[str, Demand] = field(default_factory=dict)

    @property
    def weight_bytes(self) -> int:
        return sum(self.weights.values())

    @property
    def slot_bytes(self) -> int:
        return sum(self.slot.values())

    def codec_work(self, frames: int) -> int:
        """Return the codec's working memory with so many frames of codes in one pass.

        At least what encoding a clip takes, during which nothing else is decoded in such passes.
        """
        return max(frames * self.codec_frame_work, self.encode_work)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Hold the bytes of an engine by part; names and meaning are those of the `*_PARTS` above.

    `codec_frames` is how many frames of codes the decoder may take in one pass.
    """

    slots: int
    max_positions: int
    codec_frames: int
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    @property
    def held(self) -> int:
        """Return the bytes that are held from the start on: weights and slots."""
        return sum(self.parts[name] for name in (*WEIGHT_PARTS, *HELD_FOR_SLOTS))

    @property
    def work(self) -> int:
        """Return the bytes that come on top at most, while all slots and the codec work."""
        return self.total - self.held - self.parts["reserve"]

    def table(self) -> str:
        """Return one line for each part and the total."""
        titles = {**WEIGHT_PARTS, **SLOT_PARTS, **SHARED_PARTS}
        rows = [(titles[name], size) for name, size in self.parts.items()]
        width = max(len(title) for title, _ in rows)
        lines = [f"{title:<{width}}  {gigabytes(size):>8}" for title, size in rows]
        total = f"{self.slots} slots of {self.max_positions} positions"
        return "\n".join([*lines, f"{total:<{width}}  {gigabytes(self.total):>8}"])


def gigabytes(num_bytes: int) -> str:
    """Return bytes for people, in GB of 10^9 or in MB where that says more."""
    if num_bytes >= 10**9:
        return f"{num_bytes / 1e9:.1f} GB"
    return f"{num_bytes / 1e6:.0f} MB" if num_bytes >= 10**7 else f"{num_bytes / 1e6:.1f} MB"


def find_demand(
    lm: LMConfig, codec: CodecConfig, formats: NumberFormats, *, max_positions: int
) -> Demand:
    """Return what a model of these sizes takes.

    Args:
        max_positions: of one slot; more than the model has are counted as those it has.
    """
    positions = min(max_positions, lm.text_config.max_seq_len)
    audio, text = lm.audio_decoder_config, lm.text_config
    with torch.device("meta"):
        halves = (CodecEncoder(codec), CodecDecoder(codec))
    encoder, decoder = (sum(weight.numel() for weight in half.parameters()) for half in halves)
    codec_weights = {
        "encoder_weights": encoder * formats.encoder.itemsize,
        "decoder_weights": decoder * formats.decoder.itemsize,
    }
    wide = FLOAT_BYTES * text.n_local_heads * text.head_dim  # keys or values of one position
    copied = 0 if formats.cache is torch.float32 else wide
    slot = {
        "keys_and_values": positions * _position_bytes(text, formats.cache),
        "frame_cache": audio.num_codebooks * _position_bytes(audio, formats.cache),
        "history": (positions + 1) * (1 + audio.num_codebooks) * torch.int32.itemsize,
        "attention_work": positions * (copied + 2 * FLOAT_BYTES * text.n_head),
    }
    # What the widest layer holds of one prompt that fills a slot.
    heads = (2 * text.n_head + 2 * text.n_local_heads) * text.head_dim
    numbers = positions * (3 * text.intermediate_size + 6 * text.dim + heads)
    of_sample = ENCODER_COPIES * codec.encoder_dim + ENCODER_NUMBERS  # of a clip, in pieces
    samples = codec.hop_length * PIECE_FRAMES
    return Demand(
        weights=_transformer_weights(lm, formats) | codec_weights,
        slot=slot,
        max_positions=positions,
        prompt_work=numbers * formats.model.itemsize,
        codec_frame_work=_codec_frame_work(codec, formats),
        encode_work=of_sample * samples * formats.encoder.itemsize,
    )


def _transformer_weights(lm: LMConfig, formats: NumberFormats) -> dict[str, int]:
    text, audio = lm.text_config, lm.audio_decoder_config
    with torch.device("meta"):
        slow, fast = SlowAR(lm), FastAR(lm)
    size = formats.model.itemsize
    slow.output = None  # of an untied head no more is kept than `head`
    tables = (slow.embeddings.weight, slow.codebook_embeddings.weight, fast.embeddings.weight)
    embeddings = sum(table.numel() for table in tables)
    rope = text.max_seq_len * text.head_dim + audio.num_codebooks * audio.head_dim
    head_rows = -(-(audio.vocab_size + 1) // HEAD_STEP) * HEAD_STEP
    wide, fast_wide = formats.matrix_bytes, formats.fast_matrix_bytes
    return {
        "slow_weights": _module_bytes(slow, wide, size),
        "fast_weights": _module_bytes(fast, wide if fast_wide is None else fast_wide, size),
        "embeddings": embeddings * size,
        "head": round(head_rows * text.dim * formats.matrix_bytes),
        "tables": rope * FLOAT_BYTES,
    }


def _module_bytes(module: nn.Module, matrix_bytes: float, other_bytes: int) -> int:
    """Return the bytes of a transformer's weights without its embedding tables."""
    matrices = sum(m.weight.numel() for m in module.modules() if isinstance(m, nn.Linear))
    named = module.named_parameters()
    others = sum(weight.numel() for name, weight in named if "embeddings" not in name) - matrices
    return round(matrices * matrix_bytes) + others * other_bytes


def _position_bytes(config: TransformerConfig, dtype: torch.dtype) -> int:
    """Return the bytes of the keys and values of one position in all layers."""
    return 2 * config.n_layer * config.n_local_heads * config.head_dim * dtype.itemsize


def _codec_frame_work(codec: CodecConfig, formats: NumberFormats) -> int:
    channels, samples, widest = codec.decoder_dim, math.prod(codec.upsample_factors), 0
    for rate in codec.decoder_rates:
        channels, samples = channels // 2, samples * rate
        padded = -(-channels // CHANNEL_STEP) * CHANNEL_STEP
        widest = max(widest, padded * samples)
    copies = OWN_COPIES if formats.has_own_waves else DECODER_COPIES
    return round(copies * widest * FLOAT_BYTES)


def held_bytes(*roots: object) -> int:
    """Return the bytes of all tensors that objects of the engine hold, each memory once.

    Looks into modules, containers and the engine's own objects, private attributes included;
    tensors in a library's own layout count with their numbers, without its padding.
    """
    seen: set[int] = set()
    memories: dict[int, int] = {}
    waiting = list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            if item.layout is torch.strided:
                storage = item.untyped_storage()
                memories[storage.data_ptr()] = storage.nbytes()
            else:
                memories[id(item)] = item.numel() * item.element_size()
        elif isinstance(item, Int8Linear):  # its rows are in an object of the library's
            memories[id(item)] = item.num_bytes
        else:
            waiting.extend(_inside(item))
    return sum(memories.values())


def memory_report(plan: MemoryPlan, device: torch.device, held_at_start: int) -> dict[str, object]:
    """Return what pages and logs show: bytes predicted by part, and bytes held.

    On CUDA the bytes held are the allocator's, now and at most since the start of the process; on a
    CPU they are those of the tensors that weights and slots had when the engine started.
    """
    report: dict[str, object] = {
        "slots": plan.slots,
        "max_positions": plan.max_positions,
        "codec_frames": plan.codec_frames,
        "predicted": dict(plan.parts),
        "predicted_total": plan.total,
        "predicted_held": plan.held,
        "held": held_at_start,
    }
    if device.type == "cuda":
        report["held"] = torch.cuda.memory_allocated(device)
        report["peak"] = torch.cuda.max_memory_allocated(device)
    return report


def _inside(item: object) -> Iterable[object]:
    """Return what an object holds; nothing for what is not the engine's or a container."""
    if isinstance(item, dict):
        return list(item.values())
    if isinstance(item, list | tuple | set):
        return list(item)
    if not isinstance(item, nn.Module) and not type(item).__module__.startswith("synth.engine"):
        return []
    names = [name for kind in type(item).__mro__ for name in getattr(kind, "__slots__", ())]
    slots = [getattr(item, name) for name in names if hasattr(item, name)]
    return [*slots, *getattr(item, "__dict__", {}).values()]
