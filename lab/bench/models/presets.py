"""Make models with random weights: in memory on any device, or as a checkpoint folder.

Their speed is that of a trained model of the same shape; what they say means nothing.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from lab.bench.models.preset_weights import (
    ByteTokenizer,
    assign_weights,
    codec_half,
    lm_weights,
    make_tokenizer,
    special_ids,
)
from lab.bench.models.shapes import PRESETS, Preset, preset
from synth.engine.codec.codec_file import SAFETENSORS_NAME, stored_shapes
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.load import (
    Half,
    decoding_precision,
    half_dtype,
    prepare_half,
    wants_kernels,
)
from synth.engine.codec.resample import ResamplerChoice, chosen_resampler
from synth.engine.device import find_memory
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.loading.engine_config import choose_numbers, resolve_device
from synth.engine.loading.loaded_models import LoadedModels
from synth.engine.loading.memory import gigabytes
from synth.engine.loading.weights import SINGLE_NAME, replace_file
from synth.engine.model.dual_ar import DualAR
from synth.engine.prompt import Tokenizer

__all__ = [
    "PRESETS",
    "Preset",
    "preset",
    "preset_dual_ar",
    "preset_models",
    "write_preset_checkpoint",
]

CPU = torch.device("cpu")
_STAMP = "preset.json"  # written last: a folder without it is not whole
_FILES_VERSION = 2  # raise it when the same preset and seed give other files


def preset_dual_ar(
    shape: Preset,
    *,
    device: torch.device,
    dtype: str = "auto",
    seed: int = 0,
    weights: dict[str, Tensor] | None = None,
    kernels: str = "auto",
) -> DualAR:
    """Return a preset's transformers, ready to decode.

    Args:
        dtype: as `EngineConfig.dtype`.
        weights: tensors to use as they are, by path, instead of drawing them.
        kernels: as `EngineConfig.kernels`.

    Raises:
        InvalidSpecError: the number format is not to be had, or the weights do not fit; none is
            drawn then.
    """
    with torch.device("meta"):
        model = DualAR(shape.config, special_ids(shape))
    numbers = choose_numbers(dtype, device, shape.config, kernels=kernels)
    if weights is None:
        _check_room(shape, model, device, numbers.dtype)
        drawn = dict(lm_weights(shape, device=device, dtype=numbers.dtype, seed=seed))
        assign_weights(model, drawn)
        drawn.clear()  # what is packed or joined below must not be held twice
    else:
        assign_weights(model, weights)
    model.finalize(numbers.form, numbers.fast_form)
    if wants_kernels(kernels, device):
        model.use_kernels()
    return model


def preset_models(
    name: str,
    *,
    device: torch.device | str = "auto",
    dtype: str = "auto",
    codec_encode_dtype: str = "float32",
    codec_decode_dtype: str = "auto",
    seed: int = 0,
    kernels: str = "auto",
) -> LoadedModels:
    """Return everything an engine needs, made on the device and never in a file.

    Raises:
        InvalidSpecError: the preset, the device or a number format is not to be had here.
    """
    shape = preset(name)
    place = resolve_device(device) if isinstance(device, str) else device
    # Refused before the work.
    half_dtype(CodecEncoder, codec_encode_dtype, place)
    precision = decoding_precision(codec_decode_dtype, place)
    half_dtype(CodecDecoder, precision, place)
    name_and_seed = f"preset-{shape.name}-{seed}-v{_FILES_VERSION}"
    return LoadedModels(
        dual_ar=preset_dual_ar(shape, device=place, dtype=dtype, seed=seed, kernels=kernels),
        tokenizer=Tokenizer(ByteTokenizer(shape)),
        encoder=_codec_half(CodecEncoder, shape, place, codec_encode_dtype, seed, kernels),
        decoder=_codec_half(CodecDecoder, shape, place, precision, seed, kernels),
        device=place,
        resampler=ResamplerChoice.AUTO,
        resampler_name=chosen_resampler(ResamplerChoice.AUTO, 48_000, shape.codec.sample_rate),
        model_fingerprint=name_and_seed,
        codec_fingerprint=f"{name_and_seed}-{codec_encode_dtype}",
        decoder_fingerprint=name_and_seed,
    )


def write_preset_checkpoint(
    name: str, folder: Path, *, seed: int = 0, device: torch.device = CPU
) -> Path:
    """Write a preset as a checkpoint that `Engine.load` takes, unless the folder holds it already.

    The transformers go in as bfloat16, the codec as float32; a half-written folder is made anew.

    Args:
        device: where the numbers are drawn, which decides what they are; a GPU takes seconds for
            the published shape.

    Returns:
        The folder.

    Raises:
        CheckpointError: the folder holds something else, or cannot be written.
    """
    shape = preset(name)
    stamp = {"preset": name, "seed": seed, "version": _FILES_VERSION}
    if device.type != "cpu":
        stamp["drawn_on"] = device.type
    if _read_stamp(folder) == stamp:
        return folder
    if folder.exists() and any(folder.iterdir()) and not (folder / _STAMP).exists():
        raise CheckpointError(f"{folder} is not empty and contains no preset; give another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Empty until all is there: what a stop in between leaves behind is then made anew.
        (folder / _STAMP).write_text("{}", encoding="utf-8")
        _write_files(shape, folder, seed, device)
        text = json.dumps(stamp)
        replace_file(folder / _STAMP, lambda part: part.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written: {error}.") from error
    return folder


def _codec_half(
    half_type: type[Half],
    shape: Preset,
    device: torch.device,
    precision: str,
    seed: int,
    kernels: str,
) -> Half:
    """Return a codec half that computes as a loaded one of this precision does."""
    dtype = half_dtype(half_type, precision, device)
    half = codec_half(half_type, shape, device=device, dtype=dtype, seed=seed)
    return prepare_half(half, precision, kernels=kernels)


def _check_room(shape: Preset, model: DualAR, device: torch.device, dtype: torch.dtype) -> None:
    """Raise InvalidSpecError when a device has no memory for the transformers' weights."""
    needed = sum(weight.numel() for weight in model.parameters()) * dtype.itemsize
    memory = find_memory(device)
    if needed > memory.free:
        raise InvalidSpecError(
            f"Preset {shape.name} needs {gigabytes(needed)} for its weights, but "
            f"{memory.source} has only {gigabytes(memory.free)} free; use a smaller preset "
            "or another device."
        )


