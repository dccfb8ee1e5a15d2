"""Time one call on a GPU by replays of a graph, so that launching it does not count."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

CALLS, ROUNDS = 20, 9
FLUSH_BYTES = 1 << 28  # several times the largest second-level cache


def seconds_of(run: Callable[[], object], device: torch.device) -> float:
    """Return a call's seconds on a CUDA device: the median of rounds, each behind a cold cache.

    A round is one replay of one call, timed by the device's own events; what a call reads was
    driven out of the cache before it. A call that cannot be captured is timed as it is, many in a
    row and with a warm cache, and its launches count.
    """
    with torch.cuda.device(device):
        for _ in range(3):
            run()
        torch.cuda.synchronize(device)
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run()
        except RuntimeError:
            torch.cuda.synchronize(device)
            return _timed(lambda: [run() for _ in range(CALLS)]) / CALLS
        flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
        return _timed(graph.replay, before=flush.zero_)


def _timed(work: Callable[[], object], before: Callable[[], object] | None = None) -> float:
    seconds = []
    for _ in range(ROUNDS):
        if before is not None:
            before()
        begun, ended = _event(), _event()
        begun.record()
        work()
        ended.record()
        ended.synchronize()
        seconds.append(float(begun.elapsed_time(ended)) / 1000)
    return statistics.median(seconds)


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event  # torch's own class has no types
