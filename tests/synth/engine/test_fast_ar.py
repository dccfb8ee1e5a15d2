"""Test fast_ar against a plain float64 computation, in shapes no vector shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.golden.forward_checks import run_fast
from lab.golden.models import Loaded
from synth.engine.loading.weights import load_dual_ar
from tests.synth.engine.naive_lm import fast_logits
from tests.synth.engine.random_checkpoint import write_checkpoint

SHAPES: dict[str, dict[str, Any]] = {
    "as published": {},
    "narrower than the slow AR": {"dim": 32},
    "biases": {"attention_qkv_bias": True, "attention_o_bias": True},
    "q/k norm": {"attention_qk_norm": True},
    "three codebooks": {"num_codebooks": 3},
}


@pytest.mark.parametrize("name", SHAPES)
def test_nine_passes_give_the_logits_of_one_plain_pass(name: str, tmp_path: Path) -> None:
    weights = write_checkpoint(tmp_path, audio=SHAPES[name])
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    model, _ = load_dual_ar(tmp_path, dtype=torch.float32)
    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(config["text_config"]["dim"], generator=generator)
    codes = torch.randint(256, (model.fast.num_codebooks,), generator=generator)

    found = run_fast(model, hidden, codes)

    expected = fast_logits(weights, config, hidden, codes).float()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)


def test_a_frame_does_not_hear_the_frame_before(loaded: Loaded) -> None:
    fast = loaded.model.fast
    hidden = torch.randn(1, loaded.model.config.text_config.dim)
    code = torch.tensor([7])
    used, fresh = fast.allocate_cache(1), fast.allocate_cache(1)

    with torch.inference_mode():
        fast.first(-hidden, code + 1, used)
        for position in range(2, fast.num_codebooks):
            fast.next(code + position, position, used)
        again, first = fast.first(hidden, code, used), fast.first(hidden, code, fresh)

    assert torch.equal(again, first)


def test_streams_of_a_batch_do_not_hear_each_other(loaded: Loaded) -> None:
    fast = loaded.model.fast
    hidden = torch.randn(3, loaded.model.config.text_config.dim)
    codes = torch.tensor([7, 8, 9])

    with torch.inference_mode():
        together = fast.first(hidden, codes, fast.allocate_cache(3))
        alone = fast.first(hidden[1:2], codes[1:2], fast.allocate_cache(1))

    torch.testing.assert_close(together[1:2], alone, atol=1e-5, rtol=0)
