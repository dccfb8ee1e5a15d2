"""Test lab.bench.load_memory: loading needs little more memory than what it leaves behind.

The checkpoint is of the shape that figures on a CPU are made with: 334 MB of transformers in
bfloat16 and 99 MB of codec in float32. Each load runs in a process of its own; the slack is for
what libraries allocate besides, whatever the size of the model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lab.bench.load_memory import LoadMemory, main, measure_load
from lab.bench.models.presets import write_preset_checkpoint
from synth.engine import EngineConfig
from synth.engine.errors import EngineError
from synth.engine.loading.weights import _memory_name

SLACK = 16 * 10**6
FACTOR = 1.15


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_preset_checkpoint("mid", tmp_path_factory.mktemp("mid") / "checkpoint")


@pytest.fixture
def config(checkpoint: Path) -> EngineConfig:
    return EngineConfig(checkpoint, device="cpu", threads=1)


def assert_lean(found: LoadMemory) -> None:
    assert found.peak_anonymous <= FACTOR * found.weights + SLACK, found
    assert found.left_anonymous <= FACTOR * found.weights + SLACK, found
    assert found.left_anonymous >= 0.9 * found.weights, "the weights are still in the file"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("dtype", "bytes_per_number"), [("float32", 4), ("bfloat16", 2)], ids=["widened", "as stored"]
)
def test_transformers_take_their_weights_and_no_second_copy(
    config: EngineConfig, dtype: str, bytes_per_number: int
) -> None:
    found = measure_load("transformers", replace(config, dtype=dtype))
    assert found.weights == pytest.approx(bytes_per_number * 167e6, rel=0.06)
    assert_lean(found)


def test_weights_in_8_bits_never_stand_in_memory_as_a_whole_in_32(config: EngineConfig) -> None:
    found = measure_load("transformers", replace(config, dtype="int8"))
    # 113 M of the 167 M numbers are in 8 bits, and the library's layout adds a third to these.
    assert found.peak_anonymous <= 1.5 * found.weights, found
    assert found.weights < 0.55 * 4 * 167e6


@pytest.mark.parametrize("part", [pytest.param("encoder", marks=pytest.mark.thorough), "decoder"])
def test_a_codec_half_takes_its_own_weights_alone(config: EngineConfig, part: str) -> None:
    found = measure_load(part, config)
    whole = (config.checkpoint / "codec.safetensors").stat().st_size
    assert_lean(found)
    mapped = found.peak_resident - found.peak_anonymous
    assert mapped < 0.85 * whole, "it reads the other half's tensors too"


@pytest.mark.thorough
def test_weights_come_as_lean_out_of_a_pickle(config: EngineConfig, tmp_path: Path) -> None:
    torch.save(load_file(config.checkpoint / "codec.safetensors"), tmp_path / "codec.pth")
    assert_lean(measure_load("decoder", replace(config, checkpoint=tmp_path)))

    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((config.checkpoint / name).read_bytes())
    stored = load_file(config.checkpoint / "model.safetensors")
    weights = {_memory_name(name): weight for name, weight in stored.items()}
    torch.save(weights, tmp_path / "model.pth")
    found = measure_load("transformers", replace(config, checkpoint=tmp_path, dtype="bfloat16"))
    assert_lean(found)


@pytest.mark.thorough
def test_a_load_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"Loading the decoder failed: .*codec\.safetensors"):
        measure_load("decoder", EngineConfig(tmp_path, device="cpu"))


@pytest.mark.thorough
def test_the_command_prints_a_row_for_each_part(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = Path(__file__).parents[2] / "data" / "golden" / "tiny-s2"
    assert main([str(tiny), "--device", "cpu", "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["part", "transformers", "encoder", "decoder"]
