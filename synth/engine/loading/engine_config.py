"""Describe how an engine is to be loaded, and resolve what is left to the machine."""

from __future__ import annotations

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
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Hold what `Engine.load` needs; every value is explicit, `auto` depends on the machine alone.

    `dtype` is auto, float32, bfloat16 or int8. `codec_decode_dtype` is auto, float32, tf32 or
    bfloat16; auto is tf32 on CUDA from capability 8 on, where products take numbers of ten bits:
    an error some 56 dB below the sound, and no other codes. `slots` streams are decoded at once,
    each with `max_positions` positions of prompt and speech; 0 slots means as many as the device
    suits.
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

    `frames` says what computes frames on a CPU, and why it is not compiled code where it is not.
    """

    dtype: torch.dtype
    form: LinearForm
    reason: str
    frames: str = ""

    @property
    def name(self) -> str:
        """Return the setting that asks for these."""
        return "int8" if self.form.is_int8 else str(self.dtype).removeprefix("torch.")


def resolve_device(name: str) -> torch.device:
    """Return the device of a setting: `auto` is CUDA where present, else the CPU.

    Raises:
        InvalidSpecError: the name is unknown to torch, or the machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidSpecError(f"{name!r} is not a device; use auto, cpu or cuda:N.") from error
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
        return torch.device("cuda", device.index or 0)
    return torch.device("cpu")


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

    `auto` is bfloat16 on CUDA. On a CPU it is bfloat16 where the processor multiplies it and the
    matrices are too large for its cache, else float32. There matrices are laid out for compiled
    frames, unless `kernels` is off or nothing compiles them; then they are packed by oneDNN.

    Args:
        kernels, cache_dir: as in `EngineConfig`; the first call on a machine compiles for seconds.

    Raises:
        InvalidSpecError: the name is unknown, or the format is not to be had on this device.
    """
    if device.type != "cpu":
        if name == "int8":
            raise InvalidSpecError("int8 works only on a CPU; set TTS_DTYPE to auto or bfloat16.")
        dtype = torch.bfloat16 if name == "auto" else named_dtype(name)
        reason = "the device's own kernels take plain matrices"
        problem = None if kernels == "off" else why_unavailable(device)
        frames = "Triton's kernels" if problem is None else f"PyTorch, slower: {problem}"
        frames = _WITHOUT_KERNELS if kernels == "off" else frames
        return Numbers(dtype, LinearForm.PLAIN, reason, frames)
    numbers = _processor_numbers(name, find_processor(), lm)
    if kernels == "off":
        return replace(numbers, frames=_WITHOUT_KERNELS)
    try:
        library = native_library(cache_dir)
    except NotCompiledError as error:
        return replace(numbers, frames=f"PyTorch, at half the speed: {error}")
    form = LinearForm.NATIVE_INT8 if numbers.form.is_int8 else LinearForm.NATIVE
    return replace(numbers, form=form, frames=f"compiled for {library.target}")


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
    """Return float32 or bfloat16 by its name; raise InvalidSpecError for any other."""
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
