"""Test what the codec's fingerprint depends on and what not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from synth.engine.codec import fingerprint
from synth.engine.codec import fingerprint as convert
from synth.engine.codec.codec_file import open_codec, stored_shapes
from synth.engine.codec.fingerprint import convert_codec, half_digest, weights_digest
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.errors import CheckpointError
from synth.engine.loading import digests
from synth.engine.loading.digests import file_sha256
from tests.synth.engine.codec.conftest import State, WriteCodec


def codec_fingerprint(
    checkpoint: Path, precision: str = "float32", *, cache_dir: Path | None = None
) -> str:
    opened = open_codec(checkpoint)
    return fingerprint.codec_fingerprint(opened, precision, cache_dir=cache_dir)


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
        codec_fingerprint(checkpoint, "bfloat16"),
        codec_fingerprint(checkpoint, "tf32"),
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
    with digests._memo_lock:
        digests._memo.clear()


def test_a_kept_digest_is_used_after_a_restart(checkpoint: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before = codec_fingerprint(checkpoint, cache_dir=cache)
    forget()
    kept = cache / digests.CACHE_NAME
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
    (tmp_path / digests.CACHE_NAME).write_text(content, encoding="utf-8")

    found = codec_fingerprint(checkpoint, cache_dir=tmp_path)

    forget()
    assert found == codec_fingerprint(checkpoint)
    kept = json.loads((tmp_path / digests.CACHE_NAME).read_text(encoding="utf-8"))
    assert list(kept.values()) == [half_digest(open_codec(checkpoint), CodecEncoder)]


def test_kept_digests_are_bounded(
    state: State, write_codec: WriteCodec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MAX_ENTRIES", 4)
    cache = tmp_path / "cache"
    for index in range(digests.MAX_ENTRIES + 3):
        codec_fingerprint(write_codec(state, f"copy{index}"), cache_dir=cache)

    kept = json.loads((cache / digests.CACHE_NAME).read_text(encoding="utf-8"))
    assert len(kept) == digests.MAX_ENTRIES
    assert len(digests._memo) <= digests.MAX_ENTRIES


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


def test_the_converted_file_holds_the_same_tensors_under_plain_names(
    state: State, write_codec: WriteCodec
) -> None:
    half = {f"generator.{name}": tensor.half() for name, tensor in state.items()}
    checkpoint = write_codec({"state_dict": half})

    result = convert_codec(checkpoint)

    found = load_file(result.path)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name].half()) for name in state)
    assert result.num_tensors == len(state)
    assert result.num_bytes == result.path.stat().st_size


def test_file_and_record_name_the_source_and_the_fingerprint(checkpoint: Path) -> None:
    result = convert_codec(checkpoint)

    digest = file_sha256(checkpoint / "codec.pth")
    with safe_open(result.path, "pt") as opened:
        metadata = opened.metadata()
    assert metadata["source_sha256"] == result.source_sha256 == digest
    assert len(metadata["encoder_sha256"]) == len(metadata["decoder_sha256"]) == 64
    record = json.loads(result.record.read_text(encoding="utf-8"))
    assert record["source"] == "codec.pth"
    assert record["source_sha256"] == digest
    assert record["codec_fingerprint"] == result.codec_fingerprint == codec_fingerprint(checkpoint)


def test_converting_again_replaces_a_stale_conversion(
    checkpoint: Path, state: State, write_codec: WriteCodec
) -> None:
    convert_codec(checkpoint)
    name = "decoder.model.5.alpha"
    write_codec(state | {name: state[name] + 1})
    with pytest.raises(CheckpointError, match="convert_codec"):
        open_codec(checkpoint)

    convert_codec(checkpoint)

    assert torch.equal(open_codec(checkpoint).tensors[name], state[name] + 1)


def test_a_codec_that_would_not_load_is_not_converted(
    state: State, write_codec: WriteCodec
) -> None:
    del state["decoder.model.5.alpha"]
    checkpoint = write_codec(state)
    with pytest.raises(CheckpointError, match=r"decoder\.model\.5\.alpha"):
        convert_codec(checkpoint)
    assert [path.name for path in checkpoint.iterdir()] == ["codec.pth"]


def test_tensors_that_share_memory_or_are_strided_are_converted(
    state: State, write_codec: WriteCodec
) -> None:
    shared = torch.stack([state["encoder.block.0.conv.bias"]] * 2)
    strided = state["quantizer.pre_module.layers.0.attention.wo.weight"].t().contiguous().t()
    changes = {
        "encoder.block.0.conv.bias": shared[0],
        "encoder.block.1.block.0.block.1.conv.bias": shared[1],
        "quantizer.pre_module.layers.0.attention.wo.weight": strided,
    }
    checkpoint = write_codec(state | changes)
    before = codec_fingerprint(checkpoint)

    result = convert_codec(checkpoint)

    assert result.codec_fingerprint == before == codec_fingerprint(checkpoint)
    (checkpoint / "codec.pth").unlink()
    assert codec_fingerprint(checkpoint) == before


def test_nothing_to_convert_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing to convert"):
        convert_codec(tmp_path)


def test_a_disk_that_fills_up_leaves_no_part_behind(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(tensors: State, path: Path, metadata: dict[str, str]) -> None:
        path.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(convert, "save_file", write_half)

    with pytest.raises(CheckpointError, match="No space left"):
        convert_codec(checkpoint)

    assert [path.name for path in checkpoint.iterdir()] == ["codec.pth"]
