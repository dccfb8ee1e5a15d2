"""Test graphs: replayed steps give what eager ones give, and nothing is replaced."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.bench.stepping import random_prompt
from lab.golden.case import GoldenFolder
from lab.golden.models import Loaded, load
from synth.contract import Sampling
from synth.engine import Engine
from synth.engine.errors import InvalidSpecError, SlotsDoNotFitError
from synth.engine.model import decode as graph_capture
from synth.engine.model.decode import (
    CudaGraphs,
    GraphBackend,
    GraphCaptureError,
    StepOutput,
    StepRunner,
    capture_steps,
    find_backend,
)
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.prefill import (
    PASS_SIZES,
    PassInputs,
    PrefixCache,
    PromptPass,
    PromptRunner,
    SlotStart,
    start_slots,
)
from tests.synth.engine.arrangement import SLOTS, Arrangement
from tests.synth.engine.engine_runs import (
    CONFIG,
    Start,
    assert_same_codes,
    render,
    spec,
    voice,
    wait_until,
)
from tests.synth.engine.model.stand_in_graphs import Recorder, StandInGraphs, launches

CASES = ("no_voice", "one_voice", "two_voices", "stops_early")


@pytest.fixture
def prompts(golden: GoldenFolder) -> list[Tensor]:
    arrays = golden.tensors("greedy")
    return [arrays[f"{case}.prompt"] for case in CASES]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandInGraphs:
    """Have the engines of this test capture with a stand-in."""
    graphs = StandInGraphs()
    monkeypatch.setattr("synth.engine.engine.find_backend", lambda name, device: graphs)
    return graphs


def state_of(loaded: Loaded, *, strict: bool = False) -> DecodeState:
    return DecodeState.allocate(loaded.model, num_slots=SLOTS, max_positions=256, strict=strict)


def compare(
    loaded: Loaded,
    prompts: list[Tensor],
    backend: GraphBackend,
    *,
    seed: int,
    strict: bool = False,
    frames: int = 60,
) -> set[str]:
    """Do the same with eager steps and with graphs; all that can be seen is equal in every bit."""
    eager, replayed = (state_of(loaded, strict=strict) for _ in range(2))
    runners: list[tuple[StepRunner, DecodeState]] = [
        (StepRunner(loaded.model, eager, length=eager.cache.num_positions), eager),
        (capture_steps(loaded.model, replayed, backend), replayed),
    ]
    arrangement = Arrangement(loaded, prompts, seed)
    for _ in range(frames):
        for operation in arrangement.operations():
            ours, theirs = (operation(*runner) for runner in runners)
            assert_equal(ours, theirs, StepOutput)
        assert_equal(eager, replayed, DecodeState)
        assert eager.host_positions == replayed.host_positions
        for slot, made in enumerate(eager.frame.tolist()):
            if eager.host_positions[slot]:
                histories = (state.history[slot, :made] for state in (eager, replayed))
                assert torch.equal(*histories)
    return arrangement.kinds


def assert_equal(ours: object, theirs: object, kind: type[StepOutput] | type[DecodeState]) -> None:
    """Compare the tensors by name, without the frames and noise of slots that may be free."""
    for item in fields(kind) if ours is not None else ():
        one, other = getattr(ours, item.name), getattr(theirs, item.name)
        if isinstance(one, Tensor) and item.name not in ("history", "words"):
            assert torch.equal(one, other), item.name


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 3))]
)
def test_graphs_give_what_eager_steps_give_frame_by_frame(
    loaded: Loaded, prompts: list[Tensor], seed: int
) -> None:
    kinds = compare(loaded, prompts, StandInGraphs(), seed=seed)
    assert kinds >= {"join", "cancel", "move", "1 slots", "2 slots"}
    assert kinds & {"3 slots", "4 slots", "5 slots"}


@pytest.mark.parametrize("strict", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_graphs_in_bfloat16_give_what_eager_steps_give(
    loaded_bf16: Loaded, prompts: list[Tensor], strict: bool
) -> None:
    compare(loaded_bf16, prompts, StandInGraphs(), seed=7, strict=strict, frames=25)


@pytest.mark.gpu
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cuda_graphs_give_what_eager_steps_give(
    golden: GoldenFolder, prompts: list[Tensor], dtype: torch.dtype, strict: bool
) -> None:
    device = torch.device("cuda:0")
    on_device = load(GoldenFolder(golden.root, device), dtype)
    compare(on_device, prompts, CudaGraphs(device), seed=7, strict=strict)


def test_a_replay_reads_the_tensors_of_its_capture_and_no_others(loaded: Loaded) -> None:
    """A graph does as well: this is what the other tests rest on."""
    state = state_of(loaded)
    steps = capture_steps(loaded.model, state, StandInGraphs())
    state.active[0] = True
    in_capture = state.bucket(1).position
    state.bucket(1).position = in_capture.clone()

    output = steps.step(1)

    assert bool(output.made[0])
    assert (int(in_capture[0]), int(state.bucket(1).position[0])) == (1, 0)
    assert steps.step(1).columns is output.columns


def test_an_engine_with_graphs_gives_the_codes_of_one_without(
    engine: Engine, start: Start, stand_in: StandInGraphs, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [
        spec(f"Number {n}.", voice(n % 2), seed=n, max_frames=2 + 3 * (n % 6)) for n in range(12)
    ]
    expected = render(engine, specs)
    replaying = start(kernels="off", slots=4)
    monkeypatch.setattr("synth.engine.model.decode.decode_step", None)  # no step is eager any more
    monkeypatch.setattr("synth.engine.model.decode.step_tensors", None)

    futures = [replaying.submit(one) for one in specs]
    for n in range(3):
        cancelled = replaying.submit(spec("Cancelled.", max_frames=300), priority=-1)
        wait_until(lambda: replaying.describe()["slots_in_use"] > 0)
        futures[2 * n].result(60)
        assert cancelled.cancel()

    assert_same_codes([future.result(60) for future in futures], expected)
    streamed = np.concatenate(list(replaying.stream(specs[5])))
    assert np.abs(streamed - expected[5].audio).max() < 1e-4
    assert stand_in.replays > 3


@pytest.mark.parametrize("count", [1, 8])
def test_admitted_prompts_give_a_device_little_to_do_but_to_replay(
    loaded: Loaded, count: int
) -> None:
    """Of a frame's launches there are hundreds, and of a prompt's: none of them stands alone."""
    model = loaded.model
    state = DecodeState.allocate(model, num_slots=8, max_positions=256)
    replayed: list[None] = []
    passes = {
        size: PromptPass(
            PassInputs.allocate(size, 11, model.device), partial(replayed.append, None)
        )
        for size in PASS_SIZES
    }
    runner, prefixes = PromptRunner(model, state, passes), PrefixCache(10**9)
    voice = random_prompt(model, 40, seed=1)
    for slot in range(count):
        state.assign(slot, Sampling(max_frames=4), prompt_positions=52 + slot)
    starts = [
        SlotStart(slot, random_prompt(model, 12 + slot, seed=slot), voice, "voice")
        for slot in range(count)
    ]
    start_slots(model, state, starts[:1], prefixes, runner)  # the voice is kept from now on
    state.release(0, failed=False)
    replayed.clear()

    with Recorder() as recorder:
        state.assign(0, Sampling(max_frames=4), prompt_positions=52)
        start_slots(model, state, starts, prefixes, runner)

    assert len(replayed) == count
    assert len(launches(recorder)) <= 60


def test_nothing_is_replaced_after_the_capture(start: Start, stand_in: StandInGraphs) -> None:
    engine = start(kernels="off", slots=4)
    state, slow = engine._state, engine._models.dual_ar.slow

    def places() -> list[object]:
        weights = [id(weight) for weight in slow.parameters()]
        return [memory(state), memory(state.cache), memory(state.fast_cache), weights]

    before = places()
    engine.warm_up()
    render(engine, [spec(f"{n}.", max_frames=1 + n) for n in range(5)])
    assert places() == before


def memory(item: object) -> dict[str, int]:
    """Return where an object's tensors are."""
    names = [name for name in dir(item) if isinstance(getattr(item, name, None), Tensor)]
    return {name: getattr(item, name).data_ptr() for name in names}


