"""Reach the compiled code from Python: its structures, its functions and the one loaded copy."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint8, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from synth.engine.native.build import (
    NotCompiledError,
    Target,
    cache_folders,
    compiled_library,
    find_target,
)

FLOAT32, BFLOAT16, INT8 = range(3)  # kinds of matrices
KEEP, _ADD, GATE = range(3)  # what becomes of products
LANES = 16  # outputs of a panel; what rows are padded to
_OPENMP = ("libgomp", "libiomp", "libomp")  # all of them have GOMP_parallel
_FUNCTIONS = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_lock = threading.Lock()
_BF16_ISAS = ("AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10")


def _fields(*parts: tuple[Any, str]) -> list[tuple[str, Any]]:
    """Return a structure's fields from kinds, each with the names of the fields that have it."""
    return [(name, kind) for kind, names in parts for name in names.split()]


# Each mirrors the structure of its name in the C code, in the same order; their sizes are compared.


class MatrixC(Structure):
    _fields_: ClassVar = _fields(
        (c_int32, "kind rows columns padded"),
        (c_void_p, "weight scale sums bias"),
    )


class LayerC(Structure):
    _fields_: ClassVar = _fields(
        (MatrixC, "qkv out gate_up down"),
        (c_void_p, "attention_norm ffn_norm head_norm"),
    )


class AttendingC(Structure):
    _fields_: ClassVar = _fields(
        (c_int32, "heads kv_heads head_dim rounds rounds_scores"),
        (c_float, "eps"),
        (c_void_p, "rope"),
    )


class StackC(Structure):
    _fields_: ClassVar = _fields(
        (c_int32, "num_layers width hidden"),
        (AttendingC, "attending"),
        (POINTER(LayerC), "layers"),
        (c_void_p, "norm"),
        (MatrixC, "head"),
    )


class ModelC(Structure):
    _fields_: ClassVar = _fields(
        (POINTER(StackC), "slow fast"),
        (POINTER(MatrixC), "project_in"),
        (c_void_p, "token_table columns_table codes_table tokens"),
        (c_int64, "semantic_begin semantic_end"),
        (c_int32, "tables_are_bf16 num_codebooks codebook_size"),
    )


class CacheC(Structure):
    _fields_: ClassVar = _fields(
        (c_void_p, "keys values"),
        (c_int64, "layer_stride stream_stride head_stride"),
    )


class FrameC(Structure):
    _fields_: ClassVar = _fields(
        (POINTER(ModelC), "model"),
        (c_int32, "streams threads"),
        (c_void_p, "newest position prefix prefix_positions"),
        (CacheC, "cache frame_cache"),
        (c_void_p, "temperature top_p top_k frame window seed noise_offset"),
        (c_void_p, "states first second columns"),
        (POINTER(c_uint8), "is_finite"),
    )


class SnakeC(Structure):
    _fields_: ClassVar = _fields((c_void_p, "alpha inverse"))


class TapsC(Structure):
    _fields_: ClassVar = _fields((c_int32, "channels outputs taps step"), (c_void_p, "weight bias"))


class DepthwiseC(Structure):
    _fields_: ClassVar = _fields((c_void_p, "weight bias"), (c_int32, "taps"))


class CodebooksC(Structure):
    _fields_: ClassVar = _fields((c_void_p, "table begins size"), (c_int32, "count width"))


class WindowC(Structure):
    _fields_: ClassVar = _fields(
        (c_int32, "heads size"),
        (c_void_p, "frames rope"),
        (c_int64, "rope_stride"),
    )


class NormC(Structure):
    _fields_: ClassVar = _fields((c_void_p, "weight bias"), (c_float, "eps"))


class ConvolutionC(Structure):
    _fields_: ClassVar = _fields(
        (SnakeC, "first second"),
        (DepthwiseC, "depthwise"),
        (CodebooksC, "codebooks"),
        (WindowC, "window"),
        (NormC, "norm"),
        (TapsC, "wide narrow"),
        (c_int32, "stride then batch threads"),
        (c_int64, "length before_stride"),
        (c_void_p, "x before added out scratch"),
        (c_int32 * 2, "counts"),
    )


