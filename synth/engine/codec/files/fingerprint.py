"""Name what a codec computes by its content: the same weights in any file give the same name."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from synth.engine.codec.config import CodecConfig
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.files.codec_file import CodecFile, open_codec
from synth.engine.codec.files.stored_weights import stored_shapes
from synth.engine.loading.atomic_file import replace_file

# Counts up when a waveform would be prepared otherwise (mixing, resampling, padding): codes made
# before are then stale.
PREPROCESSING_VERSION = 1
CACHE_NAME = "codec-digests.json"
CACHE_ENTRIES = 16

_memo: OrderedDict[str, str] = OrderedDict()
_memo_lock = threading.Lock()


def codec_fingerprint(
    checkpoint_dir: Path,
    dtype: torch.dtype = torch.float32,
    *,
    tf32: bool = False,
    cache_dir: Path | None = None,
) -> str:
    """Return what a voice's codes depend on besides its clip, as hexadecimal sha256.

    It covers the weights used to encode, the sizes that no tensor shows, the encoder's dtype and
    the preprocessing version; not the container, nor the dtype the file stores its weights in.

    Args:
        dtype: that of the encoder, float32 or bfloat16.
        tf32: whether its convolutions take TF32.
        cache_dir: where the weights' digest is kept, so that a restart need not read them all.

    Raises:
        CheckpointError: the codec cannot be read.
    """
    return fingerprint_of(open_codec(checkpoint_dir), dtype, tf32=tf32, cache_dir=cache_dir)


def fingerprint_of(
    opened: CodecFile,
    dtype: torch.dtype = torch.float32,
    *,
    tf32: bool = False,
    cache_dir: Path | None = None,
) -> str:
    """Return `codec_fingerprint` of a codec file that is open already."""
    numbers = "tf32" if tf32 else str(dtype)
    weights = half_digest(opened, CodecEncoder, cache_dir=cache_dir)
    return _sha256_of(
        "encode", weights, numbers, str(PREPROCESSING_VERSION), _hidden_sizes(opened.config)
    )


def half_digest(
    opened: CodecFile,
    half: type[CodecEncoder] | type[CodecDecoder],
    *,
    cache_dir: Path | None = None,
) -> str:
    """Return the sha256 of the weights that one half uses, remembered by the file's identity."""
    key = f"{half.__name__}|{opened.identity}"
    kept = _recall(key, cache_dir)
    if kept is not None:
        return kept
    with torch.device("meta"):
        names = stored_shapes(half(opened.config))
    digest = weights_digest({name: opened.tensors[name] for name in names})
    _remember(key, digest, cache_dir)
    return digest


def weights_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 over names, shapes and values as little-endian float32, sorted by name."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name}{tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().float().contiguous().numpy().astype("<f4", copy=False).data)
    return digest.hexdigest()


def _hidden_sizes(config: CodecConfig) -> str:
    windows = (config.encoder_transformer.window, config.pre_module.window)
    return f"{config.sample_rate} {windows}"


def _sha256_of(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _recall(key: str, cache_dir: Path | None) -> str | None:
    with _memo_lock:
        kept = _memo.get(key)
    if kept is None and cache_dir is not None:
        kept = _read_cache(cache_dir / CACHE_NAME).get(key)
    return kept


def _remember(key: str, digest: str, cache_dir: Path | None) -> None:
    with _memo_lock:
        _memo[key] = digest
        while len(_memo) > CACHE_ENTRIES:
            _memo.popitem(last=False)
    if cache_dir is None:
        return
    cache_dir.mkdir(parents=True, exist_ok=True)
    entries = list(_read_cache(cache_dir / CACHE_NAME).items())[1 - CACHE_ENTRIES :]
    text = json.dumps(dict([*entries, (key, digest)]), indent=1)
    # Two processes that write at once lose one entry, which is then computed again.
    replace_file(cache_dir / CACHE_NAME, lambda path: path.write_text(text, encoding="utf-8"))


def _read_cache(path: Path) -> dict[str, str]:
    """Return the kept digests; none where the file is missing or damaged: they are made again."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {str(key): value for key, value in kept.items() if isinstance(value, str)}
