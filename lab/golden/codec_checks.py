"""Check the codec, the resampler and the reference voices against golden vectors.

The vectors of voices hold what several ways of the reference did with each file. Ours is one way,
so it must give what they give; where one of them only refuses small or one-sample files, we do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lab.golden.case import (
    CaseResult,
    Check,
    GoldenFolder,
    compare_close,
    compare_equal,
    compare_value,
    read_wav,
)
from lab.golden.codec_variants import checkpoint_codec_variants, decode_whole
from synth.engine.codec.halves import CodecDecoder, CodecEncoder, encode_reference, mono_waveform
from synth.engine.codec.load import load_decoder, load_encoder
from synth.engine.codec.resample import (
    ResamplerChoice,
    SincFilter,
    resample_waveform,
    torchaudio_problem,
)
from synth.engine.errors import ReferenceAudioError

__all__ = ["CHECKS", "COMPANIONS", "checkpoint_codec_variants"]

ENCODE = "codec_encode.safetensors"
DECODE = "codec_decode.safetensors"
LONG = "codec_long.safetensors"
RESAMPLE = "resample.safetensors"
END_TO_END = "end_to_end.safetensors"
TOLERANCE = 1e-4
RESAMPLE_TOLERANCE = 1e-5
VOICES = "voices.safetensors"
VOICE_FACTS = "voices.json"
SERVER_TOLERANCE = 1e-5
CLI_TOLERANCE = 1e-4


def check_encode(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield, for each wave, its codes and the tensors between the encoder's stages."""
    encoder, vectors = golden_encoder(folder), folder.tensors(ENCODE)
    for wave in cases_of(vectors):
        samples, _ = read_wav(folder.vectors / "wav" / f"{wave}.wav")
        found = _encode_stages(encoder, samples[0].to(encoder.device))
        yield from _compare_entries(ENCODE, wave, found, vectors)


def check_decode(folder: GoldenFolder, *, compiled: bool = False) -> Iterator[CaseResult]:
    """Yield, for each code matrix, its audio and the tensors between the decoder's stages."""
    decoder, vectors = golden_decoder(folder, compiled=compiled), folder.tensors(DECODE)
    for case in cases_of(vectors):
        found = _decode_stages(decoder, vectors[f"{case}.codes"].to(decoder.device))
        yield from _compare_entries(DECODE, case, found, vectors)


def check_long(folder: GoldenFolder, *, compiled: bool = False) -> Iterator[CaseResult]:
    """Yield the latents and the excerpts of audio of one input longer than the window."""
    decoder, vectors = golden_decoder(folder, compiled=compiled), folder.tensors(LONG)
    found = _decode_stages(decoder, vectors["codes"].to(decoder.device))
    for name, expected in vectors.items():
        excerpt = audio_excerpt(name, decoder.config.hop_length)
        if excerpt:
            yield compare_close(LONG, name, found["audio"][excerpt], expected, TOLERANCE)
        else:
            yield _compare_entry(LONG, name, found.get(name), expected)


def audio_excerpt(name: str, hop_length: int) -> slice | None:
    """Return the samples that an array `audio_frames_FIRST_END` holds; None for another name."""
    frames = re.fullmatch(r"audio_frames_(\d+)_(\d+)", name)
    return slice(*(int(frame) * hop_length for frame in frames.groups())) if frames else None


def _usable_resamplers(rate_in: int, rate_out: int) -> list[ResamplerChoice]:
    """Return the resamplers that can be forced here between these rates; ours always."""
    if torchaudio_problem(rate_in, rate_out) is None:
        return [ResamplerChoice.BUILTIN, ResamplerChoice.TORCHAUDIO]
    return [ResamplerChoice.BUILTIN]


