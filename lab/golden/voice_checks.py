"""Check reference voices, from a file to codes, against golden vectors.

The vectors hold what several ways of the reference did with each file. Ours is one way, so it must
give what they give; where one of them only refuses small or one-sample files, we do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from lab.golden.case import CaseResult, GoldenFolder, compare_close, compare_equal, compare_value
from lab.golden.wav_file import read_wav
from synth.engine.codec.encoder import CodecEncoder, encode_reference, mono_waveform
from synth.engine.codec.load import load_encoder
from synth.engine.codec.resample import (
    ResamplerChoice,
    SincFilter,
    resample_waveform,
    usable_resamplers,
)
from synth.engine.errors import ReferenceAudioError

FILE = "voices.safetensors"
FACTS = "voices.json"
SERVER_TOLERANCE = 1e-5
CLI_TOLERANCE = 1e-4


def check_voices(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield each file's facts, its waves and its codes by each way that the vectors hold."""
    encoder = load_encoder(folder.checkpoint, folder.device)
    vectors, rows = folder.tensors(FILE), folder.json(FACTS)
    for row in rows:
        waveform, rate = _read(folder, row["case"])
        facts = (rate, waveform.shape[0], waveform.shape[1])
        wanted = (row["rate"], row["channels"], row["samples"])
        yield compare_value(FILE, f"{row['case']}.file", facts, wanted)
        entries = {
            name.removeprefix(f"{row['case']}."): tensor
            for name, tensor in vectors.items()
            if name.startswith(f"{row['case']}.")
        }
        if "outcome" in row:
            for choice in usable_resamplers(rate, encoder.config.sample_rate):
                found = _ways(encoder, waveform, rate, choice)
                yield from _check_voice(row, choice, found, entries)
        else:
            yield from _check_short(encoder, row, waveform, rate, entries)
    known = tuple(f"{row['case']}." for row in rows)
    for name in vectors:
        if not name.startswith(known):
            yield CaseResult(FILE, name, "a case of voices.json", "not understood", False)


def check_wav_voices(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield, for each file of `wav_voices/`, whether some case of voices.json uses it."""
    cases = {row["case"] for row in folder.json(FACTS)}
    for path in sorted((folder.vectors / "wav_voices").iterdir()):
        yield compare_value("vectors/wav_voices/", path.name, path.stem in cases, True)


def _check_voice(
    row: dict[str, Any],
    choice: ResamplerChoice,
    found: dict[str, Tensor],
    entries: dict[str, Tensor],
) -> Iterator[CaseResult]:
    """Compare the wave and the codes of the server's way and of the command line's."""
    for name, expected in entries.items():
        case = f"{row['case']}.{name} ({choice})"
        if name not in found:
            yield CaseResult(FILE, case, "a known entry", "not understood", False)
        elif name.endswith(".codes"):
            yield compare_equal(FILE, case, found[name], expected)
        else:
            tolerance = SERVER_TOLERANCE if name.startswith("server") else CLI_TOLERANCE
            yield compare_close(FILE, case, found[name], expected, tolerance)
    sizes = (found["server.wave"].shape[0], found["server.codes"].shape[1])
    yield compare_value(
        FILE, f"{row['case']}.sizes ({choice})", sizes, (row["resampled"], row["frames"])
    )


def _ways(
    encoder: CodecEncoder, waveform: Tensor, rate: int, choice: ResamplerChoice
) -> dict[str, Tensor]:
    """Return waves and codes; the command line's way makes its filter in float32 throughout."""
    target = encoder.config.sample_rate
    mono = mono_waveform(waveform, encoder.device)
    wave, _ = resample_waveform(mono, rate, target, choice)
    encoded = encode_reference(encoder, waveform, rate, choice)
    cli_wave = mono
    if rate != target:
        cli_wave = SincFilter(rate, target, encoder.device, torch.float32)(mono)
    return {
        "server.wave": wave,
        "server.codes": torch.from_numpy(encoded.codes),
        "cli.wave": cli_wave,
        "cli.codes": encoder.encode([cli_wave])[0],
    }


def _check_short(
    encoder: CodecEncoder,
    row: dict[str, Any],
    waveform: Tensor,
    rate: int,
    entries: dict[str, Tensor],
) -> Iterator[CaseResult]:
    """Compare a very short file: codes where a way gave some, an error if it has no sample."""
    for way, outcome in row.items():
        if not isinstance(outcome, dict):
            continue
        case = f"{row['case']}.{way}"
        try:
            encoded = encode_reference(encoder, waveform, rate, ResamplerChoice.AUTO)
        except ReferenceAudioError as error:
            yield CaseResult(FILE, case, _expected(row, outcome), error.code, row["samples"] == 0)
            continue
        codes = torch.from_numpy(encoded.codes)
        frames = codes.shape[1]
        wanted = outcome.get("frames", -(-encoded.num_samples // encoder.config.hop_length))
        passed = row["samples"] > 0 and frames == wanted
        yield CaseResult(FILE, case, _expected(row, outcome), f"{frames} frames", passed)
        if f"{way}.codes" in entries:
            yield compare_equal(FILE, f"{case}.codes", codes, entries[f"{way}.codes"])


def _expected(row: dict[str, Any], outcome: dict[str, Any]) -> str:
    if row["samples"] == 0:
        return "an error"
    return f"{outcome['frames']} frames" if "frames" in outcome else "frames (refusal not copied)"


def _read(folder: GoldenFolder, case: str) -> tuple[Tensor, int]:
    """Return the samples of a voice's file, float32 [channels, N], and its rate in Hz."""
    return read_wav(folder.vectors / "wav_voices" / f"{case}.wav")
