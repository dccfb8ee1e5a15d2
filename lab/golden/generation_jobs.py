"""Describe the generations that golden vectors hold, and run them one by one as the reference does.

A way to run them takes all jobs of a file, so that it may run them together.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from lab.golden.case import CaseResult
from lab.golden.generate import (
    DEFAULT_CHUNK_BYTES,
    CodeRequest,
    Generation,
    generate_codes,
    text_requests,
)
from lab.golden.models import Loaded, noise_of, sampling_of, voices_of
from synth.engine.errors import EngineError
from synth.engine.model.sampling import NoiseSource


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Name one call of the reference: a prompt [1 + K, S], or else a text with its voices.

    `row` has the parameters, with `text` and voices where there is no prompt; the codes of voices
    are in `arrays` under the job's name. `noise` replaces what the row's seed means.
    """

    name: str
    row: dict[str, Any]
    prompt: Tensor | None = None
    arrays: dict[str, Tensor] = field(default_factory=dict)
    max_seq_len: int | None = None
    noise: NoiseSource | None = None

    def noise_source(self, loaded: Loaded) -> NoiseSource:
        """Return the numbers to draw with; those in the reference's order are for one stream."""
        return noise_of(loaded, self.row) if self.noise is None else self.noise

    def requests(self, loaded: Loaded) -> Generator[CodeRequest, Generation, None]:
        """Yield the requests of the job one after the other; each one's generation is sent back."""
        if self.prompt is not None:
            yield CodeRequest(self.prompt, sampling_of(self.row))
            return
        yield from text_requests(
            loaded.model,
            loaded.tokenizer,
            self.row["text"],
            voices_of(self.row, self.arrays, self.name),
            sampling=sampling_of(self.row),
            like_reference=True,
            chunk_bytes=self.row.get("chunk_length", DEFAULT_CHUNK_BYTES),
        )


@dataclass(eq=False)
class Outcome:
    """Hold what a job gave: a generation for each prompt, up to the error that ended it."""

    generations: list[Generation] = field(default_factory=list)
    error: EngineError | None = None

    def succeeded(self) -> list[Generation]:
        """Return the generations of a job that must not fail; raise its error."""
        if self.error is not None:
            raise self.error
        return self.generations


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Hold the outcomes by their job's name, and what else is to be reported of the file."""

    outcomes: dict[str, Outcome]
    results: list[CaseResult] = field(default_factory=list)


RunJobs = Callable[[str, Loaded, Sequence[Job]], Run]  # the first is the file's name


def run_alone(file: str, loaded: Loaded, jobs: Sequence[Job]) -> Run:
    """Run every job by itself, each prompt in one piece."""
    return Run({job.name: _run(loaded, job) for job in jobs})


def _run(loaded: Loaded, job: Job) -> Outcome:
    outcome, noise = Outcome(), job.noise_source(loaded)
    requests = job.requests(loaded)
    try:
        request = next(requests)
        while True:
            generation = generate_codes(
                loaded.model,
                [request],
                noise=noise,
                like_reference=True,
                max_seq_len=job.max_seq_len,
            )[0].raise_if_failed()
            outcome.generations.append(generation)
            request = requests.send(generation)
    except StopIteration:
        pass
    except EngineError as error:
        outcome.error = error
    return outcome
