"""Load both transformers and both codec halves of a checkpoint, and check that they fit."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from synth.contract import EngineClass
from synth.engine.codec import CODECS, CodecDecoder, CodecEncoder, codec_fingerprint
from synth.engine.codec.files.codec_file import open_codec
from synth.engine.codec.files.fingerprint import half_digest
from synth.engine.codec.fusing import uses_kernels, wants_kernels
from synth.engine.codec.precision import decode_precision, encode_precision
from synth.engine.codec.resample import ResamplerChoice, chosen_resampler
from synth.engine.errors import CheckpointError
from synth.engine.loading.atomic_file import replace_file
from synth.engine.loading.engine_config import (
    EngineConfig,
    choose_numbers,
    resampler_choice,
    resolve_device,
)
from synth.engine.loading.weights import find_weight_files, load_dual_ar
from synth.engine.model.config import load_config
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.linear import find_processor
from synth.engine.model.sampling import SAMPLER_VERSION
from synth.engine.native.library import native_library
from synth.engine.prompt import PROMPT_VERSION
from synth.engine.tokenizer import Tokenizer

logger = logging.getLogger(__name__)
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModels:
    """Hold everything immutable: weights, tokenizer, device, fingerprints."""

    dual_ar: DualAR
    tokenizer: Tokenizer
    encoder: CodecEncoder
    decoder: CodecDecoder
    device: torch.device
    resampler: ResamplerChoice
    resampler_name: str
    model_fingerprint: str
    codec_fingerprint: str
    decoder_fingerprint: str

    @property
    def sample_rate(self) -> int:
        """Return the rate of rendered audio in Hz."""
        return self.decoder.config.sample_rate

    @property
    def max_positions(self) -> int:
        """Return the positions of the slow AR."""
        return self.dual_ar.config.text_config.max_seq_len


def check_folder(checkpoint: Path) -> None:
    """Raise CheckpointError when a checkpoint is no folder."""
    if not checkpoint.is_dir():
        raise CheckpointError(
            f"{checkpoint} is not a folder; set TTS_CHECKPOINT to the model's folder."
        )


def load_models(config: EngineConfig) -> LoadedModels:
    """Load a checkpoint directory; nothing is filled in where a file or key is missing.

    Raises:
        CheckpointError: a file or key is missing, unknown or misshapen, or the parts do not fit.
        InvalidSpecError, ResamplerUnavailableError: a setting cannot be met on this machine.
    """
    check_folder(config.checkpoint)
    device = resolve_device(config.device)
    encode = encode_precision(config.codec_encode_dtype, device)
    decode = decode_precision(config.codec_decode_dtype, device)
    choice = resampler_choice(config.resampler)
    dual_ar, tokenizer = load_transformers(config, device)
    encoder = CODECS.encoder(
        config.checkpoint, device, encode.dtype, tf32=encode.tf32, kernels=config.kernels
    )
    decoder = CODECS.decoder(
        config.checkpoint, device, decode.dtype, tf32=decode.tf32, kernels=config.kernels
    )
    _check_fit(dual_ar, encoder)
    codec_rate = encoder.config.sample_rate
    return LoadedModels(
        dual_ar=dual_ar,
        tokenizer=tokenizer,
        encoder=encoder,
        decoder=decoder,
        device=device,
        resampler=choice,
        # Asked for a pair of rates that need a filter, so that a missing one shows now.
        resampler_name=chosen_resampler(choice, 48_000, codec_rate),
        model_fingerprint=model_fingerprint(
            config.checkpoint, PROMPT_VERSION, cache_dir=config.cache_dir
        ),
        codec_fingerprint=codec_fingerprint(
            config.checkpoint, encode.dtype, tf32=encode.tf32, cache_dir=config.cache_dir
        ),
        decoder_fingerprint=half_digest(
            open_codec(config.checkpoint), CodecDecoder, cache_dir=config.cache_dir
        ),
    )


def engine_class(config: EngineConfig, models: LoadedModels) -> EngineClass:
    """Return what takes of an engine over these models depend on."""
    model, decoder, device = models.dual_ar, models.decoder, models.device
    compiled = f"compiled {native_library().target}" if _has_compiled(models) else ""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        by_kernels, by_pytorch = f"Triton sm_{major}{minor}", f"PyTorch sm_{major}{minor}"
    else:
        by_kernels, by_pytorch = compiled, f"PyTorch {find_processor().simd}"
    return EngineClass(
        model=models.model_fingerprint,
        sampler=SAMPLER_VERSION,
        numbers=f"{str(model.dtype).removeprefix('torch.')} {model.weight_format}",
        backend=by_kernels if model.has_own_frames else f"{by_pytorch} {model.form.value}",
        strict=config.strict,
        decoder=models.decoder_fingerprint,
        decoder_numbers=config.codec_decode_dtype,
        decoder_backend=by_kernels if uses_kernels(decoder) else by_pytorch,
    )


def _has_compiled(models: LoadedModels) -> bool:
    """Return whether compiled code of ours computes frames or audio."""
    return models.dual_ar.native is not None or models.decoder.compiled is not None


def load_transformers(config: EngineConfig, device: torch.device) -> tuple[DualAR, Tokenizer]:
    """Load both transformers and their tokenizer alone; errors as for `load_models`."""
    wants = wants_kernels(config.kernels, device)  # an unknown choice is refused before the work
    numbers = choose_numbers(
        config.dtype,
        device,
        load_config(config.checkpoint),
        kernels=config.kernels,
        cache_dir=config.cache_dir,
    )
    logger.info("frames on %s: %s", device, numbers.frames)
    model, tokenizer = load_dual_ar(
        config.checkpoint, device=device, dtype=numbers.dtype, form=numbers.form
    )
    if wants:
        model.use_kernels()
    return model, tokenizer


def _check_fit(dual_ar: DualAR, encoder: CodecEncoder) -> None:
    """Raise CheckpointError when the codec's codebooks are not the language model's."""
    ours, codec = dual_ar.slow.num_codebooks, encoder.config.num_codebooks
    if ours != codec:
        raise CheckpointError(
            f"The model uses {ours} codebooks, but the codec has {codec}: codec.pth belongs "
            "to another model. Download the checkpoint again."
        )
    size, semantic = dual_ar.slow.codebook_size, encoder.config.semantic_codebook_size
    if size != semantic:
        raise CheckpointError(
            f"The model has {size} semantic codes, but the codec has {semantic}: codec.pth "
            "belongs to another model. Download the checkpoint again."
        )


def model_fingerprint(
    checkpoint_dir: Path, prompt_version: str, *, cache_dir: Path | None = None
) -> str:
    """Return a digest of configuration, weights, tokenizer and the prompt's layout version.

    With `cache_dir` a file that kept path, size and modification time is not read again. Raises
    CheckpointError for a missing file.
    """
    files = ["config.json", "tokenizer.json", *(p.name for p in find_weight_files(checkpoint_dir))]
    return files_fingerprint(
        (checkpoint_dir / name for name in files), salt=prompt_version, cache_dir=cache_dir
    )


def files_fingerprint(paths: Iterable[Path], *, salt: str, cache_dir: Path | None = None) -> str:
    """Return one digest, 64 hex digits, over the names and contents of files, in their order."""
    total = hashlib.sha256(f"{salt}\n".encode())
    for path in paths:
        total.update(f"{path.name} {file_digest(path, cache_dir=cache_dir)}\n".encode())
    return total.hexdigest()


def file_digest(path: Path, *, cache_dir: Path | None = None) -> str:
    """Return the SHA-256 of a file's content; see `model_fingerprint` for the cache."""
    try:
        stat = path.stat()
    except OSError as error:
        raise CheckpointError(f"{path} is missing or cannot be read.") from error
    facts: list[str | int] = [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
    entry = None
    if cache_dir is not None:
        entry = cache_dir / f"{hashlib.sha256(str(facts[0]).encode()).hexdigest()}.json"
        if (known := _cached_digest(entry, facts)) is not None:
            return known
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    if entry is not None:
        _store(entry, {"facts": facts, "sha256": digest.hexdigest()})
    return digest.hexdigest()


def _cached_digest(entry: Path, facts: list[str | int]) -> str | None:
    """Return the remembered digest, None when there is none for exactly these facts."""
    try:
        content = json.loads(entry.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # no entry, or one cut short by a crash: the file is read again
    if not isinstance(content, dict) or content.get("facts") != facts:
        return None
    digest = content.get("sha256")
    return digest if isinstance(digest, str) else None


def _store(entry: Path, content: dict[str, object]) -> None:
    """Write an entry whole or not at all, whoever else writes it now."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    replace_file(entry, lambda part: part.write_text(json.dumps(content), encoding="utf-8"))
