"""Test config."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from lab.golden.case import GoldenFolder
from synth.engine.errors import CheckpointError
from synth.engine.model.config import load_config, parse_config


@pytest.fixture
def content(golden: GoldenFolder) -> dict[str, Any]:
    text = (golden.checkpoint / "config.json").read_text(encoding="utf-8")
    parsed: dict[str, Any] = json.loads(text)
    return parsed


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        *((f"text_config.{key}", None, key) for key in ("vocab_size", "n_layer", "n_head", "dim")),
        *(
            (f"audio_decoder_config.{key}", None, f"audio_decoder_config.{key}")
            for key in ("vocab_size", "num_codebooks", "n_layer")
        ),
        ("text_config.n_head", 3, "n_head"),  # 64 is no multiple
        *(("text_config.n_local_heads", value, "n_local_heads") for value in (3, 0)),
        ("text_config.head_dim", 15, "head_dim is odd"),
        ("text_config.dim", "64", "dim is '64'"),
        *(("text_config.norm_eps", value, "norm_eps") for value in (0, True)),
        *(("text_config.attention_qk_norm", value, "true or false") for value in ("yes", 1)),
        ("text_config.n_layer", True, "n_layer"),
        ("text_config.max_seq_len", -1, "a whole number from 1"),
    ],
)
def test_a_value_no_model_can_have_is_refused_by_name(
    content: dict[str, Any], path: str, value: object, words: str
) -> None:
    section, _, key = path.partition(".")
    content[section][key] = value
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{words}"):
        parse_config(content)


def test_a_missing_width_of_the_feed_forward_is_the_next_multiple_of_256(
    content: dict[str, Any],
) -> None:
    content["text_config"].update(dim=640, n_head=4)
    del content["text_config"]["intermediate_size"]
    assert parse_config(content).text_config.intermediate_size == 1792  # 2 * 4 * 640 / 3 = 1706


def test_what_the_audio_decoder_does_not_name_it_takes_from_the_text_model(
    content: dict[str, Any],
) -> None:
    kept = ("vocab_size", "num_codebooks", "n_layer")
    content["audio_decoder_config"] = {k: content["audio_decoder_config"][k] for k in kept}
    before = copy.deepcopy(content)
    config = parse_config(content)
    assert content == before
    for name in ("dim", "n_head", "n_local_heads", "head_dim", "intermediate_size"):
        assert getattr(config.audio_decoder_config, name) == getattr(config.text_config, name)
    assert config.audio_decoder_config.attention_qk_norm is True


def test_the_file_is_named_when_it_is_missing_or_no_json(tmp_path: Path) -> None:
    for written, message in ((None, "missing"), ("{", "JSON"), ("[]", "object")):
        if written is not None:
            (tmp_path / "config.json").write_text(written, encoding="utf-8")
        with pytest.raises(CheckpointError, match=message):
            load_config(tmp_path)
