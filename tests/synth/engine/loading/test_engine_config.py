"""Test engine_config: which numbers a model is computed in, and why."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from lab.bench.models.shapes import preset
from lab.golden.models import Loaded
from synth.contract import EngineClass, frame_cap, room_needed
from synth.engine.errors import InvalidSpecError
from synth.engine.loading import engine_config, loaded_models
from synth.engine.loading.engine_config import (
    FEWER_POSITIONS,
    Card,
    Numbers,
    choose_numbers,
    resolve_device,
    slot_positions,
    wants_graphs,
)
from synth.engine.loading.loaded_models import engine_class
from synth.engine.model.config import matrix_parameters
from synth.engine.model.linear import LinearForm
from synth.engine.native.build import NotCompiledError
from synth.engine.native.library import Processor
from tests.synth.engine.engine_runs import CONFIG, models_of

CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
LARGE = preset("mid").config
WITH_BF16 = Processor(bf16=True, packing=True, packs_bf16=True, simd="AVX512")
WITHOUT_BF16 = Processor(bf16=False, packing=True, packs_bf16=False, simd="AVX2")
WITHOUT_ONEDNN = Processor(bf16=False, packing=False, packs_bf16=False, simd="DEFAULT")


@pytest.mark.parametrize(
    ("name", "processor", "shape", "dtype", "form", "reason"),
    [
        ("auto", WITH_BF16, "mid", torch.bfloat16, LinearForm.PACKED, "multiplies bfloat16"),
        ("auto", WITHOUT_BF16, "mid", torch.float32, LinearForm.PACKED, "AVX2 does not multiply"),
        ("auto", WITHOUT_ONEDNN, "mid", torch.float32, LinearForm.PLAIN, "no oneDNN"),
        ("auto", WITH_BF16, "tiny", torch.float32, LinearForm.PACKED, "cache"),  # it fits into it
        ("int8", WITH_BF16, "mid", torch.float32, LinearForm.INT8, "TTS_DTYPE=int8"),
        ("bfloat16", WITHOUT_BF16, "mid", torch.bfloat16, LinearForm.PLAIN, "packs no bfloat16"),
    ],
)
def test_processor_and_setting_decide_the_numbers(
    name: str,
    processor: Processor,
    shape: str,
    dtype: torch.dtype,
    form: LinearForm,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_config, "find_processor", lambda: processor)
    numbers = choose_numbers(name, CPU, preset(shape).config, kernels="off")
    assert (numbers.dtype, numbers.form) == (dtype, form)
    assert reason in numbers.reason
    assert numbers.frames == "PyTorch (TTS_ENGINE_WITHOUT=kernels)"
    assert name in ("auto", numbers.name)


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["auto", "float32", "bfloat16", "int8"])
def test_matrices_are_laid_out_for_compiled_frames_where_there_are_any(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = choose_numbers(name, CPU, LARGE)
    assert numbers.form is (LinearForm.NATIVE_INT8 if name == "int8" else LinearForm.NATIVE)
    assert numbers.frames.startswith("compiled for a")
    assert name in ("auto", numbers.name)

    refuse = Mock(side_effect=NotCompiledError("there is no C compiler; install gcc"))
    monkeypatch.setattr(engine_config, "native_library", refuse)
    monkeypatch.setattr(engine_config, "find_processor", lambda: WITH_BF16)
    numbers = choose_numbers(name, CPU, LARGE)
    assert numbers.form is (LinearForm.INT8 if name == "int8" else LinearForm.PACKED)
    assert numbers.frames.endswith("there is no C compiler; install gcc")


S2_PRO = preset("full").config
H200 = Card("NVIDIA H200", (9, 0), 140 * 2**30)
T4 = Card("Tesla T4", (7, 5), 15 * 2**30)
ADA = Card("NVIDIA GeForce RTX 4090", (8, 9), 24 * 2**30)
SMALL = Card("NVIDIA GeForce RTX 3060", (8, 6), 12 * 2**30)


def on_card(name: str, card: Card, monkeypatch: pytest.MonkeyPatch) -> Numbers:
    monkeypatch.setattr(engine_config, "find_card", lambda device: card)
    return choose_numbers(name, CUDA, S2_PRO, kernels="off")


@pytest.mark.parametrize(
    ("name", "card", "dtype", "form", "fast_form", "reason"),
    [
        ("auto", H200, torch.bfloat16, LinearForm.PLAIN, None, "multiplies bfloat16"),
        ("auto", T4, torch.float16, LinearForm.PLAIN, None, "does not multiply bfloat16"),
        ("auto", SMALL, torch.bfloat16, LinearForm.INT8_ROWS, None, "too much for 12.9 GB"),
        ("int8", T4, torch.float16, LinearForm.INT8_ROWS, None, "TTS_DTYPE=int8"),
        ("int8-slow", H200, torch.bfloat16, LinearForm.INT8_ROWS, LinearForm.PLAIN, "int8-slow"),
        ("fp8", H200, torch.bfloat16, LinearForm.FP8_ROWS, None, "TTS_DTYPE=fp8"),
        ("fp8", ADA, torch.bfloat16, LinearForm.FP8_ROWS, None, "TTS_DTYPE=fp8"),
        ("float16", H200, torch.float16, LinearForm.PLAIN, None, "TTS_DTYPE=float16"),
        ("float32", H200, torch.float32, LinearForm.PLAIN, None, "TTS_DTYPE=float32"),
    ],
)
def test_card_and_setting_decide_the_numbers(
    name: str,
    card: Card,
    dtype: torch.dtype,
    form: LinearForm,
    fast_form: LinearForm | None,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = on_card(name, card, monkeypatch)
    assert (numbers.dtype, numbers.form, numbers.fast_form) == (dtype, form, fast_form)
    assert reason in numbers.reason
    assert name in ("auto", numbers.name)


def test_formats_that_are_not_to_be_had_are_refused_with_some_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InvalidSpecError, match=r"Tesla T4, .* 7\.5; set .* auto or float16") as no:
        on_card("bfloat16", T4, monkeypatch)
    assert all(on_card(name, T4, monkeypatch) for name in words_behind("to", no, " or "))
    for card, words in ((T4, r"Tesla T4, .* 7\.5"), (SMALL, r"RTX 3060, .* 8\.6")):
        with pytest.raises(InvalidSpecError, match=rf"fp8 needs .* 8\.9, .*{words}") as no:
            on_card("fp8", card, monkeypatch)
        assert words_behind("to", no, " or ") == ["auto", "int8"]
        assert all(on_card(name, card, monkeypatch) for name in words_behind("to", no, " or "))
    for name in ("float16", "int8-slow", "fp8"):
        with pytest.raises(InvalidSpecError, match=f"{name} works only on CUDA") as refused:
            choose_numbers(name, CPU, LARGE)
        advised = words_behind("to", refused, ", | or ")
        assert len(advised) == 4
        assert all(choose_numbers(each, CPU, LARGE, kernels="off") for each in advised)
    with pytest.raises(InvalidSpecError, match="float64"):
        choose_numbers("float64", CPU, LARGE)


def words_behind(word: str, refused: pytest.ExceptionInfo[InvalidSpecError], cut: str) -> list[str]:
    """Return the values that a refusal advises, which stand behind the last such word."""
    return re.split(cut, str(refused.value).rsplit(f" {word} ", 1)[1].rstrip("."))


@pytest.mark.parametrize(("name", "words"), [("mps", "Apple"), ("cuda:0", "ROCm 7.1")])
def test_devices_of_others_are_refused_in_a_sentence_whose_advice_works(
    name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1" if name == "cuda:0" else None)
    with pytest.raises(InvalidSpecError, match=words) as refused:
        resolve_device(name)
    advised = re.search(r"set TTS_DEVICE=(\w+)", str(refused.value))
    assert advised is not None and resolve_device(advised[1]) == CPU


@pytest.mark.parametrize(("card", "positions"), [(H200, 4096), (T4, 2048), (SMALL, 2048)])
def test_slots_of_small_cards_have_fewer_positions_unless_they_are_asked_for(
    card: Card, positions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_config, "find_card", lambda device: card)
    assert (slot_positions(0, CUDA), slot_positions(0, CPU)) == (positions, 4096)
    assert slot_positions(3000, CUDA) == 3000
    with pytest.raises(InvalidSpecError, match="to 64 or more, or to 0"):
        slot_positions(63, CUDA)
    assert slot_positions(64, CUDA) == 64


def test_the_matrices_are_counted_as_the_model_has_them(loaded: Loaded) -> None:
    config = loaded.model.config
    text, audio = config.text_config, config.audio_decoder_config
    one = 64 * 32 * (4 + 2 + 2 + 4) + 3 * 64 * text.intermediate_size
    other = 64 * 32 * (4 + 2 + 2 + 4) + 3 * 64 * audio.intermediate_size
    assert matrix_parameters(config) == text.n_layer * one + audio.n_layer * other


def test_graphs_are_automatic_with_cuda_alone_and_else_refused() -> None:
    assert [wants_graphs(name, CUDA) for name in ("auto", "on", "off")] == [True, True, False]
    assert not wants_graphs("auto", CPU) and not wants_graphs("off", CPU)
    for name, text in (("on", "need a CUDA device"), ("yes", "auto, on or")):
        with pytest.raises(InvalidSpecError, match=text):
            wants_graphs(name, CPU)


def class_of(**changes: Any) -> EngineClass:
    config = replace(CONFIG, **changes)
    return engine_class(config, models_of(config))


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"dtype": "bfloat16"}, {"numbers"}),
        ({"dtype": "int8"}, {"numbers"}),
        ({"strict": True}, {"strict"}),
        ({"codec_decode_dtype": "bfloat16"}, {"decoder_numbers", "decoder_backend"}),
        ({"slots": 3, "codec_encode_dtype": "bfloat16", "prefix_cache_bytes": 0}, set()),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, dict) else "",
)
def test_what_a_setting_changes_in_takes_is_in_the_engines_class(
    changes: dict[str, Any], names: set[str]
) -> None:
    plain, other = class_of(dtype="float32"), class_of(**{"dtype": "float32", **changes})
    changed = {one for one in EngineClass.__slots__ if getattr(plain, one) != getattr(other, one)}
    assert changed == names


@pytest.mark.compiler
def test_compiled_code_and_pytorch_are_two_classes() -> None:
    compiled, plain = class_of(dtype="float32"), class_of(dtype="float32", kernels="off")
    assert compiled.backend.startswith("compiled ") and plain.backend.startswith("PyTorch ")
    assert compiled.decoder_backend != plain.decoder_backend
    assert (compiled.model, compiled.decoder) == (plain.model, plain.decoder)


def test_other_weights_other_decoder_and_other_versions_are_other_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = class_of(dtype="float32")

    def changed(name: str) -> set[str]:
        """Return what differs with the checkpoint of that name."""
        other = class_of(dtype="float32", checkpoint=tmp_path / name)
        return {one for one in EngineClass.__slots__ if getattr(plain, one) != getattr(other, one)}

    def copy(name: str) -> Path:
        return shutil.copytree(CONFIG.checkpoint, tmp_path / name)

    copy("same")
    assert changed("same") == set()

    with (copy("weights") / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))
    assert changed("weights") == {"model"}

    for half, names in (("decoder", {"decoder"}), ("encoder", set())):
        path = copy(half) / "codec.pth"
        state = torch.load(path, weights_only=True)
        key = next(one for one in state if one.startswith(f"{half}.") and one.endswith("bias"))
        state[key] += 1
        torch.save(state, path)
        assert changed(half) == names  # an encoder's work shows in the codes of the voices

    monkeypatch.setattr(loaded_models, "SAMPLER_VERSION", 99)
    assert changed("same") == {"sampler"}
    monkeypatch.setattr(loaded_models, "PROMPT_VERSION", "99")
    copy("prompt")
    assert changed("prompt") == {"sampler", "model"}


def test_slots_of_a_small_card_hold_a_voice_and_the_longest_segment() -> None:
    """S2 Pro's card allows 600 characters, and a clip has at most 30 s, which are transcribed."""
    chars, clip = 600, 30 * 21.53
    room = FEWER_POSITIONS - room_needed(frame_cap("x" * chars))
    tokens = (450 + chars) / 3  # of a transcript of 15 characters a second, and of the text
    assert room > clip + tokens
