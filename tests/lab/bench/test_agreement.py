"""A GPU's number formats are emulated: what they change in the logits is told by format."""

from __future__ import annotations

from argparse import ArgumentParser

import pytest
import torch

from lab.bench import agreement
from lab.bench.models.emulation import emulate_checkpoint
from lab.bench.report import Report
from lab.golden.case import GoldenFolder
from lab.management.commands.bench import BENCHES
from lab.training.evaluation.report import _load
from synth.contract import RenderSpec, Sampling
from synth.engine import EngineConfig
from synth.engine.model.linear import KEPT_ROWS, ScaledLinear, multiply_scaled


def run(*arguments: str) -> Report:
    parser = ArgumentParser()
    BENCHES["agreement"].add_arguments(parser)
    return agreement.run(vars(parser.parse_args([*arguments, "--frames", "3"])), lambda line: None)


def test_fewer_bits_agree_less_and_fp8_least_where_it_rounds_inputs_too() -> None:
    few, many = str(KEPT_ROWS // 2), str(KEPT_ROWS + 1)
    formats = "bfloat16,int8,int8-slow,fp8"

    rows = run("--preset", "tiny", "--dtype", formats, "--batch", f"{few},{many}").rows

    error = {(row["dtype"], str(row["batch"])): row["error_to_bfloat16"] for row in rows}
    for batch in (few, many):
        assert error["bfloat16", batch] == 0
        assert 1e-3 < error["int8-slow", batch] < error["int8", batch] < error["fp8", batch] < 0.2
    assert error["fp8", many] > 1.2 * error["fp8", few]
    assert error["int8", many] < 1.2 * error["int8", few]
    by_float32 = {row["dtype"]: row["error_to_float32"] for row in rows}
    assert 0 < by_float32["bfloat16"] < by_float32["int8"]
    for row in rows:
        assert (row["same_as_bfloat16"] == 1) == (row["dtype"] == "bfloat16")


def test_emulated_products_are_those_of_the_format(golden: GoldenFolder) -> None:
    model = emulate_checkpoint(golden.checkpoint, "fp8")
    product = model.slow.blocks[0].attention.wo
    assert isinstance(product, ScaledLinear) and model.weight_format == "fp8"
    size = product.weight.shape[1]
    x = torch.randn(KEPT_ROWS + 3, size, generator=torch.Generator().manual_seed(0)).bfloat16()
    for given in (x, x[:4]):
        assert torch.equal(product(given), multiply_scaled(given, product.weight, None))


@pytest.mark.parametrize("dtype", ["int8-slow", "fp8"])
def test_a_checkpoint_speaks_in_a_gpus_format(golden: GoldenFolder, dtype: str) -> None:
    config = EngineConfig(golden.checkpoint, device="cpu", dtype="float32", slots=1)
    engine = _load(config, dtype)
    try:
        assert engine.describe()["weights"] == dtype
        take = engine.render(RenderSpec("Hello.", None, Sampling(seed=1, max_frames=4)))
    finally:
        engine.close()
    assert take.codes.shape[1] > 0
