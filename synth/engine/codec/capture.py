"""Record work on fixed tensors once, to be done again as one launch."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import torch

WARM_UP_RUNS = 2  # compile kernels, take the libraries' workspaces

Work = Callable[[], None]


class Capture(Protocol):
    """Turn work into its replay.

    The work reads and writes tensors that stay where they are as long as the replay is used, and
    neither waits for the device nor looks at its numbers. Replays follow one another on one stream.
    """

    def __call__(self, work: Work) -> Work:
        """Return what does the work again; doing it may be part of recording it."""
        ...


def keep_eager(work: Work) -> Work:
    """Return the work itself, for devices without graphs and for tests."""
    return work


class CudaCapture:
    """Record CUDA graphs on the stream that is current, whose priority their kernels get.

    All share one pool of memory: nothing in it outlives a replay but what the work was given.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        """Record the work on a stream other than the device's first; its own error goes on."""
        stream = torch.cuda.current_stream(self._device)
        for _ in range(WARM_UP_RUNS):
            work()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        # Not through torch.cuda.graph, which collects garbage each time: there are many graphs.
        # Other threads may go on meanwhile.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            work()
        except Exception:
            self._pool = torch.cuda.graph_pool_handle()  # the other is not to be trusted
            with suppress(RuntimeError):  # says only that there was an error
                graph.capture_end()
            raise
        graph.capture_end()
        return graph.replay
