"""What every sampler draws is recorded under the sampler's version, which takes are named by.

Where a draw here is another one than the recorded one, takes of both kinds must not have one name:
raise SAMPLER_VERSION, run `python -m tests.synth.engine.model.test_sampler_version`, keep the file.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from synth.engine.model.decode import _draw_tokens
from synth.engine.model.sampling import (
    MIN_TEMPERATURE,
    RAS_WINDOW,
    SAMPLER_VERSION,
    SECOND_TEMPERATURE,
    SECOND_TOP_P,
    Candidates,
    CounterFrame,
    Cut,
    draw,
    draw_words,
    probabilities,
    replace_repeated,
)
from synth.engine.native.build import SOURCES, TARGETS, Target, find_compiler, processor_flags

RECORDED = Path(__file__).resolve().parents[3] / "data" / "sampler"
STREAMS, DRAWS, MAX_TOP_K, FIRST_ID = 216, 4, 64, 1000
ROWS, SPREADS = (7, 40, 257), (0.1, 4.0)
TEMPERATURES, TOP_PS, TOP_KS = (1e-6, 0.7, 1.99), (0.3, 0.8, 1.0, 1.0), (5, 64)
Table = dict[str, list[list[int | None]]]  # by name of a case: first, second and kept token


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Logits [B, R] with what is drawn from them, and the window that repetitions are seen in."""

    name: str
    logits: Tensor
    temperature: Tensor
    top_p: Tensor
    top_k: Tensor
    seed: Tensor
    frame: Tensor
    window: Tensor

    @property
    def words(self) -> Tensor:
        """Return the noise, int64 [B, DRAWS, 2]."""
        return draw_words(self.seed, self.frame, DRAWS)

    @property
    def ids(self) -> Tensor:
        return torch.arange(FIRST_ID, FIRST_ID + self.logits.shape[1])