_MIRRORS = (MatrixC, LayerC, StackC, ModelC, FrameC, ConvolutionC)


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """Hold the compiled functions; `target` names the class of processors they are for."""

    target: str
    _loaded: ctypes.CDLL

    def make_frame(self, frame: FrameC) -> None:
        """Make one frame of all streams; raise MemoryError where there is no room for it."""
        if self._loaded.tts_make_frame(ctypes.byref(frame)):
            raise MemoryError("no memory for a frame's intermediate results")

    def multiply(
        self, matrix: MatrixC, x: int, rows: int, out: int, *, use: int, rounds: bool, threads: int
    ) -> None:
        """Multiply float32 rows at the address x into the address out."""
        if self._loaded.tts_multiply(ctypes.byref(matrix), x, rows, out, use, rounds, threads):
            raise MemoryError(f"no memory for a product of {rows} rows")

    @property
    def outputs(self) -> int:
        """Return how many outputs a convolution's weights are laid out for side by side."""
        return int(self._loaded.tts_outputs())

    def scratch(self, convolution: ConvolutionC) -> int:
        """Return the floats that one thread needs besides what goes in and comes out."""
        return int(self._loaded.tts_scratch(ctypes.byref(convolution)))

    def convolve(self, steps: ctypes.Array[ConvolutionC]) -> None:
        """Take one step after the other; Python goes on meanwhile."""
        self._loaded.tts_convolve(steps, len(steps))


_libraries: dict[str, Library | str] = {}


def native_library(cache_dir: Path | None = None) -> Library:
    """Return the code compiled for this processor, made now where it is not there yet.

    What was found once in a process stays, a failure too. PyTorch's limits on instructions hold.

    Raises:
        NotCompiledError: it cannot be had; the text says why and what helps.
    """
    processor = find_processor()
    target = find_target(processor.simd, bf16=processor.bf16)
    with _lock:
        if target.name not in _libraries:
            try:
                _libraries[target.name] = load_library(target, cache_folders(cache_dir))
            except NotCompiledError as error:
                _libraries[target.name] = str(error)
        found = _libraries[target.name]
    if isinstance(found, str):
        raise NotCompiledError(found)
    return found


def load_library(target: Target, folders: Sequence[Path]) -> Library:
    """Load the code for a class of processors from a folder, or compile it; see native_library."""
    loaded = compiled_library(target, folders)
    loaded.tts_make_frame.argtypes = [POINTER(FrameC)]
    product = (POINTER(MatrixC), c_void_p, c_int64, c_void_p, c_int32, c_int32, c_int32)
    loaded.tts_multiply.argtypes = product
    loaded.tts_scratch.argtypes = [POINTER(ConvolutionC)]
    loaded.tts_scratch.restype = c_int64
    loaded.tts_convolve.argtypes = [POINTER(ConvolutionC), c_int32]
    loaded.tts_convolve.restype = None
    _share_threads(loaded)
    sizes = (c_int32 * len(_MIRRORS))()
    loaded.tts_sizes(sizes)
    ours = [ctypes.sizeof(mirror) for mirror in _MIRRORS]
    if list(sizes) != ours:
        raise NotCompiledError(f"compiled structures of {list(sizes)} bytes; Python has {ours}")
    return Library(target.name, loaded)


def _share_threads(loaded: ctypes.CDLL) -> None:
    """Give the code the threads that PyTorch has: two sets would take each other's cores."""
    path = openmp_path()
    if path is None:
        raise NotCompiledError("this build of PyTorch has no OpenMP with usable threads")
    openmp = ctypes.CDLL(str(path))
    loaded.tts_use_threads.argtypes = [c_void_p] * len(_FUNCTIONS)
    loaded.tts_use_threads.restype = None
    try:
        functions = [ctypes.cast(getattr(openmp, name), c_void_p) for name in _FUNCTIONS]
    except AttributeError as error:
        raise NotCompiledError(f"PyTorch's OpenMP is of an unknown kind: {error}") from error
    loaded.tts_use_threads(*functions)


def openmp_path() -> Path | None:
    """Return the OpenMP library that PyTorch brought into this process; None where it has none."""
    home = Path(torch.__file__).parent
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    paths = {Path(line.split(maxsplit=5)[5]) for line in lines if line.count("/")}
    found = sorted(path for path in paths if path.name.startswith(_OPENMP))
    own = [path for path in found if path.is_relative_to(home.parent)]
    torchs = [path for path in own if path.parent.name in ("lib", "torch.libs")]
    return next(iter([*torchs, *found]), None)


@dataclass(frozen=True, slots=True)
class Processor:
    """Hold what this processor can do as far as PyTorch's libraries are allowed to use it."""

    bf16: bool  # multiplies bfloat16 in hardware
    packing: bool  # oneDNN is there
    packs_bf16: bool  # it packs bfloat16 too, in hardware or not
    simd: str


def find_processor() -> Processor:
    """Look at the processor and at the limits that environment variables put on libraries."""
    simd = torch.backends.cpu.get_cpu_capability()
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    packing = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    wide = simd.startswith("AVX512")
    has_bf16 = getattr(torch.cpu, "_is_avx512_bf16_supported", None)  # of some versions alone
    is_allowed = limit in ("ALL", "DEFAULT", "") or limit.startswith(_BF16_ISAS)
    bf16 = wide and is_allowed and bool(has_bf16 is not None and has_bf16())
    packs_bf16 = packing and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return Processor(bf16=packs_bf16 and bf16, packing=packing, packs_bf16=packs_bf16, simd=simd)