def check_resample(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield each sample rate with each resampler that can be used for it here."""
    vectors, rate_out = folder.tensors(RESAMPLE), golden_encoder(folder).config.sample_rate
    for rate in cases_of(vectors):
        for choice in _usable_resamplers(int(rate), rate_out):
            wave = vectors[f"{rate}.in"].to(folder.device)
            found, name = resample_waveform(wave, int(rate), rate_out, choice)
            expected = vectors[f"{rate}.out"]
            yield compare_close(RESAMPLE, f"{rate} {name}", found, expected, RESAMPLE_TOLERANCE)


def check_end_to_end(folder: GoldenFolder, *, compiled: bool = False) -> Iterator[CaseResult]:
    """Yield the audio of the codes that the language model gave."""
    vectors = folder.tensors(END_TO_END)
    audio = decode_whole(golden_decoder(folder, compiled=compiled), vectors["codes"])
    yield compare_close(END_TO_END, "audio", audio, vectors["audio"], TOLERANCE)
    for name in vectors.keys() - {"codes", "audio"}:
        yield _compare_entry(END_TO_END, name, None, vectors[name])


def check_wav(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield, for each input file, whether it is mono at the codec's rate and some case uses it."""
    cases, rate = cases_of(folder.tensors(ENCODE)), golden_encoder(folder).config.sample_rate
    for path in sorted((folder.vectors / "wav").iterdir()):
        samples, found_rate = read_wav(path)
        found = (found_rate, samples.shape[0], path.stem in cases)
        yield compare_value("vectors/wav/", path.name, found, (rate, 1, True))


def _encode_stages(encoder: CodecEncoder, samples: Tensor) -> dict[str, Tensor]:
    """Return everything that the vectors know of an encoding, from one pass through `encode`."""
    modules = {
        "encoder": encoder.encoder,
        "downsample": encoder.quantizer.downsample,
        "pre_module": encoder.quantizer.pre_module,
    }
    frames = -(-samples.shape[0] // encoder.config.hop_length)
    with _capture_outputs(modules) as found, torch.inference_mode():
        codes = encoder.encode(samples, piece_frames=frames)
        z = found["pre_module"][None]
        _, semantic = encoder.quantizer.semantic_quantizer.encode(z)
        _, residual = encoder.quantizer.quantizer.encode(z - semantic)
    return found | {
        "codes": codes,
        "feature_length": torch.tensor([frames]),
        "semantic_vq": semantic[0],
        "residual_vq": residual[0],
    }


def _decode_stages(decoder: CodecDecoder, codes: Tensor) -> dict[str, Tensor]:
    """Return everything that the vectors know of a decoding, from one pass through `decode`."""
    modules = {"post_module": decoder.quantizer.post_module, "upsample": decoder.quantizer.upsample}
    before = codes.clone()
    with _capture_outputs(modules) as found, torch.inference_mode():
        audio = decode_whole(decoder, codes)
        semantic = decoder.quantizer.semantic_quantizer.decode(codes[None, :1])
        residual = decoder.quantizer.quantizer.decode(codes[None, 1:])
    # `codes` is an input; that it is compared shows that decoding left it as it was.
    stages = {"audio": audio, "semantic_zq": semantic[0], "residual_zq": residual[0]}
    if decoder.compiled is not None:
        context, latents = decoder.compiled.on_the_way(codes).values()
        normed = decoder.quantizer.post_module.norm(context.transpose(1, 2)).transpose(1, 2)
        found = {"post_module": normed[0], "upsample": latents[0]}
    return found | stages | {"codes": before}


@contextmanager
def _capture_outputs(modules: dict[str, nn.Module]) -> Iterator[dict[str, Tensor]]:
    """Collect what these modules return for a batch of one, under their names."""
    found: dict[str, Tensor] = {}

    def keep(name: str, output: Tensor) -> None:
        found[name] = output[0]

    hooks = [
        module.register_forward_hook(lambda _m, _args, output, name=name: keep(name, output))
        for name, module in modules.items()
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _compare_entries(
    file: str, case: str, found: dict[str, Tensor], vectors: dict[str, Tensor]
) -> Iterator[CaseResult]:
    for name, expected in vectors.items():
        if name.startswith(f"{case}."):
            yield _compare_entry(file, name, found.get(name.removeprefix(f"{case}.")), expected)


def _compare_entry(file: str, name: str, found: Tensor | None, expected: Tensor) -> CaseResult:
    if found is None:
        return CaseResult(file, name, "a known entry", "not understood", False)
    if expected.is_floating_point():
        return compare_close(file, name, found, expected, TOLERANCE)
    return compare_equal(file, name, found, expected)


def cases_of(vectors: dict[str, Tensor]) -> list[str]:
    """Return the cases of a file whose arrays are named `case.entry`."""
    return sorted({name.rpartition(".")[0] for name in vectors})


def golden_encoder(folder: GoldenFolder) -> CodecEncoder:
    """Return the golden codec's encoding half."""
    return _load_encoder(folder.checkpoint, folder.device)


def golden_decoder(folder: GoldenFolder, *, compiled: bool = False) -> CodecDecoder:
    """Return the checkpoint's decoder on the folder's device; loaded once.

    Args:
        compiled: let compiled code run it on a CPU, and not PyTorch. Other devices have their
            kernels either way.
    """
    kernels = "auto" if compiled or folder.device.type != "cpu" else "off"
    return _load_decoder(folder.checkpoint, folder.device, kernels)


@lru_cache(maxsize=2)
def _load_encoder(checkpoint: Path, device: torch.device) -> CodecEncoder:
    return load_encoder(checkpoint, device)


@lru_cache(maxsize=2)
def _load_decoder(checkpoint: Path, device: torch.device, kernels: str) -> CodecDecoder:
    return load_decoder(checkpoint, device, kernels=kernels)


def check_voices(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield each file's facts, its waves and its codes by each way that the vectors hold."""
    encoder = load_encoder(folder.checkpoint, folder.device)
    vectors, rows = folder.tensors(VOICES), folder.json(VOICE_FACTS)
    for row in rows:
        waveform, rate = _read_voice(folder, row["case"])
        facts = (rate, waveform.shape[0], waveform.shape[1])
        wanted = (row["rate"], row["channels"], row["samples"])
        yield compare_value(VOICES, f"{row['case']}.file", facts, wanted)
        entries = {
            name.removeprefix(f"{row['case']}."): tensor
            for name, tensor in vectors.items()
            if name.startswith(f"{row['case']}.")
        }
        if "outcome" in row:
            for choice in _usable_resamplers(rate, encoder.config.sample_rate):
                found = _ways(encoder, waveform, rate, choice)
                yield from _check_voice(row, choice, found, entries)
        else:
            yield from _check_short(encoder, row, waveform, rate, entries)
    known = tuple(f"{row['case']}." for row in rows)
    for name in vectors:
        if not name.startswith(known):
            yield CaseResult(VOICES, name, "a case of voices.json", "not understood", False)


def check_wav_voices(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Yield, for each file of `wav_voices/`, whether some case of voices.json uses it."""
    cases = {row["case"] for row in folder.json(VOICE_FACTS)}
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
            yield CaseResult(VOICES, case, "a known entry", "not understood", False)
        elif name.endswith(".codes"):
            yield compare_equal(VOICES, case, found[name], expected)
        else:
            tolerance = SERVER_TOLERANCE if name.startswith("server") else CLI_TOLERANCE
            yield compare_close(VOICES, case, found[name], expected, tolerance)
    sizes = (found["server.wave"].shape[0], found["server.codes"].shape[1])
    yield compare_value(
        VOICES, f"{row['case']}.sizes ({choice})", sizes, (row["resampled"], row["frames"])
    )


def _ways(
    encoder: CodecEncoder, waveform: Tensor, rate: int, choice: ResamplerChoice
) -> dict[str, Tensor]:
    """Return waves and codes; the command line's way makes its filter in float32 throughout."""
    target = encoder.config.sample_rate
    mono = mono_waveform(waveform, encoder.device)
    wave, _ = resample_waveform(mono, rate, target, choice)
    codes = encode_reference(encoder, waveform, rate, choice)
    cli_wave = mono
    if rate != target:
        cli_wave = SincFilter(rate, target, encoder.device, torch.float32)(mono)
    return {
        "server.wave": wave,
        "server.codes": torch.from_numpy(codes),
        "cli.wave": cli_wave,
        "cli.codes": encoder.encode(cli_wave),
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
            codes = torch.from_numpy(encode_reference(encoder, waveform, rate))
        except ReferenceAudioError as error:
            yield CaseResult(
                VOICES, case, _expect_outcome(row, outcome), error.code, row["samples"] == 0
            )
            continue
        frames = codes.shape[1]
        samples = -(-waveform.shape[-1] * encoder.config.sample_rate // rate)
        wanted = outcome.get("frames", -(-samples // encoder.config.hop_length))
        passed = row["samples"] > 0 and frames == wanted
        yield CaseResult(VOICES, case, _expect_outcome(row, outcome), f"{frames} frames", passed)
        if f"{way}.codes" in entries:
            yield compare_equal(VOICES, f"{case}.codes", codes, entries[f"{way}.codes"])


def _expect_outcome(row: dict[str, Any], outcome: dict[str, Any]) -> str:
    if row["samples"] == 0:
        return "an error"
    return f"{outcome['frames']} frames" if "frames" in outcome else "frames (refusal not copied)"


def _read_voice(folder: GoldenFolder, case: str) -> tuple[Tensor, int]:
    """Return the samples of a voice's file, float32 [channels, N], and its rate in Hz."""
    return read_wav(folder.vectors / "wav_voices" / f"{case}.wav")


CHECKS: dict[str, Check] = {
    ENCODE: check_encode,
    DECODE: check_decode,
    LONG: check_long,
    RESAMPLE: check_resample,
    END_TO_END: check_end_to_end,
    VOICES: check_voices,
    "vectors/wav/": check_wav,
    "vectors/wav_voices/": check_wav_voices,
}
COMPANIONS: dict[str, str] = {VOICE_FACTS: VOICES}