def cases() -> list[Case]:
    """From numbers of a generator that never changes, in steps that every sampler adds exactly."""
    drawn, made = np.random.RandomState(5), []
    for rows in ROWS:
        for spread in SPREADS:
            logits = np.round(drawn.standard_normal((STREAMS, rows)) * spread * 256) / 256
            logits += drawn.random_sample((STREAMS, rows)).argsort(axis=1) / 4096  # none are equal
            place = torch.arange(STREAMS)

            def one_of(values: tuple[float, ...], step: int, place: Tensor = place) -> Tensor:
                return torch.tensor(values)[place // step % len(values)]

            made.append(
                Case(
                    f"{rows} rows, spread {spread:g}",
                    torch.from_numpy(logits.astype(np.float32)),
                    one_of(TEMPERATURES, 1),
                    one_of(TOP_PS, len(TEMPERATURES)),
                    one_of(TOP_KS, len(TEMPERATURES) * len(TOP_PS)).long(),
                    place * 7919 + rows,
                    place,
                    torch.from_numpy(drawn.randint(FIRST_ID, FIRST_ID + 3, (STREAMS, RAS_WINDOW))),
                )
            )
    return made


def by_engine(case: Case) -> Tensor:
    """Draw as the engine's plain decode step does, int64 [3, B]."""
    model = SimpleNamespace(slow=SimpleNamespace(head_tokens=case.ids))
    state = SimpleNamespace(
        max_top_k=MAX_TOP_K, temperature=case.temperature, top_p=case.top_p, top_k=case.top_k
    )
    cut = Cut.of(case.temperature, case.top_p, case.top_k, MAX_TOP_K)
    first, second = _draw_tokens(
        cast(Any, model), cast(Any, state), case.logits, CounterFrame(case.words), cut
    )
    kept = replace_repeated(first, second, torch.ones_like(first, dtype=torch.bool), case.window)
    return torch.stack([first, second, kept])


def _decided(case: Case) -> Tensor:
    """Say which draws no last bit decides, bool [3, B], in double precision."""
    wide = case.logits.double()
    best, rows = wide.sort(dim=-1, descending=True, stable=True)
    kept = slice(min(MAX_TOP_K, wide.shape[1]))
    upto = wide.softmax(-1).gather(1, rows).cumsum(-1)[:, kept]
    rank = torch.arange(upto.shape[1])
    decided = []
    for index in range(2):
        temperature = case.temperature if index == 0 else SECOND_TEMPERATURE + 0 * case.temperature
        top_p = case.top_p if index == 0 else SECOND_TOP_P + 0 * case.top_p
        cut = Cut.of(temperature, top_p, case.top_k, MAX_TOP_K)
        near = ((upto - top_p[:, None]).abs() < 1e-5) & (top_p < 1)[:, None]
        near &= (rank < case.top_k[:, None]) & (rank > 0)
        scaled = best[:, kept] / temperature.clamp(min=MIN_TEMPERATURE)[:, None].double()
        weights = scaled.masked_fill(upto > cut.most[:, : len(rank)], -torch.inf).softmax(-1)
        uniform = CounterFrame(case.words).uniform(index, case.ids[rows[:, kept]]).double()
        race = torch.nn.functional.pad(weights / -uniform.log(), (0, 1)).topk(2).values
        decided.append(~near.any(-1) & (race[:, 1] < race[:, 0] * (1 - 1e-4)))
    return torch.stack([decided[0], decided[1], decided[0] & decided[1]])


def check_draws(draw: Callable[[Case], Tensor]) -> None:
    """Hold a sampler to the record: `draw` gives the first, second and kept tokens, [3, B].

    One that gives fewer kinds, or fewer streams, is held to those.
    """
    recorded: Table = json.loads((RECORDED / f"draws-{SAMPLER_VERSION}.json").read_text())
    for case in cases():
        expected = recorded.pop(case.name)
        for kind, tokens in enumerate(draw(case).tolist()):
            pairs = zip(tokens, expected[kind], strict=False)
            others = [place for place, (one, two) in enumerate(pairs) if two not in (None, one)]
            assert not others, (
                f"{case.name}: the sampler draws other tokens than its version {SAMPLER_VERSION} "
                f"did (draw {kind}, streams {others}): raise SAMPLER_VERSION and record its draws"
            )
    assert not recorded


def test_the_engine_draws_what_its_version_drew() -> None:
    check_draws(by_engine)


SEED = 7 + (9 << 40)  # of the compared races, in both halves of its bits
_SOURCE = (
    f"#define SEED {SEED}\n"
    + """
#include "sampler.h"

void draw_row(const float *logits, int rows, float temperature, float top_p, int64_t top_k,
              int64_t seed, int64_t frame, const int64_t *ids, int64_t *out) {
    Candidates found;
    find_candidates(logits, rows, (int)top_k, &found);
    Noise first = find_noise(seed, frame, 0), second = find_noise(seed, frame, 1);
    out[0] = ids[found.row[draw(&found, temperature, top_p, top_k, first, ids)]];
    out[1] = ids[found.row[draw(&found, 1.0f, 0.9f, top_k, second, ids)]];
}

int winner(const float *logits, const float *upto, int count, float temperature, float top_p,
           int64_t top_k, int64_t frame) {
    Candidates found = {.count = count, .is_finite = 1};
    for (int i = 0; i < count; i++) {
        found.logit[i] = logits[i], found.upto[i] = upto[i], found.row[i] = i;
    }
    return draw(&found, temperature, top_p, top_k, find_noise(SEED, frame, 0), NULL);
}
"""
)


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target.name)
def compiled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    """The compiled sampler of a class that this processor is of."""
    target: Target = request.param
    if not set(target.needs) <= processor_flags():
        pytest.skip(f"this processor is not of the class {target.name}")
    folder = tmp_path_factory.mktemp("sampler")
    source, library = folder / "draw.c", folder / "draw.so"
    source.write_text(_SOURCE, encoding="utf-8")
    flags = ["-std=gnu11", "-O3", "-fPIC", "-shared", "-w", f"-I{SOURCES}", *target.flags]
    compiler = find_compiler()
    assert compiler is not None
    command = [compiler, *flags, "-o", str(library), str(source), "-lm"]
    subprocess.run(command, check=True, timeout=120)
    return ctypes.CDLL(str(library))