@pytest.mark.parametrize(("slots", "strict", "buckets"), [(5, False, [5, 4, 2, 1]), (3, True, [3])])
def test_every_bucket_is_captured_before_the_first_request_largest_first(
    start: Start, stand_in: StandInGraphs, slots: int, strict: bool, buckets: list[int]
) -> None:
    engine = start(kernels="off", slots=slots, strict=strict)
    assert stand_in.slots == buckets
    described = engine.describe()
    assert described["graphs"] == "on"
    assert [bucket["slots"] for bucket in described["graph_buckets"]] == buckets[::-1]
    assert described["graph_nodes"] == described["graph_buckets"][-1]["nodes"] > 100
    assert all(bucket["seconds"] >= 0 for bucket in described["graph_buckets"])
    assert engine.render(spec()).codes.shape[1] == 6


def run_out_above(most: int) -> Callable[[int], None]:
    """Have memory run out in captures of more slots than `most`, and the capture end badly."""

    def check(slots: int) -> None:
        if slots > most:
            try:
                raise torch.OutOfMemoryError("CUDA out of memory")
            finally:
                raise RuntimeError("operation failed due to a previous error during capture")

    return check


def test_buckets_that_find_no_memory_are_left_out_and_fewer_slots_used(
    start: Start, stand_in: StandInGraphs, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in.fails = run_out_above(2)
    engine = start(kernels="off", slots=8)
    takes = render(engine, [spec(f"{n}.") for n in range(7)])
    assert stand_in.slots == [8, 4, 2, 1]
    assert "memory ran out while a graph was captured: slots=8" in caplog.text
    assert "slots that may be used: 2 of 8" in caplog.text
    assert engine.slots == engine.describe()["slot_limit"] == 2
    assert [take.codes.shape[1] for take in takes] == [6] * 7


@pytest.mark.parametrize(("most", "strict"), [(0, False), (2, True)])
def test_an_engine_that_can_capture_nothing_does_not_start(
    start: Start, stand_in: StandInGraphs, most: int, strict: bool
) -> None:
    stand_in.fails = run_out_above(most)
    with pytest.raises(
        SlotsDoNotFitError, match=r"4 slots of 512 positions.*TTS_ENGINE_WITHOUT=graphs"
    ):
        start(kernels="off", slots=4, strict=strict)


def test_a_step_that_cannot_be_captured_is_not_run_eagerly_instead(
    start: Start, stand_in: StandInGraphs
) -> None:
    def refuse(slots: int) -> None:
        raise RuntimeError("operation not permitted when stream is capturing.")

    stand_in.fails = refuse
    with pytest.raises(
        GraphCaptureError, match=r"3 slots.*not permitted.*TTS_ENGINE_WITHOUT=graphs"
    ):
        start()


def test_a_cpu_has_no_graphs_and_says_so_before_weights_are_loaded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = engine.describe()
    assert (described["graphs"], described["graph_nodes"]) == ("off", None)
    assert find_backend("auto", torch.device("cpu")) is None
    monkeypatch.setattr("synth.engine.engine.load_models", None)
    with pytest.raises(InvalidSpecError, match="Graphs need a CUDA device"):
        Engine.load(replace(CONFIG, graphs="on"))


class KeptGraph:
    """Stand in for a captured graph that was kept."""

    def raw_cuda_graph(self) -> int:
        return 4711


class Driver:
    """Stand in for the driver's library: graph 4711 has 812 nodes, or it answers `status`."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def cuGraphGetNodes(self, handle: ctypes.c_void_p, nodes: None, number: Any) -> int:
        """Answer under the driver's own name."""
        assert handle.value == 4711
        number._obj.value = 812
        return self.status


def run() -> StepOutput:
    value = torch.zeros(1)
    return StepOutput(value, value, value, value, value)


def count(graph: object) -> int | None:
    return graph_capture._count_nodes(graph)  # type: ignore[arg-type]  # as good as one


def test_the_driver_says_how_many_nodes_a_graph_has_or_there_is_no_number_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())
    assert count(KeptGraph()) == 812
    assert count(object()) is None
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(status=1))
    assert count(KeptGraph()) is None
    assert "could not be counted: the driver answered 1" in caplog.text
    assert caplog.text.count("could not be counted") == 2


