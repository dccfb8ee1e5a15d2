"""Say how PyTorch's threads wait for each other; must run before torch is imported."""

from __future__ import annotations

import os

# What GNU's OpenMP does unless told otherwise: some milliseconds.
LONG_SPIN_ROUNDS = 300_000


def set_spinning(rounds: int) -> None:
    """Let threads look that many times before they sleep, unless the environment has a policy.

    A frame has hundreds of small products whose threads wait for each other. Waking one that sleeps
    takes about 40 microseconds; one that looks for long keeps a processor from other work, and
    beside other busy processes rendering gets several times slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", str(rounds))