@pytest.mark.compiler
def test_the_compiled_sampler_draws_what_its_version_drew(compiled: ctypes.CDLL) -> None:
    def draw(case: Case) -> Tensor:
        out = torch.zeros(STREAMS, 2, dtype=torch.int64)
        logits, ids = case.logits.contiguous(), case.ids
        for place in range(STREAMS):
            compiled.draw_row(
                ctypes.c_void_p(logits[place].data_ptr()),
                logits.shape[1],
                ctypes.c_float(case.temperature[place].item()),
                ctypes.c_float(case.top_p[place].item()),
                ctypes.c_int64(int(case.top_k[place])),
                ctypes.c_int64(int(case.seed[place])),
                ctypes.c_int64(int(case.frame[place])),
                ctypes.c_void_p(ids.data_ptr()),
                ctypes.c_void_p(out[place].data_ptr()),
            )
        return out.T

    check_draws(draw)


TIMES = 2000  # frames whose noise the same candidates are drawn with
LOGITS = [1.25, 0.5, 0.25, -0.5]
PASSING = [0.5, 0.75, 0.9375, 1 + 2**-23]  # sums past 1 by the last bit there is
BELOW = [0.25, 0.5, 0.625, 0.65]
_FRAMES = torch.arange(TIMES)
WORDS = draw_words(torch.full_like(_FRAMES, SEED), _FRAMES, 1)


def winners(
    compiled: ctypes.CDLL, upto: list[float], temperature: float, top_p: float, top_k: int
) -> list[int]:
    floats = ctypes.c_float * len(LOGITS)
    logits, sums, values = floats(*LOGITS), floats(*upto), map(ctypes.c_float, (temperature, top_p))
    call = partial(compiled.winner, logits, sums, len(LOGITS), *values, ctypes.c_int64(top_k))
    return [call(ctypes.c_int64(frame)) for frame in range(TIMES)]


@pytest.mark.compiler
@pytest.mark.parametrize("upto", [PASSING, BELOW], ids=["passing", "below"])
def test_compiled_draws_are_those_of_the_engine(compiled: ctypes.CDLL, upto: list[float]) -> None:
    rows = torch.arange(4)
    candidates = Candidates(torch.tensor([LOGITS]), rows.unsqueeze(0), torch.tensor([upto]))
    uniform = CounterFrame(WORDS).uniform(0, rows)
    for values in itertools.product([1e-6, 0.7, 1.99], [0.3, 0.5, 0.95, 1.0], [1, 3, 64]):
        temperature, top_p, top_k = (torch.tensor([value]) for value in values)
        cut = Cut.of(temperature, top_p, top_k, 4)
        drawn = draw(probabilities(candidates, cut), uniform).flatten().tolist()
        assert winners(compiled, upto, *values) == drawn, values


@pytest.mark.compiler
def test_compiled_cuts_go_behind_the_candidate_that_crosses_top_p_and_not_at_one(
    compiled: ctypes.CDLL,
) -> None:
    drawn = Counter(winners(compiled, PASSING, 1.0, 1.0, 64))
    for candidate, share in enumerate(torch.tensor(LOGITS).softmax(-1).tolist()):
        assert drawn[candidate] / TIMES == pytest.approx(share, abs=0.03)
    for top_p, kept in ((0.75, {0, 1}), (0.74, {0}), (0.01, {0})):
        assert set(winners(compiled, PASSING, 1.0, top_p, 64)) == kept


def test_another_version_drew_otherwise() -> None:
    """A version without a difference would make every take anew for nothing."""
    tables = [path.read_text() for path in RECORDED.glob("draws-*.json")]
    assert len(set(tables)) == len(tables)
    assert (RECORDED / f"draws-{SAMPLER_VERSION}.json").exists()


def record() -> Path:
    """Write what this version draws, where no last bit decides; an existing record stays."""
    path = RECORDED / f"draws-{SAMPLER_VERSION}.json"
    table: Table = {}
    for case in cases():
        rows = zip(by_engine(case).tolist(), _decided(case).tolist(), strict=True)
        table[case.name] = [
            [token if sure else None for token, sure in zip(tokens, decided, strict=True)]
            for tokens, decided in rows
        ]
    RECORDED.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in table.items())
    with path.open("x", encoding="utf-8") as file:
        file.write(f"{{\n{lines}\n}}\n")
    return path


if __name__ == "__main__":
    record()
