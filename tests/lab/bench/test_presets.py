"""Models of a named shape: the same numbers everywhere, and speech that never ends by itself."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.bench import presets
from lab.bench.preset_weights import codec_half, lm_weights, special_ids
from lab.bench.presets import preset, preset_models, write_preset_checkpoint
from synth.contract import FinishReason, Reference, RenderSpec, Sampling
from synth.engine import Engine, EngineConfig
from synth.engine.codec.codec_file import stored_shapes
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.device import DeviceMemory
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.model.dual_ar import DualAR

CPU = torch.device("cpu")


def _config(checkpoint: Path) -> EngineConfig:
    return EngineConfig(checkpoint=checkpoint, device="cpu", dtype="float32", slots=2)


def test_a_written_checkpoint_speaks_as_the_model_in_memory(tmp_path: Path) -> None:
    folder = write_preset_checkpoint("tiny", tmp_path / "tiny", seed=3)
    codes = np.random.default_rng(1).integers(0, 64, (10, 12), dtype=np.int16)
    spec = RenderSpec("As it is written.", Reference("Heard.", codes), Sampling(max_frames=6))

    loaded = Engine.load(_config(folder))
    made = Engine(_config(folder), preset_models("tiny", device="cpu", dtype="float32", seed=3))
    try:
        waveform = np.random.default_rng(2).normal(0, 0.1, 30_000).astype(np.float32)
        clips = [engine.encode_reference(waveform, 44_100) for engine in (loaded, made)]
        spoken = [engine.render(spec) for engine in (loaded, made)]
    finally:
        loaded.close()
        made.close()

    assert (clips[0] == clips[1]).all()
    assert (spoken[0].codes == spoken[1].codes).all()
    assert (spoken[0].audio == spoken[1].audio).all()


def test_another_seed_is_another_model() -> None:
    shape = preset("tiny")
    first, other = (
        dict(lm_weights(shape, device=CPU, dtype=torch.float32, seed=seed)) for seed in (0, 1)
    )
    path = "slow.layers.0.attention.wqkv.weight"
    assert not torch.equal(first[path], other[path])


@pytest.mark.parametrize("seed", range(3))
def test_speech_goes_on_to_its_limit_whatever_is_drawn(seed: int) -> None:
    models = preset_models("tiny", device="cpu", dtype="float32", seed=seed)
    engine = Engine(_config(Path("tiny")), models)
    sampling = Sampling(seed=seed, temperature=1.9, top_p=1.0, top_k=64, max_frames=60)
    try:
        spoken = engine.render(RenderSpec("On and on.", None, sampling))
    finally:
        engine.close()

    assert spoken.finish_reason is FinishReason.FRAME_LIMIT
    assert spoken.codes.shape[1] == 60


def test_a_whole_folder_is_used_again_and_half_a_one_is_made_anew(tmp_path: Path) -> None:
    folder = write_preset_checkpoint("tiny", tmp_path / "tiny")
    weights = folder / "model.safetensors"
    content, written = weights.read_bytes(), weights.stat().st_mtime_ns

    write_preset_checkpoint("tiny", folder)
    assert weights.stat().st_mtime_ns == written

    weights.write_bytes(content[:1000])
    (folder / "preset.json").write_text("{}", encoding="utf-8")  # as a stop half-way leaves it
    write_preset_checkpoint("tiny", folder)
    assert weights.read_bytes() == content


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(CheckpointError, match="contains no preset"):
        write_preset_checkpoint("tiny", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_an_unknown_preset_is_told_with_those_that_exist() -> None:
    with pytest.raises(
        InvalidSpecError, match="'huge' is not a preset; use one of tiny, mid, full"
    ):
        preset("huge")


def test_weights_that_do_not_fit_are_refused_with_the_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = DeviceMemory(free=4 * 10**9, total=8 * 10**9, source="this machine")
    monkeypatch.setattr(presets, "find_memory", lambda device: small)
    with pytest.raises(InvalidSpecError, match=r"needs 18\.2.* this machine has only 4\.0"):
        presets.preset_dual_ar(preset("full"), device=CPU, dtype="float32")


def test_full_is_the_published_shape() -> None:
    shape = preset("full")
    with torch.device("meta"):
        model = DualAR(shape.config, special_ids(shape))
        halves = CodecEncoder(shape.codec), CodecDecoder(shape.codec)
    stored = {name: size for half in halves for name, size in stored_shapes(half).items()}

    assert sum(weight.numel() for weight in model.parameters()) == 4_561_852_416
    assert len(list(model.parameters())) == 358
    assert sum(math.prod(size) for size in stored.values()) == 391_430_530
    assert len(stored) == 535
    assert shape.special_tokens["<|im_end|>"] == 151_645
    assert (shape.semantic_begin, special_ids(shape).semantic_end) == (151_678, 155_773)


@pytest.mark.parametrize("name", ["tiny", "mid"])
def test_a_codec_of_random_weights_gives_sound_below_full_scale(name: str) -> None:
    shape = preset(name)
    decoder = codec_half(CodecDecoder, shape, device=CPU, dtype=torch.float32, seed=0)
    size = shape.codec.residual_codebook_size
    codes = torch.randint(size, (10, 8), generator=torch.Generator().manual_seed(0))

    (samples,) = decoder.decode([codes])

    assert samples.isfinite().all()
    assert 0.02 < samples.std() < 0.5
    assert samples.abs().max() < 1.0