def _write_files(shape: Preset, folder: Path, seed: int, device: torch.device) -> None:
    # Nothing that random weights say is speech, so nobody should judge it as that.
    card = {
        "name": f"preset {shape.name}",
        "licence": "none needed: random numbers",
        "speaks": False,
        "quality_screen": False,
    }
    (folder / "card.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    config = json.dumps(dict(shape.lm), indent=1)
    (folder / "config.json").write_text(config + "\n", encoding="utf-8")
    make_tokenizer(shape).save(str(folder / "tokenizer.json"))
    drawn = lm_weights(shape, device=device, dtype=torch.bfloat16, seed=seed)
    save_file({_disk_name(path): weight.cpu() for path, weight in drawn}, folder / SINGLE_NAME)
    float32 = torch.float32
    encoder = codec_half(CodecEncoder, shape, device=device, dtype=float32, seed=seed).cpu()
    decoder = codec_half(CodecDecoder, shape, device=device, dtype=float32, seed=seed).cpu()
    save_file(_unfold_weights(encoder) | _unfold_weights(decoder), folder / SAFETENSORS_NAME)


def _disk_name(path: str) -> str:
    """Return the name on disk of a parameter's path in our modules."""
    part, _, rest = path.partition(".")
    if part == "fast" or rest.startswith("codebook_embeddings."):
        return f"audio_decoder.{rest}"
    return f"text_model.model.{rest}"


def _unfold_weights(half: nn.Module) -> dict[str, Tensor]:
    """Return a half's weights as a file names them, those with a norm as norm and direction.

    The direction is the weight itself: divided by its own length it folds back to the same bits.
    """
    parameters = dict(half.named_parameters())
    weights: dict[str, Tensor] = {}
    for name, shape in stored_shapes(half).items():
        if name in parameters:
            weights[name] = parameters[name].detach().clone()
            continue
        stem = name.replace(".parametrizations.weight.original", ".weight_")
        weight = parameters[f"{stem.rpartition('.')[0]}.weight"].detach()
        if stem.endswith(("weight_0", "weight_g")):
            weights[name] = torch.linalg.vector_norm(weight.flatten(1), dim=1).view(shape)
        else:
            weights[name] = weight.clone()
    return weights


def _read_stamp(folder: Path) -> object:
    """Return what a folder says of itself, None where it says nothing readable."""
    try:
        return json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
