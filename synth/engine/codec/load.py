"""Build a codec half on a device from a checkpoint, and keep the loaded ones for reuse."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TypeVar, cast

import torch

from synth.engine.codec.codec_file import CodecFile, open_codec
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.fingerprint import half_digest
from synth.engine.codec.precision import allow_tf32
from synth.engine.codec.stored_weights import folded_weights, stored_shapes
from synth.engine.errors import InvalidSpecError

DTYPES = (torch.float32, torch.bfloat16)
Half = TypeVar("Half", CodecEncoder, CodecDecoder)
_Key = tuple[object, ...]


def load_encoder(
    checkpoint_dir: Path, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> CodecEncoder:
    """Return a new encoding half; bfloat16 changes codes, so only on an explicit setting.

    Raises:
        CheckpointError: the codec file is missing or not exactly a codec of this model.
        InvalidSpecError: `dtype` is not one that the codec runs in.
    """
    return build_half(CodecEncoder, open_codec(checkpoint_dir), device, dtype)


def load_decoder(
    checkpoint_dir: Path,
    device: torch.device | str,
    dtype: torch.dtype = torch.float32,
    *,
    tf32: bool = False,
) -> CodecDecoder:
    """Return a new decoding half; errors as for `load_encoder` and `allow_tf32`."""
    decoder = build_half(CodecDecoder, open_codec(checkpoint_dir), device, dtype)
    return allow_tf32(decoder) if tf32 else decoder


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


class CodecCache:
    """Keep loaded halves by (weights, sizes, device, precision); the least recently used leaves."""

    def __init__(self, max_halves: int = 4) -> None:
        self._max_halves = max_halves
        self._halves: OrderedDict[_Key, CodecEncoder | CodecDecoder] = OrderedDict()
        self._lock = threading.Lock()

    def encoder(
        self, checkpoint_dir: Path, device: torch.device | str, dtype: torch.dtype = torch.float32
    ) -> CodecEncoder:
        """Return the encoding half of this checkpoint; errors as for `load_encoder`."""
        return self._get(CodecEncoder, checkpoint_dir, device, dtype)

    def decoder(
        self,
        checkpoint_dir: Path,
        device: torch.device | str,
        dtype: torch.dtype = torch.float32,
        *,
        tf32: bool = False,
    ) -> CodecDecoder:
        """Return the decoding half of this checkpoint; errors as for `load_decoder`."""
        return self._get(CodecDecoder, checkpoint_dir, device, dtype, tf32=tf32)

    def clear(self) -> None:
        """Let go of every half; those still in use elsewhere live on there."""
        with self._lock:
            self._halves.clear()

    def _get(
        self,
        half_type: type[Half],
        checkpoint_dir: Path,
        device: torch.device | str,
        dtype: torch.dtype,
        *,
        tf32: bool = False,
    ) -> Half:
        # One lock around the load too: two callers must not hold the weights twice.
        with self._lock:
            opened = open_codec(checkpoint_dir)
            digest = half_digest(opened, half_type)
            key = (half_type, digest, opened.config, torch.device(device), dtype, tf32)
            half = self._halves.get(key)
            if half is None:
                half = build_half(half_type, opened, device, dtype)
                if tf32:
                    allow_tf32(half)
                self._halves[key] = half
            self._halves.move_to_end(key)
            while len(self._halves) > self._max_halves:
                self._halves.popitem(last=False)
            return cast("Half", half)


CODECS = CodecCache()  # this process's; empty until something is asked of it
