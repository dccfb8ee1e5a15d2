"""Test sampler; the torch form is tested against the engine's own draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.golden.models import Loaded
from lab.golden.noise import CounterNoise
from lab.gpu_check.torch_forms import draw_codes_torch, draw_tokens_torch, ordered_candidates
from synth.contract import Sampling
from synth.engine.kernels.sampler import DrawInputs, TokenRows, draw_codes, draw_tokens
from synth.engine.model.decode import _are_finite, _draw_codes, _draw_tokens
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.sampling import (
    MIN_TEMPERATURE,
    RAS_WINDOW,
    SECOND_TEMPERATURE,
    SECOND_TOP_P,
    SLOW_DRAWS,
    CounterFrame,
    Cut,
    best_candidates,
    draw_words,
    replace_repeated,
)
from tests.synth.engine.kernels.closeness import DTYPES
from tests.synth.engine.model.test_sampler_version import Case, check_draws

FIRST_TOKEN = 5000  # the end of speech; the semantic tokens follow behind a gap
SEMANTIC = 5003
MANY = pytest.mark.thorough  # streams: the interpreter takes a tenth of a second for each


def _inputs(generator: torch.Generator, batch: int, **changes: Any) -> DrawInputs:
    """Return parameters that differ from stream to stream or are given; no frame is a first one."""
    device = generator.device

    def one_of(*values: float) -> Tensor:
        chosen = torch.randint(len(values), (batch,), generator=generator, device=device)
        return torch.tensor(values, device=device)[chosen]

    drawn: dict[str, Any] = {
        "temperature": one_of(1e-6, 0.05, 0.7, 1.0, 1.99),
        "top_p": one_of(0.05, 0.5, 0.8, 0.95, 1.0),
        "top_k": one_of(1, 2, 30, 64, 10**6).long(),
        "seed": torch.randint(2**62, (batch,), generator=generator, device=device),
        "frame": one_of(1, 2, 3).long(),
        "noise_offset": one_of(0, 4, 2**33).long(),
        "max_top_k": 64,
    }
    for name, value in changes.items():
        drawn[name] = value if name == "max_top_k" else torch.full_like(drawn[name], value)
    return DrawInputs(**drawn)


def _all_finite(logits: Tensor) -> Tensor:
    return torch.ones(len(logits), dtype=torch.bool, device=logits.device)


def _logits(generator: torch.Generator, batch: int, num_rows: int, dtype: torch.dtype) -> Tensor:
    """Return rows from flat to peaked; in bfloat16 many are equal."""
    device = generator.device
    spread = torch.linspace(0.5, 8, batch, device=device)[:, None]
    drawn = torch.randn(batch, num_rows, generator=generator, device=device)
    return (drawn * spread).to(dtype)


def _rows(num_rows: int, device: torch.device) -> TokenRows:
    ids = torch.arange(SEMANTIC - 1, SEMANTIC - 1 + num_rows, device=device)
    ids[0] = FIRST_TOKEN
    return TokenRows(ids, SEMANTIC, SEMANTIC + num_rows - 2)


def _decided(
    logits: Tensor, inputs: DrawInputs, ids: Tensor, index: int, second: bool = False
) -> Tensor:
    """Say for which streams no last bit decides a draw, bool [B], in double precision.

    Where a cumulative probability is as good as top_p, or two candidates finish the race as good
    as together, the order of a sum decides.
    """
    best = ordered_candidates(logits, inputs.max_top_k)
    temperature = torch.full_like(inputs.temperature, SECOND_TEMPERATURE)
    top_p = torch.full_like(inputs.top_p, SECOND_TOP_P)
    if not second:
        temperature, top_p = inputs.temperature, inputs.top_p
    cumulative = logits.double().softmax(-1).gather(1, best.rows).cumsum(-1)
    on_edge = ((cumulative - top_p[:, None]).abs() < 2e-6) & (top_p < 1)[:, None]
    cut = Cut.of(temperature, top_p, inputs.top_k, inputs.max_top_k)
    scaled = (best.logits / temperature.clamp(min=MIN_TEMPERATURE)[:, None]).double()
    gone = cumulative > cut.most[:, : scaled.shape[1]]
    weights = scaled.masked_fill(gone, float("-inf")).softmax(-1)
    noise = CounterFrame(draw_words(inputs.seed, inputs.frame + inputs.noise_offset, 4))
    scores = weights / -noise.uniform(index, ids[best.rows]).double().log()
    top = torch.nn.functional.pad(scores, (0, 1)).topk(2).values
    matters = torch.arange(scaled.shape[1], device=scaled.device) < inputs.top_k[:, None]
    return ~((on_edge & matters).any(-1) | (top[:, 1] > top[:, 0] * (1 - 1e-5)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_rows", "max_top_k", "batch"),
    [
        *((257, 64, 10), (100, 30, 8), (10, 64, 12), (300, 1, 8), (1024, 64, 4), (4097, 64, 3)),
        *(pytest.param(*case, marks=MANY) for case in ((257, 64, 40), (100, 30, 24))),
    ],
)
def test_the_kernel_draws_the_tokens_that_its_torch_form_draws(
    generator: torch.Generator, num_rows: int, max_top_k: int, batch: int, dtype: torch.dtype
) -> None:
    logits = _logits(generator, batch, num_rows, dtype)
    inputs = _inputs(generator, batch, max_top_k=max_top_k)
    rows = _rows(num_rows, logits.device)
    window = torch.zeros(batch, RAS_WINDOW, device=logits.device).long()
    chosen = torch.arange(batch, device=logits.device) % 3 != 0
    window[::2, 4] = draw_tokens_torch(logits, inputs, rows, window.clone(), chosen).first[::2]
    rolled = window.clone()

    found = draw_tokens(logits, inputs, rows, window, chosen)

    expected = draw_tokens_torch(logits, inputs, rows, rolled, chosen)
    decided = _decided(logits, inputs, rows.ids, 0)
    both = decided & _decided(logits, inputs, rows.ids, 1, second=True)
    assert both.float().mean() > 0.85
    assert torch.equal(found.first[decided], expected.first[decided])
    for name in ("second", "token", "code"):
        assert torch.equal(getattr(found, name)[both], getattr(expected, name)[both]), name
    assert torch.equal(window[both], rolled[both])
    assert bool(found.finite.all())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("num_rows", "max_top_k", "batch"),
    [
        *((256, 64, 10), (61, 30, 8), (1024, 64, 4), (4096, 64, 2)),
        *(pytest.param(*case, marks=MANY) for case in ((256, 64, 40), (61, 30, 24))),
    ],
)
def test_the_kernel_draws_the_codes_that_its_torch_form_draws(
    generator: torch.Generator, num_rows: int, max_top_k: int, batch: int, dtype: torch.dtype
) -> None:
    logits = _logits(generator, batch, num_rows, dtype)
    inputs, finite = _inputs(generator, batch, max_top_k=max_top_k), _all_finite(logits)
    found = draw_codes(logits, inputs, 3, finite)
    expected = draw_codes_torch(logits, inputs, 3, finite.clone())
    decided = _decided(logits, inputs, torch.arange(num_rows, device=logits.device), 3)
    assert decided.float().mean() > 0.85
    assert torch.equal(found[decided], expected[decided])
    assert bool(finite.all())


def test_without_ties_candidates_are_those_of_the_engine(generator: torch.Generator) -> None:
    logits = _logits(generator, 20, 500, torch.float32)
    found, expected = ordered_candidates(logits, 64), best_candidates(logits, 64)
    for name in ("logits", "rows", "cumulative"):
        assert torch.equal(getattr(found, name), getattr(expected, name))


def test_the_torch_form_draws_what_the_engine_draws(
    loaded: Loaded, generator: torch.Generator
) -> None:
    model, batch = loaded.model, 16
    state = DecodeState.allocate(model, num_slots=batch, max_positions=16)
    for slot in range(batch):
        sampling = Sampling(seed=slot, temperature=0.7, top_p=0.9, top_k=5 + slot, max_frames=4)
        state.assign(slot, sampling, prompt_positions=3)
    state.begin(range(batch), torch.zeros(batch, state.columns.shape[1], dtype=torch.int64))
    state.frame.fill_(2)
    hidden = torch.randn(batch, model.config.text_config.dim, generator=generator) * 3
    logits = model.slow.logits(hidden)
    cut = Cut.of(state.temperature, state.top_p, state.top_k, state.max_top_k)
    noise = CounterNoise().frame(state.seed, state.frame, model.num_draws)
    special = model.special
    rows = TokenRows(model.slow.head_tokens, special.semantic_begin, special.semantic_end)
    inputs = DrawInputs.of(state)
    first, second = _draw_tokens(model, state, logits, noise, cut)
    state.window[::2, 3] = first[::2]
    before = state.window.clone()

    found = draw_tokens_torch(logits, inputs, rows, state.window, state.active)

    assert torch.equal(found.first, first)
    assert torch.equal(found.second, second)
    chosen = replace_repeated(first, second, model.slow.is_semantic(first), before)
    assert torch.equal(found.token, chosen)
    assert torch.equal(state.window, torch.cat([before[:, 1:], chosen[:, None]], dim=1))
    codes, _ = _draw_codes(model, state, hidden, chosen, noise, cut)
    assert torch.equal(found.code, codes[:, 0])
    finite = torch.ones(batch, dtype=torch.bool)
    next_logits = model.fast.first(hidden, codes[:, 0], state.fast_cache)
    assert torch.equal(draw_codes_torch(next_logits, inputs, SLOW_DRAWS, finite), codes[:, 1])


@pytest.mark.parametrize("sample", [draw_codes, draw_codes_torch])
@pytest.mark.parametrize("dtype", DTYPES)
def test_of_equal_logits_the_lowest_rows_are_the_candidates(
    generator: torch.Generator, sample: Callable[..., Any], dtype: torch.dtype
) -> None:
    level = torch.tensor([-3.0, 0.0, 7.5], device=generator.device).repeat(3)[:, None]
    logits = level.repeat(1, 90).to(dtype)
    logits[1::3, ::2] = -0.0  # the same number as 0.0
    inputs = _inputs(generator, 9, temperature=1, top_p=0.5, top_k=3, max_top_k=20)
    assert set(sample(logits, inputs, 2, _all_finite(logits)).tolist()) == {0, 1, 2}
    logits = torch.zeros(24, 4, device=generator.device)
    inputs = _inputs(generator, 24, temperature=1, top_p=1, top_k=64)
    codes = sample(logits, inputs, 2, _all_finite(logits))
    assert set(codes.tolist()) == set(range(4))  # with top_p one every candidate can be drawn


@pytest.mark.parametrize("sample", [draw_codes, draw_codes_torch])
@pytest.mark.parametrize("changes", [{"top_k": 1}, {"temperature": 1e-9}, {"top_p": 1e-4}])
def test_the_best_always_stays_and_may_be_all_that_stays(
    generator: torch.Generator, sample: Callable[..., Any], changes: dict[str, float]
) -> None:
    logits = _logits(generator, 8, 90, torch.float32)
    inputs = _inputs(generator, 8, **({"temperature": 1, "top_p": 0.95, "top_k": 50} | changes))
    codes = sample(logits, inputs, 2, _all_finite(logits))
    assert torch.equal(codes, logits.argmax(-1))


@pytest.mark.thorough
def test_with_top_p_one_none_is_cut_where_a_sum_passes_one_by_rounding(
    generator: torch.Generator,
) -> None:
    # How many sums pass one differs by processor: 22 of 400 by AVX2, twice as many by AVX-512.
    logits = torch.randn(1200, 8, generator=generator, device=generator.device) / 4
    inputs = _inputs(generator, 1200, temperature=1, top_p=1, top_k=64)
    passing = ordered_candidates(logits, 64).cumulative[:, -1] > 1
    assert int(passing.sum()) > 40
    both = (draw_codes, draw_codes_torch)
    codes, expected = (draw(logits, inputs, 2, _all_finite(logits)) for draw in both)
    assert bool((expected == logits.argmin(-1))[passing].any())
    decided = _decided(logits, inputs, torch.arange(8, device=logits.device), 2)
    assert torch.equal(codes[decided], expected[decided])


# Infinity less infinity is what these are about.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES)
def test_logits_that_are_not_finite_are_told_and_still_give_a_token(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    logits = _logits(generator, 5, 257, dtype)
    inputs = _inputs(generator, 5)
    rows = _rows(257, logits.device)
    window = torch.zeros(5, RAS_WINDOW, device=logits.device).long()
    good = draw_tokens(logits, inputs, rows, window.clone(), _all_finite(logits))
    logits[1, 0], logits[2, 100], logits[3, 256] = torch.tensor(
        [float("nan"), torch.inf, -torch.inf]
    )

    found = draw_tokens(logits, inputs, rows, window, _all_finite(logits))

    assert found.finite.tolist() == [True, False, False, False, True]
    assert found.finite.tolist() == _are_finite([logits.sum(-1)]).tolist()
    assert torch.equal(found.token[::4], good.token[::4])
    assert torch.isin(found.token, rows.ids).all()
    assert ((found.code >= 0) & (found.code < 256)).all()


# Infinity less infinity is what these are about.
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_a_frame_with_one_bad_codebook_is_not_finite(generator: torch.Generator) -> None:
    logits = _logits(generator, 4, 61, torch.float32)
    logits[1, 60] = float("nan")
    logits[3] = float("-inf")
    finite = torch.tensor([True, True, False, True], device=logits.device)
    codes = draw_codes(logits, _inputs(generator, 4), 2, finite)
    assert finite.tolist() == [True, False, False, False]
    assert ((codes >= 0) & (codes < 61)).all()


def test_a_repeated_semantic_token_is_replaced(generator: torch.Generator) -> None:
    inputs = _inputs(generator, 8, top_k=50)
    logits, rows = torch.zeros(8, 257, device=generator.device), _rows(257, generator.device)
    logits[:, 0] = -100  # the end of speech
    window = torch.zeros(8, RAS_WINDOW, device=logits.device).long()
    plain = draw_tokens(logits, inputs, rows, window.clone(), _all_finite(logits))
    window[torch.arange(4), torch.tensor([0, 3, 8, 9])] = plain.first[:4]
    before, chosen = window.clone(), torch.arange(8, device=logits.device) % 2 == 0

    found = draw_tokens(logits, inputs, rows, window, chosen)

    assert torch.equal(found.first, plain.first) and not torch.equal(plain.first, plain.second)
    assert torch.equal(found.token, torch.cat([plain.second[:4], plain.first[4:]]))
    assert torch.equal(window[::2, -1], found.token[::2])
    assert torch.equal(window[::2, :-1], before[::2, 1:])
    assert torch.equal(window[1::2], before[1::2])


def test_what_is_not_semantic_is_no_repetition_nor_is_anything_in_a_first_frame(
    generator: torch.Generator,
) -> None:
    logits, rows = _logits(generator, 4, 257, torch.float32), _rows(257, generator.device)
    inputs, everybody = _inputs(generator, 4, frame=0), _all_finite(logits)
    window = torch.zeros(4, RAS_WINDOW, device=logits.device).long()
    window[:, 3] = draw_tokens(logits, inputs, rows, window, everybody).first
    before = window.clone()
    found = draw_tokens(logits, inputs, rows, window, everybody)
    assert torch.equal(found.token, found.first)
    assert torch.equal(window, before)
    logits[:, 0] = 100  # the end of speech
    window = torch.full((4, RAS_WINDOW), FIRST_TOKEN, device=logits.device)
    found = draw_tokens(logits, _inputs(generator, 4), rows, window, _all_finite(logits))
    assert found.token.tolist() == [FIRST_TOKEN] * 4
    assert found.code.tolist() == [0] * 4


def test_rows_of_any_stride_are_read(generator: torch.Generator) -> None:
    logits = _logits(generator, 4, 61, torch.float32)
    spread = torch.full((4, 90), float("nan"), device=logits.device)
    spread[:, 7:68] = logits
    inputs, finite = _inputs(generator, 4), _all_finite(logits)
    found = draw_codes(spread[:, 7:68], inputs, 2, finite)
    assert torch.equal(found, draw_codes(logits, inputs, 2, finite))
    assert bool(finite.all())


@pytest.mark.parametrize("sampler", [draw_tokens, draw_tokens_torch])
def test_what_is_drawn_is_what_the_samplers_version_drew(
    sampler: Callable[..., Any], device: torch.device
) -> None:
    # The interpreter takes half a second for a row; the others are the torch form's, see above.
    streams = 6 if sampler is draw_tokens and device.type == "cpu" else None

    def drawn(case: Case) -> Tensor:
        some = slice(streams)
        logits, temperature, top_p, top_k, seed, frame, window = (
            each[some].clone().to(device)
            for each in (
                case.logits, case.temperature, case.top_p, case.top_k, case.seed, case.frame,
                case.window,
            )
        )  # fmt: skip
        one = torch.ones_like(frame)  # frames made; no frame is a first one
        inputs = DrawInputs(temperature, top_p, top_k, seed, one, frame - one, max_top_k=64)
        ids = case.ids.to(device)
        rows = TokenRows(ids, int(ids[0]), int(ids[-1]))
        found = sampler(logits, inputs, rows, window, _all_finite(logits))
        return torch.stack([found.first, found.second, found.token]).cpu()

    check_draws(drawn)
