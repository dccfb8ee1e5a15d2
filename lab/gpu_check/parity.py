"""List the checks of what the device computes against what it should."""

from __future__ import annotations

from lab.gpu_check import agreement, codec_parity, golden, graphs, kernels

STEPS = (*kernels.STEPS, *graphs.STEPS, *agreement.STEPS, *codec_parity.STEPS, *golden.STEPS)
