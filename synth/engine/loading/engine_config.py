"""Describe how an engine is to be loaded, and resolve what is left to the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from synth.engine.codec.resample import ResamplerChoice
from synth.engine.errors import InvalidSpecError
from synth.engine.kernels import why_unavailable
from synth.engine.model.config import LMConfig, matrix_parameters
from synth.engine.model.linear import LinearForm
from synth.engine.native.build import NotCompiledError
from synth.engine.native.library import Processor, find_processor, native_library

_CACHE_BYTES = 32 * 2**20  # of matrices that a processor keeps: half the bytes gain nothing there
_WITHOUT_KERNELS = "PyTorch (TTS_ENGINE_WITHOUT=kernels)"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ON_CUDA_ALONE = ("float16", "int8-slow", "fp8")
_BF16_CAPABILITY = (8, 0)  # the first that multiplies it
FP8_CAPABILITY = (8, 9)
# Of a card's memory, what matrices may take in 16 bits; codec, embeddings and slots come on top.
_HALF_SHARE = 0.6
# Of one slot: 190 s of speech, or 95 s where more slots are worth more.
MAX_POSITIONS, FEWER_POSITIONS = 4096, 2048
MIN_POSITIONS = 64
_LARGE_CARD_BYTES = 30 * 10**9  # cards of 32 GB say a little less


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Hold what `Engine.load` needs; every value is explicit, `auto` depends on the machine alone.

    `dtype` is auto, float32, bfloat16, int8, or on CUDA float16, int8-slow, which leaves the fast
    AR in 16 bits, or from capability 8.9 on fp8. `codec_decode_dtype` is auto, float32, tf32 or
    bfloat16; auto is tf32 on CUDA from capability 8 on, where products take numbers of ten bits: an
    error some 56 dB below the sound, and no other codes. `slots` streams are decoded at once, each
    with `max_positions` positions of prompt and speech; 0 means as many slots, or positions, as
    suit the device.
    `strict`: a segment's codes do not depend on its neighbours in one bit, at some cost in time.
    `threads` 0 leaves torch's own choice. `cache_dir` keeps digests of weights between starts.
    `prefix_cache_bytes` is the most that kept voice prefixes take on the device. `graphs` is auto,
    on or off; auto captures the decode step as graphs wherever the device has them. `kernels` is
    auto or off; auto computes with our own kernels wherever they can be compiled: Triton's on CUDA,
    on a CPU whole frames and codes to audio in C.
    """

    checkpoint: Path
    device: str = "auto"
    dtype: str = "auto"
    codec_encode_dtype: str = "float32"
    codec_decode_dtype: str = "auto"
    resampler: str = "auto"
    slots: int = 8
    max_positions: int = 4096
    threads: int = 0
    cache_dir: Path | None = None
    strict: bool = False
    prefix_cache_bytes: int = 10**9
    graphs: str = "auto"
    kernels: str = "auto"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Hold how the transformers compute: the dtype of activations, the matrices' form, and why.

    `frames` says what computes frames, and why it is not our own kernels where it is not.
    `fast_form` is that of the fast AR's matrices; None means `form`.
    """

    dtype: torch.dtype
    form: LinearForm
    reason: str
    frames: str = ""
    fast_form: LinearForm | None = None

    @property
    def name(self) -> str:
        """Return the setting that asks for these."""
        if eight := self.form.eight_bits:
            return eight if self.fast_form is None else f"{eight}-slow"
        return str(self.dtype).removeprefix("torch.")


@dataclass(frozen=True, slots=True)
class Card:
    """Hold what a CUDA device is; `memory` is all it has, in bytes."""

    name: str
    capability: tuple[int, int]
    memory: int

    def __str__(self) -> str:
        return f"{self.name}, compute capability {'.'.join(map(str, self.capability))}"


def find_card(device: torch.device) -> Card:
    found = torch.cuda.get_device_properties(device)
    return Card(found.name, (found.major, found.minor), found.total_memory)


def slot_positions(asked: int, device: torch.device) -> int:
    """Return the positions of a slot; for 0 those that suit the device.

    Raises:
        InvalidSpecError: so few were asked for that no prompt has room.
    """
    if 0 < asked < MIN_POSITIONS:
        raise InvalidSpecError(
            f"{asked} positions leave a prompt no room; set TTS_ENGINE_MAX_POSITIONS to "
            f"{MIN_POSITIONS} or more, or to 0."
        )
    if asked or device.type != "cuda":
        return asked or MAX_POSITIONS
    return MAX_POSITIONS if find_card(device).memory >= _LARGE_CARD_BYTES else FEWER_POSITIONS


def resolve_device(name: str) -> torch.device:
    """Return the device of a setting: `auto` is CUDA where present, else the CPU.

    Raises:
        InvalidSpecError: the name is unknown to torch, the machine has no such device, or the
            engine or this PyTorch does not run on it.
    """
    if name == "auto":
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidSpecError(f"{name!r} is not a device; use auto, cpu or cuda:N.") from error
    if device.type == "cuda" and torch.version.hip is not None:
        raise InvalidSpecError(
            f"This PyTorch is built for AMD devices (ROCm {torch.version.hip}), for which the "
            "engine has no kernels; set TTS_DEVICE=cpu, or use an NVIDIA device."
        )
    if device.type == "mps":
        raise InvalidSpecError(
            "The engine does not run on Apple's GPUs, for which it has no kernels; set "
            "TTS_DEVICE=cpu, where compiled code makes frames."
        )
    if device.type not in ("cpu", "cuda"):
        raise InvalidSpecError(f"{name!r} is not supported; use auto, cpu or cuda:N.")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise InvalidSpecError(
                f"The device {name!r} was requested, but torch {torch.__version__} sees "
                f"{count} CUDA devices. Use auto or cpu, or install a CUDA build with "
                "TTS_TORCH=cuda."
            )
        device = torch.device("cuda", device.index or 0)
        _check_build(find_card(device), torch.cuda.get_arch_list())
        return device
    return torch.device("cpu")


def _check_build(card: Card, names: Sequence[str]) -> None:
    """Raise InvalidSpecError where PyTorch has no code for a card.

    Args:
        names: what it has code for: sm_86 runs on 8.6 and on what follows within 8, and a driver
            translates compute_90 for all that follows; none means that it does not say.
    """
    for name in names:
        kind, _, digits = name.partition("_")
        capability = (int(digits[:-1]), int(digits[-1])) if digits.isdigit() else (0, 0)
        is_near = kind == "compute" or capability[0] == card.capability[0]
        if is_near and capability <= card.capability:
            return
    if names:
        raise InvalidSpecError(
            f"torch {torch.__version__} has code for {', '.join(names)} and none for the device "
            f"{card}; set TTS_DEVICE=cpu, or use a device that it has code for."
        )


def describe_device(device: torch.device) -> str:
    """Return a device for logs: a card's name and compute capability."""
    return f"{device} {find_card(device)}" if device.type == "cuda" else str(device)


