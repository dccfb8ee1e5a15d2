"""Time calls on a CUDA device by its own events."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

CALLS, ROUNDS = 20, 9
FLUSH_BYTES = 1 << 28  # several times the largest second-level cache
# Weights and caches come from memory in a frame; what is smaller was written just before.
COLD_BYTES = 1 << 23


def seconds_of(run: Callable[[], object], device: torch.device, *, num_bytes: int) -> float:
    """Return a call's seconds on a CUDA device: the median of rounds, by the device's own events.

    A call that moves much is replayed once a round and finds nothing in the cache; a smaller one is
    replayed many times in a row. One that cannot be captured is timed with its launches.
    """
    is_cold = num_bytes >= COLD_BYTES
    calls = 1 if is_cold else CALLS
    with torch.cuda.device(device):
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        work = _capture_calls(run, calls)
        flush = torch.empty(FLUSH_BYTES if is_cold else 1, dtype=torch.uint8, device=device)
        # The flush also keeps the device busy until the replay is launched.
        return statistics.median(time_round(work, flush.zero_) for _ in range(ROUNDS)) / calls


def _capture_calls(run: Callable[[], object], calls: int) -> Callable[[], object]:
    """Return what makes the calls: a replay, or the calls themselves where none can be captured."""

    def repeat() -> None:
        for _ in range(calls):
            run()

    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            repeat()
    except RuntimeError:
        torch.cuda.synchronize()
        return repeat
    return graph.replay


def time_round(work: Callable[[], object], before: Callable[[], object]) -> float:
    """Return the seconds of some work behind other work that is not counted."""
    begun, ended = _event(), _event()
    before()
    begun.record()
    work()
    ended.record()
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1000


def _event() -> torch.cuda.Event:
    event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event  # torch's own class has no types
