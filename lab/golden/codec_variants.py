"""Check how variants of the codec file load against the rows of checkpoint.json.

Where the reference loads a file silently and leaves random values, a strict loader refuses; so too
the one with a tensor too many, which the reference drops.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.golden.case import CaseResult, GoldenFolder, compare_close
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import load_decoder
from synth.engine.errors import CheckpointError

FILE = "checkpoint.json"
PROBE_FRAMES = 1  # what float16 rounds away grows over the first frames, past what its row allows
SAME = 1e-6
REMOVED = "decoder.model.0.conv.bias"
ADDED = "decoder.model.99.weight"

State = dict[str, Tensor]
Decode = Callable[[CodecDecoder, Tensor], Tensor]  # codes [K, T] to samples


def decode_whole(decoder: CodecDecoder, codes: Tensor) -> Tensor:
    """Return the audio of codes [K, T] in one pass."""
    return decoder.decode([codes], max_batch_frames=codes.shape[1])[0]


def checkpoint_codec_variants(
    folder: GoldenFolder, rows: list[dict[str, Any]], decode: Decode = decode_whole
) -> Iterator[CaseResult]:
    """Yield, for each row, whether its variant is refused or gives the plain file's audio.

    `decode` is how a variant's audio is made; that of the plain file is always made whole.
    """
    plain = torch.load(folder.checkpoint / "codec.pth", map_location="cpu", weights_only=True)
    codes = folder.tensors("end_to_end.safetensors")["codes"][:, :PROBE_FRAMES]
    expected = decode_whole(load_decoder(folder.checkpoint, "cpu"), codes)
    for row in rows:
        case = f"codec.{row['case']}"
        make = _VARIANTS.get(row["case"])
        if make is None:
            yield CaseResult(FILE, case, "a known variant", "not understood", False)
            continue
        with tempfile.TemporaryDirectory() as name:
            _write_variant(folder.checkpoint, Path(name), make(plain))
            yield _check_variant(case, row, Path(name), codes, expected, decode)


def _check_variant(
    case: str,
    row: dict[str, Any],
    checkpoint: Path,
    codes: Tensor,
    expected: Tensor,
    decode: Decode,
) -> CaseResult:
    refused = row["outcome"] == "error" or row["audio"] == "different" or case in _REFUSED_TOO
    named = _NAMED.get(case, "")
    try:
        audio = decode(load_decoder(checkpoint, "cpu"), codes)
    except CheckpointError as error:
        wanted = "refused" if refused else f"audio {row['audio']}"
        return CaseResult(FILE, case, wanted, error.code, refused and named in str(error))
    if refused:
        return CaseResult(FILE, case, f"refused {named}".strip(), "loaded", False)
    return compare_close(FILE, case, audio, expected, _tolerance(row["audio"]))


def _tolerance(audio: str) -> float:
    """Return the number in `same within NUMBER`; plain `same` allows no more than rounding."""
    found = re.fullmatch(r"same(?: within ([\d.e-]+))?", audio)
    if found is None:
        return -1.0  # not understood: no audio passes
    return float(Fraction(found[1])) if found[1] else SAME


def _write_variant(source: Path, target: Path, content: object) -> None:
    torch.save(content, target / "codec.pth")
    config = source / "codec_config.json"
    if config.is_file():
        shutil.copy(config, target)


def _add_prefix(state: Mapping[str, Tensor], prefix: str) -> State:
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def _one_wrong_shape(state: State) -> State:
    return state | {REMOVED: state[REMOVED][:-1].clone()}


def _without(state: State, name: str) -> State:
    return {key: tensor for key, tensor in state.items() if key != name}


_VARIANTS: dict[str, Callable[[State], object]] = {
    "plain": lambda state: state,
    "state_dict": lambda state: {"state_dict": state},
    "generator": lambda state: _add_prefix(state, "generator."),
    "state_dict_generator": lambda state: {"state_dict": _add_prefix(state, "generator.")},
    "generator_and_others": lambda state: (
        _add_prefix(state, "generator.") | {"discriminator.weight": torch.ones(2)}
    ),
    # The plain one would fit, and would be heard.
    "generator_partly": lambda state: (
        _add_prefix(state, "generator.") | {REMOVED: torch.ones_like(state[REMOVED])}
    ),
    "one_generator_name": lambda state: state | {"generator.step": torch.ones(1)},
    "generator_object": lambda state: {"generator": state},
    "module_generator": lambda state: _add_prefix(state, "module.generator."),
    "model_key": lambda state: {"model": state},
    "extra_tensor": lambda state: state | {ADDED: torch.ones(2)},
    "missing_tensor": lambda state: _without(state, REMOVED),
    "wrong_shape": _one_wrong_shape,
    "float16": lambda state: {name: tensor.half() for name, tensor in state.items()},
    "not_only_weights": lambda state: {"state_dict": state, "made_by": Path()},
}
_REFUSED_TOO = ("codec.extra_tensor",)
_NAMED = {
    "codec.extra_tensor": ADDED,
    "codec.missing_tensor": REMOVED,
    "codec.wrong_shape": REMOVED,
}