def describe_graphs(name: str, device: torch.device) -> str:
    """Return whether frames are captured as graphs, and why not; errors as for `wants_graphs`."""
    if wants_graphs(name, device):
        return "captured as graphs"
    if device.type != "cuda":
        return "no graphs, as on every CPU"
    return "no graphs (TTS_ENGINE_WITHOUT=graphs)"


def wants_graphs(name: str, device: torch.device) -> bool:
    """Return whether the decode step is to be captured as graphs; `auto` is on with CUDA.

    Raises:
        InvalidSpecError: the name is unknown, or graphs were asked for and the device has none.
    """
    if name not in ("auto", "on", "off"):
        raise InvalidSpecError(f"{name!r} is not a setting for graphs; use auto, on or off.")
    if name == "on" and device.type != "cuda":
        raise InvalidSpecError(
            f"Graphs need a CUDA device, but the engine runs on {device}; use auto or off."
        )
    return name != "off" and device.type == "cuda"


def choose_numbers(
    name: str,
    device: torch.device,
    lm: LMConfig,
    *,
    kernels: str = "auto",
    cache_dir: Path | None = None,
) -> Numbers:
    """Return the number formats of a setting for a model of these sizes on a device.

    `auto` is bfloat16 on CUDA, float16 on cards that do not multiply bfloat16, and int8 where the
    matrices leave too little of the card's memory. On a CPU it is bfloat16 where the processor
    multiplies it and the matrices are too large for its cache, else float32. There matrices are
    laid out for compiled frames, unless `kernels` is off or nothing compiles them; then they are
    packed by oneDNN.

    Args:
        kernels, cache_dir: as in `EngineConfig`; the first call on a machine compiles for seconds.

    Raises:
        InvalidSpecError: the name is unknown, or the format is not to be had on this device.
    """
    if device.type != "cpu":
        numbers = card_numbers(name, find_card(device), lm)
        problem = None if kernels == "off" else why_unavailable(device)
        frames = "Triton's kernels" if problem is None else f"PyTorch, slower: {problem}"
        return replace(numbers, frames=_WITHOUT_KERNELS if kernels == "off" else frames)
    if name in _ON_CUDA_ALONE:
        raise InvalidSpecError(
            f"{name} works only on CUDA devices; on a CPU set TTS_DTYPE to auto, float32, bfloat16 "
            "or int8."
        )
    numbers = _processor_numbers(name, find_processor(), lm)
    if kernels == "off":
        return replace(numbers, frames=_WITHOUT_KERNELS)
    try:
        library = native_library(cache_dir)
    except NotCompiledError as error:
        return replace(numbers, frames=f"PyTorch, at half the speed: {error}")
    form = LinearForm.NATIVE_INT8 if numbers.form.eight_bits else LinearForm.NATIVE
    return replace(numbers, form=form, frames=f"compiled for {library.target}")


