"""Run golden generations as an engine does: in slots among others, behind prefixes run once."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from lab.golden.case import CaseResult, compare_value
from lab.golden.generate import CodeRequest, Generation, assign_request
from lab.golden.generation_jobs import Job, Outcome, Run
from lab.golden.models import Loaded
from lab.golden.noise import CounterNoise
from synth.contract import Sampling
from synth.engine.errors import EngineError
from synth.engine.model.decode import decode_step
from synth.engine.model.decode_state import FINISH_REASONS, RUNNING, DecodeState
from synth.engine.model.prefill import PrefixCache, SlotStart, start_slots
from synth.engine.model.sampling import CounterFrame, FrameNoise, NoiseSource, draw_words
from synth.engine.prompt import VoicePrompt, prompt_builder

_BUCKETS = (1, 2, 4, 6)
_SLOTS = _BUCKETS[-1]
_NEIGHBOURS = 2  # made-up requests that run beside the golden ones at any time
_STARTS = 3  # slots started at once
_NEIGHBOUR_FRAMES = (3, 7, 4, 9)  # short ones, so that slots come free and streams are moved
_PREFIX_BYTES = 10**8


@dataclass(eq=False)
class _Stream:
    """Hold the requests of a job, or of a neighbour, and what the current one has given."""

    requests: Generator[CodeRequest, Generation, None]
    outcome: Outcome
    seed: int
    is_neighbour: bool
    request: CodeRequest | None = None
    draws: list[Tensor] = field(default_factory=list)  # of each frame, [2]

    def go_on(self, generation: Generation | None) -> bool:
        """Take the next request; False when there is none, or the job ended with an error."""
        try:
            if generation is None:
                self.request = next(self.requests)
            else:
                self.outcome.generations.append(generation.raise_if_failed())
                self.request = self.requests.send(generation)
        except StopIteration:
            return False
        except EngineError as error:
            self.outcome.error = error
            return False
        self.draws = []
        return True


def run_batched(file: str, loaded: Loaded, jobs: Sequence[Job], *, own_noise: bool = False) -> Run:
    """Run all jobs of a file together; those with a context of their own size among themselves.

    `own_noise`: draw every stream with the state's own numbers, as compiled frames do.
    """
    run = Run({})
    for max_seq_len in dict.fromkeys(job.max_seq_len for job in jobs):
        positions = max_seq_len or loaded.model.config.text_config.max_seq_len
        batch = _Batch(loaded, positions, own_noise=own_noise)
        group = [job for job in jobs if job.max_seq_len == max_seq_len]
        run.outcomes.update(batch.run(group))
        run.results.append(batch.prefix_result(file))
    return run


class _Batch:
    """Hold the slots, what runs in them and what waits."""

    def __init__(self, loaded: Loaded, max_positions: int, *, own_noise: bool = False) -> None:
        self._loaded, self._model = loaded, loaded.model
        self._noise, self._prefixes = StreamNoise(), PrefixCache(_PREFIX_BYTES)
        self._state = DecodeState.allocate(
            loaded.model,
            num_slots=_SLOTS,
            max_positions=max_positions,
            like_reference=True,
            noise=None if own_noise else self._noise,
        )
        self._used_keys: set[str] = set()
        self._running: dict[int, _Stream] = {}
        self._waiting: deque[_Stream] = deque()
        self._seeds = itertools.count(1)

    def run(self, jobs: Sequence[Job]) -> dict[str, Outcome]:
        """Return what each job gave."""
        outcomes = {job.name: Outcome() for job in jobs}
        for job in jobs:
            stream = _Stream(
                job.requests(self._loaded), outcomes[job.name], next(self._seeds), False
            )
            source = job.noise_source(self._loaded)
            if not isinstance(source, CounterNoise):
                self._noise.add(stream.seed, source)
            if stream.go_on(None):
                self._waiting.append(stream)
        neighbours = self._neighbours()
        while self._waiting or any(not each.is_neighbour for each in self._running.values()):
            self._start(neighbours)
            self._close_gaps()
            self._step()
            self._collect()
        return outcomes

    def prefix_result(self, file: str) -> CaseResult:
        """Return whether every prefix was run once, however many requests began with it."""
        case = f"prefixes run, {self._state.max_positions} positions"
        return compare_value(file, case, self._prefixes.misses, len(self._used_keys))

    def _neighbours(self) -> Iterator[_Stream]:
        """Yield made-up requests for ever."""
        while True:
            seed = next(self._seeds)
            yield _Stream(self._neighbour_requests(seed), Outcome(), seed, True)

    def _neighbour_requests(self, seed: int) -> Generator[CodeRequest, Generation, None]:
        builder = prompt_builder(self._model, self._loaded.tokenizer, like_reference=True)
        codes = torch.arange(20 * builder.num_codebooks).view(builder.num_codebooks, 20)
        voice = VoicePrompt("Beside them.", codes % builder.codebook_size)
        prompts = [
            torch.cat([builder.system(voices), builder.turn(text)], dim=1)
            for voices in ((), (voice,))
            for text in ("Be.", "It goes on beside them.")
        ]
        frames = _NEIGHBOUR_FRAMES[seed % len(_NEIGHBOUR_FRAMES)]
        limit = self._state.max_positions - frames
        fitting = [prompt for prompt in prompts if prompt.shape[1] <= limit]
        yield CodeRequest(fitting[seed % len(fitting)], Sampling(max_frames=frames))

    def _start(self, neighbours: Iterator[_Stream]) -> None:
        """Give free slots to neighbours until there are enough of them, then to what waits."""
        # From the last slot on, so that streams have to be moved.
        free = deque(slot for slot in reversed(range(_SLOTS)) if slot not in self._running)
        starts: list[SlotStart] = []
        while free and len(starts) < _STARTS:
            beside = sum(stream.is_neighbour for stream in self._running.values())
            if beside < _NEIGHBOURS:
                stream = next(neighbours)
                stream.go_on(None)
            elif self._waiting:
                stream = self._waiting.popleft()
            else:
                break
            if self._assign(free[0], stream):
                self._running[free[0]] = stream
                starts.append(self._slot_start(free.popleft(), stream))
        if starts:
            start_slots(self._model, self._state, starts, self._prefixes)

    def _assign(self, slot: int, stream: _Stream) -> bool:
        """Assign a slot; False where the request is refused, which is its outcome."""
        request = stream.request
        assert request is not None
        try:
            sampling = replace(request.sampling, seed=stream.seed)
            assign_request(self._state, slot, replace(request, sampling=sampling))
        except EngineError as error:
            stream.outcome.error = error
            return False
        return True

    def _slot_start(self, slot: int, stream: _Stream) -> SlotStart:
        """Return a request in two parts, cut behind its first message."""
        assert stream.request is not None
        prompt = stream.request.prompt
        ends = (prompt[0] == self._model.special.im_end).nonzero().flatten().tolist()
        cut = ends[0] + 2 if ends and ends[0] + 2 < prompt.shape[1] else prompt.shape[1] // 2
        prefix = prompt[:, :cut]
        key = prefix.contiguous().numpy().tobytes().hex()
        self._used_keys.add(key)
        return SlotStart(slot, prompt[:, cut:], prefix, key)

    def _close_gaps(self) -> None:
        """Move streams so that they fill the first slots."""
        while self._running and max(self._running) >= len(self._running):
            source = max(self._running)
            target = next(slot for slot in range(_SLOTS) if slot not in self._running)
            self._state.move(source, target)
            self._running[target] = self._running.pop(source)

    def _step(self) -> None:
        """Make a frame of every stream, in the smallest bucket that holds them."""
        if self._running:
            size = next(size for size in _BUCKETS if size >= len(self._running))
            output = decode_step(self._model, self._state.bucket(size))
            draws = torch.stack([output.first_draw, output.second_draw], dim=1)
            for slot, stream in self._running.items():
                stream.draws.append(draws[slot])

    def _collect(self) -> None:
        """Take out what has ended and let its stream go on."""
        for slot, status in enumerate(self._state.status.tolist()):
            if slot not in self._running or status == RUNNING:
                continue
            stream = self._running.pop(slot)
            self._state.release(slot)
            assert stream.request is not None
            made = self._state.history[slot, : self._state.frame[slot]].T.to("cpu", torch.int64)
            generation = Generation(
                prompt=stream.request.prompt,
                codes=made[1:, :-1],  # as the reference gives them back
                columns=made,
                draws=torch.stack(stream.draws).cpu(),
                finish_reason=FINISH_REASONS.get(status),
            )
            if stream.go_on(generation):
                self._waiting.append(stream)
            else:
                self._noise.forget(stream.seed)


class StreamNoise:
    """Join sources of single streams, told apart by their seed; other streams are counter-based.

    A source's frames are drawn in order and kept, so that a stream gets the same numbers for a
    frame wherever its row is, however often they are asked for, and whether it is started or not.
    """

    def __init__(self) -> None:
        self._sources: dict[int, NoiseSource] = {}
        self._drawn: dict[int, list[FrameNoise]] = {}

    def add(self, seed: int, source: NoiseSource) -> None:
        """Draw the numbers of the stream with this seed from a source."""
        self._sources[seed], self._drawn[seed] = source, []

    def forget(self, seed: int) -> None:
        """Drop a stream that has ended, if it has a source; its row may still be computed."""
        self._sources.pop(seed, None)
        self._drawn.pop(seed, None)

    def frame(self, seeds: Tensor, frames: Tensor, num_draws: int) -> FrameNoise:
        """Return the noise of each stream's frame; see NoiseSource."""
        own = {
            row: self._of_stream(seed, frame, num_draws)
            for row, (seed, frame) in enumerate(zip(seeds.tolist(), frames.tolist(), strict=True))
            if seed in self._sources
        }
        return _MixedFrame(CounterFrame(draw_words(seeds, frames, num_draws)), own)

    def _of_stream(self, seed: int, frame: int, num_draws: int) -> FrameNoise:
        drawn = self._drawn[seed]
        while len(drawn) <= frame:
            one = torch.zeros(1, dtype=torch.int64)
            drawn.append(self._sources[seed].frame(one, one, num_draws))
        return drawn[frame]


class _MixedFrame:
    """Give some rows numbers of their own and the others those of a frame of all rows."""

    def __init__(self, others: FrameNoise, own: dict[int, FrameNoise]) -> None:
        self._others, self._own = others, own

    def uniform(self, draw: int, ids: Tensor) -> Tensor:
        """Return float32 in [0, 1), shaped like ids int64 [B, k]; see FrameNoise."""
        numbers = self._others.uniform(draw, ids)
        for row, noise in self._own.items():
            numbers[row] = noise.uniform(draw, ids[row : row + 1])[0]
        return numbers
