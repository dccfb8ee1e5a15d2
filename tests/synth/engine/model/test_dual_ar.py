"""Test slow_ar against a plain float64 computation, in shapes no vector shows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.golden.forward_checks import run_fast, run_forced
from lab.golden.models import Loaded, new_cache
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model.dual_ar import DualAR, Span
from synth.engine.model.kv_cache import KVCache
from tests.synth.engine.model.naive_lm import fast_logits, slow_logits
from tests.synth.engine.random_checkpoint import write_checkpoint

SHAPES: dict[str, dict[str, Any]] = {
    "as published": {},
    "untied head": {"tie_word_embeddings": False},
    "biases": {"attention_qkv_bias": True, "attention_o_bias": True},
    "no q/k norm": {"attention_qk_norm": False},
    "every head its own keys": {"n_local_heads": 4},
}


def _columns(model: DualAR, num_codes: int) -> torch.Tensor:
    """Columns of text, of codes, and of a semantic id whose codes are zeros, int64 [1 + K, S]."""
    generator = torch.Generator().manual_seed(2)
    begin, size = model.special.semantic_begin, model.slow.codebook_size
    codes = torch.randint(size, (model.slow.num_codebooks, num_codes), generator=generator)
    audio = torch.cat([codes[:1] + begin, codes])
    text = torch.zeros(audio.shape[0], 7, dtype=torch.int64)
    text[0] = torch.randint(600, (7,), generator=generator)
    text[0, 3] = begin + 5  # spelled in a text: semantic, but without codes
    return torch.cat([text, audio, text[:, :2]], dim=1)


@pytest.mark.parametrize("name", SHAPES)
def test_prefill_and_steps_give_the_logits_of_one_plain_pass(name: str, tmp_path: Path) -> None:
    weights = write_checkpoint(tmp_path, text=SHAPES[name])
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    model, _ = load_dual_ar(tmp_path, dtype=torch.float32)
    columns = _columns(model, num_codes=12)
    special = model.special
    semantic = range(special.semantic_begin, special.semantic_end + 1)

    run = run_forced(model, columns[:, :9], columns[:, 9:])

    hidden, logits = slow_logits(weights, config, columns, semantic)
    torch.testing.assert_close(run.prefill_hidden, hidden[:9].float(), atol=1e-4, rtol=0)
    torch.testing.assert_close(run.hidden, hidden[8:].float(), atol=1e-4, rtol=0)
    kept = logits[8:, model.slow.head_tokens].float()
    torch.testing.assert_close(run.logits, kept, atol=1e-4, rtol=0)


def test_prefill_behind_a_copied_prefix_equals_prefill_in_one_go(loaded: Loaded) -> None:
    model = loaded.model
    columns = _columns(model, num_codes=9).T
    whole, split = new_cache(model, 20), new_cache(model, 20)
    with torch.inference_mode():
        one_go = model.slow.prefill(columns, [Span(0, 0, 18)], whole)
        split.write_prefix(0, *whole.read_prefix(0, 11))
        rest = model.slow.prefill(columns[11:], [Span(0, 11, 7)], split)
    torch.testing.assert_close(rest, one_go[11:], atol=1e-5, rtol=0)
    torch.testing.assert_close(split.keys[:, :, :, :18], whole.keys[:, :, :, :18])


def test_parts_packed_into_one_pass_give_what_each_gives_alone(loaded: Loaded) -> None:
    model = loaded.model
    columns = _columns(model, num_codes=9).T
    text = model.config.text_config
    packed = KVCache.allocate(
        text, num_slots=3, num_positions=20, device=model.device, dtype=torch.float32
    )
    lengths = [18, 4, 11]
    parts = [columns[:18], columns[2:6], columns[5:16]]
    spans = [Span(slot, 0, length) for slot, length in zip((2, 0, 1), lengths, strict=True)]

    with torch.inference_mode():
        together = model.slow.prefill(torch.cat(parts), spans, packed)

    for span, part, found in zip(spans, parts, torch.split(together, lengths), strict=True):
        cache = new_cache(model, 20)
        with torch.inference_mode():
            alone = model.slow.prefill(part, [Span(0, 0, span.length)], cache)
        torch.testing.assert_close(found, alone, atol=1e-5, rtol=0)
        kept = packed.keys[:, span.slot, :, : span.length]
        torch.testing.assert_close(kept, cache.keys[:, 0, :, : span.length], atol=1e-5, rtol=0)


def test_only_semantic_columns_are_scaled_and_hear_their_codes(loaded: Loaded) -> None:
    slow = loaded.model.slow
    columns = _columns(loaded.model, num_codes=1)[:, [0, 3, 7]].T.clone()
    columns[0, 1:] = 9  # codes beside a text token do not count

    text, without_codes, audio = slow.embed(columns)

    table, codebooks = slow.embeddings.weight, slow.codebook_embeddings.weight
    first_rows = codebooks[slow.codebook_offsets].sum(0)
    root = math.sqrt(slow.num_codebooks + 1)
    assert torch.equal(text, table[columns[0, 0]])
    torch.testing.assert_close(without_codes, (table[columns[1, 0]] + first_rows) / root)
    own_rows = codebooks[columns[2, 1:] + slow.codebook_offsets].sum(0)
    torch.testing.assert_close(audio, (table[columns[2, 0]] + own_rows) / root)


def test_rope_base_and_eps_of_the_audio_decoder_are_not_used(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a")
    write_checkpoint(tmp_path / "b", audio={"rope_base": 7.0, "norm_eps": 0.5, "max_seq_len": 3})
    one, _ = load_dual_ar(tmp_path / "a", dtype=torch.float32)
    other, _ = load_dual_ar(tmp_path / "b", dtype=torch.float32)
    assert torch.equal(one.fast.rope, other.fast.rope)
    assert one.fast.norm_eps == other.fast.norm_eps == one.config.text_config.norm_eps


@pytest.mark.parametrize("head_dim", [16, 24])
def test_heads_need_not_fill_the_width(tmp_path: Path, head_dim: int) -> None:
    write_checkpoint(tmp_path, text={"head_dim": head_dim})
    model, _ = load_dual_ar(tmp_path, dtype=torch.float32)
    run = run_forced(model, _columns(model, 3)[:, :8], _columns(model, 3)[:, 8:])
    assert run.logits.isfinite().all()


FAST_SHAPES: dict[str, dict[str, Any]] = {
    "as published": {},
    "narrower than the slow AR": {"dim": 32},
    "biases": {"attention_qkv_bias": True, "attention_o_bias": True},
    "q/k norm": {"attention_qk_norm": True},
    "three codebooks": {"num_codebooks": 3},
}


@pytest.mark.parametrize("name", FAST_SHAPES)
def test_nine_passes_give_the_logits_of_one_plain_pass(name: str, tmp_path: Path) -> None:
    weights = write_checkpoint(tmp_path, audio=FAST_SHAPES[name])
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
