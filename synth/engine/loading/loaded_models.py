"""Load both transformers and both codec halves of a checkpoint, and check that they fit."""

from __future__ import annotations

import hashlib
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from synth.contract import EngineClass
from synth.engine.codec.codec_file import codec_fingerprint, half_digest, open_codec
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.load import (
    decoding_precision,
    half_dtype,
    load_decoder,
    load_encoder,
    uses_kernels,
    wants_kernels,
)
from synth.engine.codec.resample import ResamplerChoice, chosen_resampler
from synth.engine.errors import CheckpointError
from synth.engine.kernels import multiprocessors
from synth.engine.loading.engine_config import (
    EngineConfig,
    choose_numbers,
    describe_device,
    describe_graphs,
    resampler_choice,
    resolve_device,
)
from synth.engine.loading.weights import file_digest, find_weight_files, load_dual_ar
from synth.engine.model.config import load_config
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.sampling import SAMPLER_VERSION
from synth.engine.native.library import find_processor, native_library
from synth.engine.prompt import PROMPT_VERSION, Tokenizer

logger = logging.getLogger(__name__)
_DIGEST_THREADS = 4


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
        return self.decoder.config.sample_rate

    @property
    def max_positions(self) -> int:
        return self.dual_ar.config.text_config.max_seq_len


def check_folder(checkpoint: Path) -> None:
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
    # Refused before the work.
    half_dtype(CodecEncoder, config.codec_encode_dtype, device)
    precision = decoding_precision(config.codec_decode_dtype, device)
    half_dtype(CodecDecoder, precision, device)
    choice = resampler_choice(config.resampler)
    folder, kernels, cache_dir = config.checkpoint, config.kernels, config.cache_dir
    with ThreadPoolExecutor(1) as beside:
        # Digests of many GB take as long as loading them does.
        fingerprint = beside.submit(model_fingerprint, folder, PROMPT_VERSION, cache_dir=cache_dir)
        dual_ar, tokenizer = load_transformers(config, device)
        encoder = load_encoder(folder, device, config.codec_encode_dtype, kernels=kernels)
        decoder = load_decoder(folder, device, precision, kernels=kernels)
        _check_fit(dual_ar, encoder)
    opened = open_codec(folder)
    return LoadedModels(
        dual_ar=dual_ar,
        tokenizer=tokenizer,
        encoder=encoder,
        decoder=decoder,
        device=device,
        resampler=choice,
        # Asked for a pair of rates that need a filter, so that a missing one shows now.
        resampler_name=chosen_resampler(choice, 48_000, encoder.config.sample_rate),
        model_fingerprint=fingerprint.result(),
        codec_fingerprint=codec_fingerprint(opened, config.codec_encode_dtype, cache_dir=cache_dir),
        decoder_fingerprint=half_digest(opened, CodecDecoder, cache_dir=cache_dir),
    )


def engine_class(config: EngineConfig, models: LoadedModels) -> EngineClass:
    """Return what takes of an engine over these models depend on."""
    model, decoder, device = models.dual_ar, models.decoder, models.device
    has_compiled = model.native is not None or decoder.compiled is not None
    compiled = f"compiled {native_library().target}" if has_compiled else ""
    if device.type == "cuda":
        # Kernels and libraries cut their sums by the number of multiprocessors.
        major, minor = torch.cuda.get_device_capability(device)
        card = f"sm_{major}{minor} x{multiprocessors(device)}"
        by_kernels, by_pytorch = f"Triton {card}", f"PyTorch {card}"
    else:
        by_kernels, by_pytorch = compiled, f"PyTorch {find_processor().simd}"
    return EngineClass(
        model=models.model_fingerprint,
        sampler=SAMPLER_VERSION,
        numbers=f"{str(model.dtype).removeprefix('torch.')} {model.weight_format}",
        backend=by_kernels if model.has_own_frames else f"{by_pytorch} {model.form.value}",
        strict=config.strict,
        decoder=models.decoder_fingerprint,
        decoder_numbers=decoding_precision(config.codec_decode_dtype, device),
        decoder_backend=by_kernels if uses_kernels(decoder) else by_pytorch,
    )


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
    logger.info(
        "engine on %s: numbers %s (%s); frames by %s; %s",
        describe_device(device),
        numbers.name,
        numbers.reason,
        numbers.frames,
        describe_graphs(config.graphs, device),
    )
    if not wants and device.type == "cuda":
        logger.warning("frames are made by %s", numbers.frames)
    model, tokenizer = load_dual_ar(
        config.checkpoint,
        device=device,
        dtype=numbers.dtype,
        form=numbers.form,
        fast_form=numbers.fast_form,
    )
    if wants:
        model.use_kernels()
    return model, tokenizer


def _check_fit(dual_ar: DualAR, encoder: CodecEncoder) -> None:
    """Raise CheckpointError when the codec's codebooks are not the language model's."""
    ours, codec = dual_ar.slow, encoder.config
    for what, own, other in (
        ("uses {} codebooks", ours.num_codebooks, codec.num_codebooks),
        ("has {} semantic codes", ours.codebook_size, codec.semantic_codebook_size),
    ):
        if own != other:
            raise CheckpointError(
                f"The model {what.format(own)}, but the codec has {other}: codec.pth belongs "
                "to another model. Download the checkpoint again."
            )


def model_fingerprint(
    checkpoint_dir: Path, prompt_version: str, *, cache_dir: Path | None = None
) -> str:
    """Return a digest of configuration, weights, tokenizer and the prompt's layout version.

    Several files are read at once. With `cache_dir` a file that kept path, size and modification
    time is not read again. Raises CheckpointError for a missing file.
    """
    names = ("config.json", "tokenizer.json")
    total = hashlib.sha256(f"{prompt_version}\n".encode())
    paths = (*(checkpoint_dir / name for name in names), *find_weight_files(checkpoint_dir))
    with ThreadPoolExecutor(_DIGEST_THREADS) as pool:
        digests = pool.map(partial(file_digest, cache_dir=cache_dir), paths)
        for path, digest in zip(paths, digests, strict=True):
            total.update(f"{path.name} {digest}\n".encode())
    return total.hexdigest()
