"""The tests' own rounding to bfloat16 is that of PyTorch."""

from __future__ import annotations

import numpy as np
import torch

from tests.synth.engine.kernels.rounding import to_bfloat16


def test_float32_is_rounded_to_bfloat16_as_torch_does(generator: torch.Generator) -> None:
    drawn = torch.randint(0, 2**32, (50_000,), generator=generator, device=generator.device)
    ties = (drawn[:1000] & 0xFFFF0000) | 0x8000
    edges = torch.tensor([0, 1 << 31, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 1])
    bits = torch.cat([drawn, ties, edges.to(drawn.device)]).cpu().numpy().astype(np.uint32)

    found = torch.from_numpy(to_bfloat16(bits).view(np.int16)).view(torch.bfloat16)

    expected = torch.from_numpy(bits.view(np.float32)).to(torch.bfloat16)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found[~found.isnan()], expected[~expected.isnan()])
