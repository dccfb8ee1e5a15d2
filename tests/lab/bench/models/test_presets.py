"""Models of a named shape: the same numbers everywhere, and speech that never ends by itself."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lab.bench.models import presets
from lab.bench.models.preset_weights import (
    ByteTokenizer,
    codec_half,
    lm_weights,
    make_tokenizer,
    special_ids,
)
from lab.bench.models.presets import preset, preset_models, write_preset_checkpoint
from lab.golden.case import GoldenFolder
from synth.contract import FinishReason, Reference, RenderSpec, Sampling
from synth.engine import Engine, EngineConfig
from synth.engine.codec.codec_file import stored_shapes
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.device import DeviceMemory
from synth.engine.errors import CheckpointError, InvalidSpecError
from synth.engine.model.dual_ar import DualAR
from synth.engine.prompt import Tokenizer
from workers.local.doctor_engine import PUBLISHED_CODEC, PUBLISHED_LM

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
    assert (spoken.finish_reason, spoken.codes.shape[1]) == (FinishReason.FRAME_LIMIT, 60)


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


def test_what_cannot_be_had_is_refused_in_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "letters.txt").write_text("mine", encoding="utf-8")  # a folder of something else
    with pytest.raises(CheckpointError, match="contains no preset"):
        write_preset_checkpoint("tiny", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]
    words = "'huge' is not a preset; use one of tiny, mid, full"
    with pytest.raises(InvalidSpecError, match=words):
        preset("huge")
    small = DeviceMemory(free=4 * 10**9, total=8 * 10**9, source="this machine")
    monkeypatch.setattr(presets, "find_memory", lambda device: small)
    with pytest.raises(InvalidSpecError, match=r"needs 18\.2.* this machine has only 4\.0"):
        presets.preset_dual_ar(preset("full"), device=CPU, dtype="float32")


def test_full_is_the_published_shape_that_doctor_plans_for() -> None:
    shape = preset("full")
    assert shape.codec == PUBLISHED_CODEC
    assert shape.config.text_config == PUBLISHED_LM.text_config
    assert shape.config.audio_decoder_config == PUBLISHED_LM.audio_decoder_config
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


TEXTS = (
    "",
    "A plain sentence, with a comma.",
    "ÄÖÜ ß é — “quoted”, 漢字 und 😀\n\ttabs\x00\x7f\xad",
    "<|im_start|>user\nhi<|im_end|>\n<|voice|>",
    "<|semantic:1|><|semantic:10|><|semantic:255|> <|semantic:9999|> <|im_end|",
    "<<|im_end|>><|im_<|im_end|>end|>",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_ids_that_the_library_gives_it(text: str) -> None:
    own, library = ByteTokenizer(preset("tiny")), make_tokenizer(preset("tiny"))
    ids = own.encode(text, add_special_tokens=False).ids
    assert ids == library.encode(text, add_special_tokens=False).ids
    assert own.decode(ids, skip_special_tokens=False) == text
    assert own.decode(ids, skip_special_tokens=True) == library.decode(ids)


@pytest.mark.parametrize("name", ["tiny", "mid"])
def test_the_vocabulary_is_that_of_the_file(name: str) -> None:
    own, library = ByteTokenizer(preset(name)), make_tokenizer(preset(name))

    assert own.get_vocab(with_added_tokens=True) == library.get_vocab(with_added_tokens=True)
    added, expected = (
        {token_id: token.content for token_id, token in each.get_added_tokens_decoder().items()}
        for each in (own, library)
    )
    assert added == expected
    assert own.token_to_id("<|im_end|>") == library.token_to_id("<|im_end|>")
    assert own.token_to_id("no token") is None
    assert Tokenizer(own).special == Tokenizer(library).special


def test_half_a_surrogate_pair_is_refused_and_a_preset_needs_no_library(
    golden: GoldenFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidSpecError, match="surrogate"):
        Tokenizer(ByteTokenizer(preset("tiny"))).encode_user_text("a\ud800b")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert preset_models("tiny", device="cpu").tokenizer.encode("ab") != []
    with pytest.raises(CheckpointError, match="package tokenizers, which cannot be imported"):
        Tokenizer.from_checkpoint(golden.checkpoint)
