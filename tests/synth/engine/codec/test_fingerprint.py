"""Test what the codec's fingerprint depends on and what not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.files import fingerprint
from synth.engine.codec.files.codec_file import open_codec
from synth.engine.codec.files.convert import convert_codec
from synth.engine.codec.files.fingerprint import codec_fingerprint, half_digest, weights_digest
from synth.engine.codec.files.stored_weights import stored_shapes
from tests.synth.engine.codec.conftest import State

WriteCodec = Callable[..., Path]


def test_both_containers_give_the_same_fingerprint(checkpoint: Path) -> None:
    before = codec_fingerprint(checkpoint)
    result = convert_codec(checkpoint)
    with_both = codec_fingerprint(checkpoint)
    (checkpoint / "codec.pth").unlink()

    assert before == with_both == codec_fingerprint(checkpoint) == result.codec_fingerprint
    assert len(before) == 64


def test_wrapping_and_storage_dtype_do_not_count(state: State, write_codec: WriteCodec) -> None:
    rounded = {name: tensor.half() for name, tensor in state.items()}
    plain = write_codec({name: t.float() for name, t in rounded.items()}, "plain")
    narrow = write_codec(rounded, "narrow")
    wrapped = write_codec(
        {"state_dict": {f"generator.{n}": t for n, t in rounded.items()}}, "wrapped"
    )

    assert codec_fingerprint(plain) == codec_fingerprint(narrow) == codec_fingerprint(wrapped)


def test_every_precision_of_encoding_has_a_fingerprint_of_its_own(checkpoint: Path) -> None:
    found = {
        codec_fingerprint(checkpoint),
        codec_fingerprint(checkpoint, torch.bfloat16),
        codec_fingerprint(checkpoint, tf32=True),
    }

    assert len(found) == 3


def test_each_tensor_that_encodes_counts_and_no_other(
    state: State, write_codec: WriteCodec
) -> None:
    with torch.device("meta"):
        encoder = CodecEncoder(open_codec(write_codec(state, "plain")).config)
    encoding = stored_shapes(encoder)
    before = weights_digest({name: state[name] for name in encoding})
    plain = codec_fingerprint(write_codec(state, "plain"))

    for name in (
        "quantizer.downsample.0.0.conv.bias",
        "quantizer.quantizer.quantizers.2.out_proj.bias",
    ):
        changed = state | {name: state[name] + 1}
        assert weights_digest({n: changed[n] for n in encoding}) != before
        assert codec_fingerprint(write_codec(changed, name)) != plain
    for name in ("decoder.model.0.conv.bias", "quantizer.post_module.norm.weight"):
        assert codec_fingerprint(write_codec(state | {name: state[name] + 1}, name)) == plain


def test_a_name_or_a_shape_counts_like_a_value() -> None:
    values = torch.arange(6.0)

    digests = {
        weights_digest({"a": values}),
        weights_digest({"b": values}),
        weights_digest({"a": values.view(2, 3)}),
        weights_digest({"a": values.view(3, 2)}),
    }

    assert len(digests) == 4
    assert weights_digest({"a": values, "b": values}) == weights_digest({"b": values, "a": values})


def test_the_preprocessing_version_counts(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = codec_fingerprint(checkpoint)

    monkeypatch.setattr(fingerprint, "PREPROCESSING_VERSION", 999)

    assert codec_fingerprint(checkpoint) != before


def test_a_window_that_only_the_config_file_tells_counts(checkpoint: Path) -> None:
    before = codec_fingerprint(checkpoint)
    content = {"quantizer": {"pre_module": {"window_size": 64}}}

    (checkpoint / "codec_config.json").write_text(json.dumps(content), encoding="utf-8")

    assert codec_fingerprint(checkpoint) != before


def test_a_file_changed_in_place_gets_another_fingerprint(
    checkpoint: Path, state: State, write_codec: WriteCodec
) -> None:
    before = codec_fingerprint(checkpoint)

    name = "encoder.block.0.conv.bias"
    write_codec(state | {name: state[name] + 1})

    assert codec_fingerprint(checkpoint) != before


def forget() -> None:
    """Empty the process's memory, as a restart does."""
    with fingerprint._memo_lock:
        fingerprint._memo.clear()


def test_a_kept_digest_is_used_after_a_restart(checkpoint: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before = codec_fingerprint(checkpoint, cache_dir=cache)
    forget()
    kept = cache / fingerprint.CACHE_NAME
    entries = json.loads(kept.read_text(encoding="utf-8"))
    kept.write_text(json.dumps(dict.fromkeys(entries, "f" * 64)), encoding="utf-8")

    # The kept number was altered, so only its use explains another fingerprint.
    assert codec_fingerprint(checkpoint, cache_dir=cache) != before
    forget()
    assert codec_fingerprint(checkpoint) == before


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": 1}', "\x00"])
def test_a_damaged_digest_file_is_made_again(
    checkpoint: Path, tmp_path: Path, content: str
) -> None:
    forget()
    (tmp_path / fingerprint.CACHE_NAME).write_text(content, encoding="utf-8")

    found = codec_fingerprint(checkpoint, cache_dir=tmp_path)

    forget()
    assert found == codec_fingerprint(checkpoint)
    kept = json.loads((tmp_path / fingerprint.CACHE_NAME).read_text(encoding="utf-8"))
    assert list(kept.values()) == [half_digest(open_codec(checkpoint), CodecEncoder)]


def test_kept_digests_are_bounded(state: State, write_codec: WriteCodec, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for index in range(fingerprint.CACHE_ENTRIES + 3):
        codec_fingerprint(write_codec(state, f"copy{index}"), cache_dir=cache)

    kept = json.loads((cache / fingerprint.CACHE_NAME).read_text(encoding="utf-8"))
    assert len(kept) == fingerprint.CACHE_ENTRIES
    assert len(fingerprint._memo) <= fingerprint.CACHE_ENTRIES


def test_the_halves_have_digests_of_their_own(checkpoint: Path, state: State) -> None:
    opened = open_codec(checkpoint)

    assert half_digest(opened, CodecEncoder) != half_digest(opened, CodecDecoder)


def test_a_foreign_safetensors_alone_has_the_same_fingerprint(
    checkpoint: Path, state: State, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    save_file(state, other / "codec.safetensors")

    assert codec_fingerprint(other) == codec_fingerprint(checkpoint)
