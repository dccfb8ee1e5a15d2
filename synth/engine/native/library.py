"""Reach the compiled code from Python: its structures, its functions and the one loaded copy."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_uint8, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from synth.engine.model.linear import find_processor
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


class MatrixC(Structure):
    """Mirror `Matrix`."""

    _fields_: ClassVar = [
        ("kind", c_int32),
        ("rows", c_int32),
        ("columns", c_int32),
        ("padded", c_int32),
        ("weight", c_void_p),
        ("scale", c_void_p),
        ("sums", c_void_p),
        ("bias", c_void_p),
    ]


class LayerC(Structure):
    """Mirror `Layer`."""

    _fields_: ClassVar = [
        ("qkv", MatrixC),
        ("out", MatrixC),
        ("gate_up", MatrixC),
        ("down", MatrixC),
        ("attention_norm", c_void_p),
        ("ffn_norm", c_void_p),
        ("head_norm", c_void_p),
    ]


class AttendingC(Structure):
    """Mirror `Attending`."""

    _fields_: ClassVar = [
        ("heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("rounds", c_int32),
        ("rounds_scores", c_int32),
        ("eps", c_float),
        ("rope", c_void_p),
    ]


class StackC(Structure):
    """Mirror `Stack`."""

    _fields_: ClassVar = [
        ("num_layers", c_int32),
        ("width", c_int32),
        ("hidden", c_int32),
        ("attending", AttendingC),
        ("layers", POINTER(LayerC)),
        ("norm", c_void_p),
        ("head", MatrixC),
    ]


class ModelC(Structure):
    """Mirror `Model`."""

    _fields_: ClassVar = [
        ("slow", POINTER(StackC)),
        ("fast", POINTER(StackC)),
        ("project_in", POINTER(MatrixC)),
        ("token_table", c_void_p),
        ("columns_table", c_void_p),
        ("codes_table", c_void_p),
        ("tokens", c_void_p),
        ("semantic_begin", c_int64),
        ("semantic_end", c_int64),
        ("tables_are_bf16", c_int32),
        ("num_codebooks", c_int32),
        ("codebook_size", c_int32),
    ]


class CacheC(Structure):
    """Mirror `Cache`."""

    _fields_: ClassVar = [
        ("keys", c_void_p),
        ("values", c_void_p),
        ("layer_stride", c_int64),
        ("stream_stride", c_int64),
        ("head_stride", c_int64),
    ]


class FrameC(Structure):
    """Mirror `Frame`."""

    _fields_: ClassVar = [
        ("model", POINTER(ModelC)),
        ("streams", c_int32),
        ("with_slow", c_int32),
        ("is_first", c_int32),
        ("threads", c_int32),
        ("newest", c_void_p),
        ("x", c_void_p),
        ("position", c_void_p),
        ("prefix", c_void_p),
        ("prefix_positions", c_void_p),
        ("cache", CacheC),
        ("frame_cache", CacheC),
        ("temperature", c_void_p),
        ("top_p", c_void_p),
        ("top_k", c_void_p),
        ("frame", c_void_p),
        ("window", c_void_p),
        ("words", c_void_p),
        ("words_stride", c_int64),
        ("draws", c_int32),
        ("states", c_void_p),
        ("first", c_void_p),
        ("second", c_void_p),
        ("columns", c_void_p),
        ("is_finite", POINTER(c_uint8)),
    ]


class SnakeC(Structure):
    """Mirror `Snake`."""

    _fields_: ClassVar = [("alpha", c_void_p), ("inverse", c_void_p)]


class TapsC(Structure):
    """Mirror `Taps`."""

    _fields_: ClassVar = [
        ("channels", c_int32),
        ("outputs", c_int32),
        ("taps", c_int32),
        ("step", c_int32),
        ("weight", c_void_p),
        ("bias", c_void_p),
    ]


class DepthwiseC(Structure):
    """Mirror `Depthwise`."""

    _fields_: ClassVar = [("weight", c_void_p), ("bias", c_void_p), ("taps", c_int32)]


class CodebooksC(Structure):
    """Mirror `Codebooks`."""

    _fields_: ClassVar = [
        ("table", c_void_p),
        ("begins", c_void_p),
        ("size", c_void_p),
        ("count", c_int32),
        ("width", c_int32),
    ]


class WindowC(Structure):
    """Mirror `Window`."""

    _fields_: ClassVar = [
        ("heads", c_int32),
        ("size", c_int32),
        ("frames", c_void_p),
        ("rope", c_void_p),
        ("rope_stride", c_int64),
    ]


class NormC(Structure):
    """Mirror `Norm`."""

    _fields_: ClassVar = [("weight", c_void_p), ("bias", c_void_p), ("eps", c_float)]


class ConvolutionC(Structure):
    """Mirror `Convolution`."""

    _fields_: ClassVar = [
        ("first", SnakeC),
        ("second", SnakeC),
        ("depthwise", DepthwiseC),
        ("codebooks", CodebooksC),
        ("window", WindowC),
        ("norm", NormC),
        ("wide", TapsC),
        ("narrow", TapsC),
        ("stride", c_int32),
        ("then", c_int32),
        ("batch", c_int32),
        ("threads", c_int32),
        ("length", c_int64),
        ("before_stride", c_int64),
        ("x", c_void_p),
        ("before", c_void_p),
        ("added", c_void_p),
        ("out", c_void_p),
        ("scratch", c_void_p),
        ("counts", c_int32 * 2),
    ]


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
        self,
        matrix: MatrixC,
        x: int,
        rows: int,
        out: int,
        *,
        use: int,
        rounds: bool,
        threads: int,
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


_lock = threading.Lock()
_found: dict[str, Library | str] = {}


def native_library(cache_dir: Path | None = None) -> Library:
    """Return the code compiled for this processor, made now where it is not there yet.

    What was found once in a process stays, a failure too. PyTorch's limits on instructions hold.

    Raises:
        NotCompiledError: it cannot be had; the text says why and what helps.
    """
    processor = find_processor()
    target = find_target(processor.simd, bf16=processor.bf16)
    with _lock:
        if target.name not in _found:
            try:
                _found[target.name] = load_library(target, cache_folders(cache_dir))
            except NotCompiledError as error:
                _found[target.name] = str(error)
        found = _found[target.name]
    if isinstance(found, str):
        raise NotCompiledError(found)
    return found


def load_library(target: Target, folders: Sequence[Path]) -> Library:
    """Load the code for a class of processors from a folder, or compile it; see native_library."""
    return Library(target.name, _checked(compiled_library(target, folders)))


def _share_threads(loaded: ctypes.CDLL) -> None:
    """Give the code the threads that PyTorch has: two sets would take each other's cores.

    Raises:
        NotCompiledError: PyTorch has none of a kind that is known here.
    """
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


def _checked(loaded: ctypes.CDLL) -> ctypes.CDLL:
    """Declare the functions, and hold this file's structures to the compiled ones."""
    loaded.tts_make_frame.argtypes = [POINTER(FrameC)]
    loaded.tts_multiply.argtypes = [
        POINTER(MatrixC),
        c_void_p,
        c_int64,
        c_void_p,
        c_int32,
        c_int32,
        c_int32,
    ]
    loaded.tts_scratch.argtypes = [POINTER(ConvolutionC)]
    loaded.tts_scratch.restype = c_int64
    loaded.tts_convolve.argtypes = [POINTER(ConvolutionC), c_int32]
    loaded.tts_convolve.restype = None
    sizes = (c_int32 * len(_MIRRORS))()
    _share_threads(loaded)
    loaded.tts_sizes(sizes)
    ours = [ctypes.sizeof(mirror) for mirror in _MIRRORS]
    if list(sizes) != ours:
        raise NotCompiledError(f"compiled structures of {list(sizes)} bytes; Python has {ours}")
    return loaded