def card_numbers(name: str, card: Card, lm: LMConfig) -> Numbers:
    """Return the number formats of a setting on a CUDA device; errors as for `choose_numbers`."""
    multiplies_bf16 = card.capability >= _BF16_CAPABILITY
    half = torch.bfloat16 if multiplies_bf16 else torch.float16
    if name in ("int8", "int8-slow"):
        fast_form = LinearForm.PLAIN if name == "int8-slow" else None
        reason = f"chosen by TTS_DTYPE={name}"
        return Numbers(half, LinearForm.INT8_ROWS, reason, fast_form=fast_form)
    if name == "fp8":
        if card.capability < FP8_CAPABILITY:
            raise InvalidSpecError(
                f"fp8 needs compute capability 8.9, but the device is {card}; set TTS_DTYPE to "
                "auto or int8."
            )
        return Numbers(half, LinearForm.FP8_ROWS, "chosen by TTS_DTYPE=fp8")
    if name == "bfloat16" and not multiplies_bf16:
        raise InvalidSpecError(
            f"bfloat16 needs compute capability 8.0, but the device is {card}; set TTS_DTYPE to "
            "auto or float16."
        )
    if name != "auto":
        return Numbers(named_dtype(name), LinearForm.PLAIN, f"chosen by TTS_DTYPE={name}")
    size = matrix_parameters(lm) * half.itemsize
    if size > _HALF_SHARE * card.memory:
        reason = f"{size / 1e9:.1f} GB in 16 bits are too much for {card.memory / 1e9:.1f} GB"
        return Numbers(half, LinearForm.INT8_ROWS, reason)
    does = "multiplies" if multiplies_bf16 else "does not multiply"
    return Numbers(half, LinearForm.PLAIN, f"the device {does} bfloat16")


def _processor_numbers(name: str, processor: Processor, lm: LMConfig) -> Numbers:
    """Return the number formats of a setting on a processor, as PyTorch multiplies them."""
    packed = LinearForm.PACKED if processor.packing else LinearForm.PLAIN
    if name == "int8":
        return Numbers(torch.float32, LinearForm.INT8, "chosen by TTS_DTYPE=int8")
    if name != "auto":
        dtype, reason = named_dtype(name), f"chosen by TTS_DTYPE={name}"
        if name == "bfloat16" and not processor.packs_bf16:
            return Numbers(dtype, LinearForm.PLAIN, f"{reason}; PyTorch packs no bfloat16 here")
        return Numbers(dtype, packed, reason)
    if not processor.packing:
        return Numbers(torch.float32, packed, "this build of PyTorch has no oneDNN to pack with")
    if not processor.bf16:
        return Numbers(torch.float32, packed, f"{processor.simd} does not multiply bfloat16")
    size = matrix_parameters(lm) * torch.float32.itemsize
    if size <= _CACHE_BYTES:
        return Numbers(torch.float32, packed, f"{size / 1e6:.0f} MB of matrices fit into its cache")
    return Numbers(torch.bfloat16, packed, "the processor multiplies bfloat16")


def named_dtype(name: str) -> torch.dtype:
    """Return a dtype of floats by its name; raise InvalidSpecError for any other."""
    if name not in _DTYPES:
        raise InvalidSpecError(f"{name!r} is not a number format; use float32 or bfloat16.")
    return _DTYPES[name]


def resampler_choice(name: str) -> ResamplerChoice:
    """Return the resampler of a setting; raise InvalidSpecError for an unknown name."""
    try:
        return ResamplerChoice(name)
    except ValueError as error:
        raise InvalidSpecError(
            f"{name!r} is not a resampler; use auto, torchaudio or builtin."
        ) from error
