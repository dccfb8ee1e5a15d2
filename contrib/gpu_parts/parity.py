"""List the checks of what the device computes against what it should."""

from __future__ import annotations

from contrib.gpu_parts import agreement, codec_parity, golden, graphs, kernels

STEPS = (*kernels.STEPS, *graphs.STEPS, *agreement.STEPS, *codec_parity.STEPS, *golden.STEPS)