@dataclass
class Device:
    """Stand in for torch.cuda: note in which order it is used, and with which pools."""

    calls: list[str] = field(default_factory=list)
    pools: list[tuple[int, int]] = field(default_factory=list)
    fails: bool = False

    def graph_pool_handle(self) -> tuple[int, int]:
        return (0, len(self.pools) + 1)

    @contextmanager
    def graph(
        self, graph: object, *, pool: tuple[int, int], stream: str, capture_error_mode: str
    ) -> Iterator[None]:
        assert (stream, capture_error_mode) == ("urgent", "thread_local")
        self.pools.append(pool)
        self.calls.append("begin")
        if self.fails:
            raise torch.OutOfMemoryError("no memory")
        yield
        self.calls.append("end")

    def cuda_graph(self, *, keep_graph: bool) -> Device:
        assert keep_graph
        return self

    def instantiate(self) -> None:
        self.calls.append("instantiate")

    def replay(self) -> None:
        self.calls.append("replay")

    def run(self) -> StepOutput:
        self.calls.append("run")
        return run()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    monkeypatch.setattr(
        torch,
        "cuda",
        SimpleNamespace(
            Stream=lambda device, priority: "urgent" if priority < 0 else "usual",
            device=nullcontext,
            stream=nullcontext,
            synchronize=lambda device=None: found.calls.append("wait"),
            CUDAGraph=found.cuda_graph,
            graph=found.graph,
            graph_pool_handle=found.graph_pool_handle,
            OutOfMemoryError=torch.cuda.OutOfMemoryError,
        ),
    )
    monkeypatch.setattr(graph_capture, "_count_nodes", lambda graph: 7)
    return found


def test_a_step_is_run_captured_and_replayed_once_before_it_is_used(device: Device) -> None:
    captured = CudaGraphs(torch.device("cuda:0")).capture(device.run)
    warm_up = ["run"] * graph_capture.WARM_UP_RUNS
    capture = ["begin", "run", "end", "instantiate", "replay", "wait"]
    assert device.calls == ["wait", *warm_up, *capture]
    assert captured.num_nodes == 7
    captured.replay()
    assert device.calls[-1] == "replay"


def test_graphs_share_a_pool_but_for_that_of_a_capture_that_failed(device: Device) -> None:
    graphs = CudaGraphs(torch.device("cuda:0"))

    device.fails = True
    with pytest.raises(torch.OutOfMemoryError):
        graphs.capture(device.run)
    device.fails = False
    for _ in range(3):
        graphs.capture(device.run)

    failed, *shared = device.pools
    assert len(set(shared)) == 1
    assert failed not in shared
