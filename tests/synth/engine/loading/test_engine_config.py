"""Test engine_config: which numbers a model is computed in, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lab.golden.models import Loaded
from synth.contract import EngineClass
from synth.engine import EngineConfig
from synth.engine.errors import InvalidSpecError
from synth.engine.loading import engine_config
from synth.engine.loading.engine_config import choose_numbers, wants_graphs
from synth.engine.loading.loaded_models import engine_class, load_models
from synth.engine.model.config import LMConfig, matrix_parameters
from synth.engine.model.linear import LinearForm
from synth.engine.native.build import NotCompiledError
from synth.engine.native.library import Processor
from synth.engine.presets import preset

CPU = torch.device("cpu")
WITH_BF16 = Processor(bf16=True, packing=True, packs_bf16=True, simd="AVX512")
WITHOUT_BF16 = Processor(bf16=False, packing=True, packs_bf16=False, simd="AVX2")
WITHOUT_ONEDNN = Processor(bf16=False, packing=False, packs_bf16=False, simd="DEFAULT")


@pytest.fixture
def large() -> LMConfig:
    return preset("mid").config


@pytest.mark.parametrize(
    ("processor", "dtype", "form"),
    [
        (WITH_BF16, torch.bfloat16, LinearForm.PACKED),
        (WITHOUT_BF16, torch.float32, LinearForm.PACKED),
        (WITHOUT_ONEDNN, torch.float32, LinearForm.PLAIN),
    ],
)
def test_the_processor_decides_what_auto_is(
    processor: Processor,
    dtype: torch.dtype,
    form: LinearForm,
    large: LMConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_config, "find_processor", lambda: processor)

    numbers = choose_numbers("auto", CPU, large, kernels="off")

    assert (numbers.dtype, numbers.form) == (dtype, form)
    assert numbers.reason
    assert numbers.frames == "PyTorch (TTS_ENGINE_WITHOUT=kernels)"


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("auto", LinearForm.NATIVE),
        ("float32", LinearForm.NATIVE),
        ("bfloat16", LinearForm.NATIVE),
        ("int8", LinearForm.NATIVE_INT8),
    ],
)
def test_matrices_are_laid_out_for_compiled_frames_where_there_are_any(
    name: str, form: LinearForm, large: LMConfig
) -> None:
    numbers = choose_numbers(name, CPU, large)
    assert numbers.form is form
    assert numbers.frames.startswith("compiled for a")
    assert name in ("auto", numbers.name)


def test_without_compiled_frames_matrices_are_packed_and_the_reason_is_kept(
    large: LMConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_folder: object) -> None:
        raise NotCompiledError("there is no C compiler; install gcc")

    monkeypatch.setattr(engine_config, "native_library", refuse)
    monkeypatch.setattr(engine_config, "find_processor", lambda: WITH_BF16)

    numbers = choose_numbers("auto", CPU, large)

    assert numbers.form is LinearForm.PACKED
    assert numbers.frames.endswith("there is no C compiler; install gcc")


def test_a_model_that_fits_into_the_cache_stays_in_float32(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_config, "find_processor", lambda: WITH_BF16)
    numbers = choose_numbers("auto", CPU, loaded.model.config)
    assert numbers.dtype is torch.float32
    assert "cache" in numbers.reason


def test_on_cuda_matrices_are_plain_and_auto_is_bfloat16(large: LMConfig) -> None:
    numbers = choose_numbers("auto", torch.device("cuda"), large)
    assert (numbers.dtype, numbers.form) == (torch.bfloat16, LinearForm.PLAIN)
    with pytest.raises(InvalidSpecError, match="only on a CPU"):
        choose_numbers("int8", torch.device("cuda"), large)


def test_int8_computes_around_its_matrices_in_float32(large: LMConfig) -> None:
    numbers = choose_numbers("int8", CPU, large, kernels="off")
    assert (numbers.dtype, numbers.form, numbers.name) == (torch.float32, LinearForm.INT8, "int8")


def test_an_unknown_name_is_refused(large: LMConfig) -> None:
    with pytest.raises(InvalidSpecError, match="float64"):
        choose_numbers("float64", CPU, large)


def test_bfloat16_is_done_as_asked_where_nothing_packs_it(
    large: LMConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_config, "find_processor", lambda: WITHOUT_BF16)
    numbers = choose_numbers("bfloat16", CPU, large, kernels="off")
    assert (numbers.dtype, numbers.form) == (torch.bfloat16, LinearForm.PLAIN)


def test_the_matrices_are_counted_as_the_model_has_them(loaded: Loaded) -> None:
    config = loaded.model.config
    text, audio = config.text_config, config.audio_decoder_config
    one = 64 * 32 * (4 + 2 + 2 + 4) + 3 * 64 * text.intermediate_size
    other = 64 * 32 * (4 + 2 + 2 + 4) + 3 * 64 * audio.intermediate_size

    assert matrix_parameters(config) == text.n_layer * one + audio.n_layer * other


@pytest.mark.parametrize(
    ("name", "device", "wanted"),
    [
        ("auto", "cuda:0", True),
        ("auto", "cpu", False),
        ("on", "cuda:0", True),
        ("off", "cuda:0", False),
        ("off", "cpu", False),
    ],
)
def test_graphs_are_automatic_with_cuda_alone(name: str, device: str, wanted: bool) -> None:
    assert wants_graphs(name, torch.device(device)) is wanted


@pytest.mark.parametrize(("name", "text"), [("on", "need a CUDA device"), ("yes", "auto, on or")])
def test_graphs_that_cannot_be_had_are_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidSpecError, match=text):
        wants_graphs(name, CPU)


TINY = Path(__file__).resolve().parents[3] / "data" / "golden" / "tiny-s2"


def loaded(**changes: Any) -> EngineClass:
    config = EngineConfig(checkpoint=TINY, device="cpu", **changes)
    return engine_class(config, load_models(config))


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
    plain, other = loaded(dtype="float32"), loaded(**{"dtype": "float32", **changes})
    assert {one for one in EngineClass.__slots__ if getattr(plain, one) != getattr(other, one)} == (
        names
    )


@pytest.mark.compiler
def test_compiled_code_and_pytorch_are_two_classes() -> None:
    compiled, plain = loaded(dtype="float32"), loaded(dtype="float32", kernels="off")
    assert compiled.backend.startswith("compiled ") and plain.backend.startswith("PyTorch ")
    assert compiled.decoder_backend != plain.decoder_backend
    assert (compiled.model, compiled.decoder) == (plain.model, plain.decoder)
