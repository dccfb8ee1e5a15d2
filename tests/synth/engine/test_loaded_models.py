"""An engine that computes otherwise says so, since takes are named by it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from synth.contract import EngineClass
from synth.engine import EngineConfig
from synth.engine.loading.loaded_models import engine_class, load_models

TINY = Path(__file__).resolve().parents[2] / "data" / "golden" / "tiny-s2"


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
