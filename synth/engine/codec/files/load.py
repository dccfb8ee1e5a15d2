"""Build a codec half on a device from a checkpoint, and keep the loaded ones for reuse."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TypeVar, cast

import torch

from synth.engine.codec.compiled import compile_decoder
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.files.codec_file import CodecFile, open_codec
from synth.engine.codec.files.fingerprint import half_digest
from synth.engine.codec.files.stored_weights import folded_weights, stored_shapes
from synth.engine.codec.fusing import use_kernels, wants_kernels
from synth.engine.codec.precision import allow_tf32
from synth.engine.errors import InvalidSpecError

DTYPES = (torch.float32, torch.bfloat16)
Half = TypeVar("Half", CodecEncoder, CodecDecoder)
_Key = tuple[object, ...]


def load_encoder(
    checkpoint_dir: Path,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    *,
    tf32: bool = False,
    kernels: str = "auto",
) -> CodecEncoder:
    """Return a new encoding half; bfloat16 and TF32 change codes, so only on an explicit setting.

    Args:
        kernels: `auto` uses them where they can be compiled, on a CPU for the decoding half in
            float32; `off` nowhere.

    Raises:
        CheckpointError: the codec file is missing or not exactly a codec of this model.
        InvalidSpecError: `dtype` is not one that the codec runs in, or as for `allow_tf32`.
    """
    half = build_half(CodecEncoder, open_codec(checkpoint_dir), device, dtype)
    return prepare_half(half, tf32=tf32, kernels=kernels)


def load_decoder(
    checkpoint_dir: Path,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    *,
    tf32: bool = False,
    kernels: str = "auto",
) -> CodecDecoder:
    """Return a new decoding half; arguments and errors as for `load_encoder`."""
    half = build_half(CodecDecoder, open_codec(checkpoint_dir), device, dtype)
    return prepare_half(half, tf32=tf32, kernels=kernels)


def build_half(
    half_type: type[Half], opened: CodecFile, device: torch.device | str, dtype: torch.dtype
) -> Half:
    """Return a half with its weights on `device`; nothing of the other half leaves the file."""
    if dtype not in DTYPES:
        raise InvalidSpecError(f"The codec runs in float32 or bfloat16, not in {dtype}.")
    device = torch.device(device)
    with torch.device("meta"):
        half = half_type(opened.config)
    stored = {name: opened.tensors[name] for name in stored_shapes(half)}
    # A copy also where nothing changes: the file must not stay mapped under a running model.
    weights = {
        name: weight.to(device, dtype, copy=True) for name, weight in folded_weights(half, stored)
    }
    half.load_state_dict(weights, strict=True, assign=True)
    half.requires_grad_(False)
    return half.eval()


def prepare_half(half: Half, *, tf32: bool, kernels: str) -> Half:
    """Let a half that holds its weights compute as is asked, and return it.

    Raises:
        InvalidSpecError: its device or its weights cannot take TF32, or `kernels` is unknown.
    """
    if tf32:
        allow_tf32(half)
    if wants_kernels(kernels, half.device):
        return use_kernels(half)
    if kernels == "auto" and isinstance(half, CodecDecoder):
        compile_decoder(half)
    return half


class CodecCache:
    """Keep loaded halves by (weights, sizes, device, precision); the least recently used leaves."""

    def __init__(self, max_halves: int = 4) -> None:
        self._max_halves = max_halves
        self._halves: OrderedDict[_Key, CodecEncoder | CodecDecoder] = OrderedDict()
        self._lock = threading.Lock()

    def encoder(
        self,
        checkpoint_dir: Path,
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
        *,
        tf32: bool = False,
        kernels: str = "auto",
    ) -> CodecEncoder:
        """Return the encoding half of this checkpoint; as for `load_encoder`."""
        opened = open_codec(checkpoint_dir)
        return self._get(CodecEncoder, opened, device, dtype, tf32=tf32, kernels=kernels)

    def decoder(
        self,
        checkpoint_dir: Path,
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
        *,
        tf32: bool = False,
        kernels: str = "auto",
    ) -> CodecDecoder:
        """Return the decoding half of this checkpoint; as for `load_decoder`."""
        opened = open_codec(checkpoint_dir)
        return self._get(CodecDecoder, opened, device, dtype, tf32=tf32, kernels=kernels)

    def clear(self) -> None:
        """Let go of every half; those still in use elsewhere live on there."""
        with self._lock:
            self._halves.clear()

    def _get(
        self,
        half_type: type[Half],
        opened: CodecFile,
        device: torch.device | str,
        dtype: torch.dtype,
        *,
        tf32: bool,
        kernels: str,
    ) -> Half:
        # One lock around the load too: two callers must not hold the weights twice.
        with self._lock:
            digest, where = half_digest(opened, half_type), torch.device(device)
            key = (half_type, digest, opened.config, where, dtype, tf32, kernels)
            half = self._halves.get(key)
            if half is None:
                half = build_half(half_type, opened, device, dtype)
                self._halves[key] = prepare_half(half, tf32=tf32, kernels=kernels)
            self._halves.move_to_end(key)
            while len(self._halves) > self._max_halves:
                self._halves.popitem(last=False)
            return cast("Half", half)


CODECS = CodecCache()  # this process's; empty until something is asked of it
