"""Check golden vectors where compiled code does the work on a CPU: frames, and codes to audio."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from lab.golden import codec_checks, streamed_checks
from lab.golden.batched_run import run_batched
from lab.golden.case import CaseResult, Check, GoldenFolder
from lab.golden.forward_checks import Forced, check_lm, check_lm_far
from lab.golden.generation_checks import check_greedy
from synth.contract import Sampling
from synth.engine.errors import InvalidSpecError
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR, Span
from synth.engine.model.linear import LinearForm
from synth.engine.native.build import NotCompiledError
from synth.engine.native.library import native_library

_BESIDE, _OWN = range(2)  # slots: a neighbour at other positions, and the stream checked
_SHORT = 5  # columns of the neighbour's prompt


@torch.inference_mode()
def run_forced_compiled(model: DualAR, prompt: Tensor, steps: Tensor) -> Forced:
    """Feed a prompt [1 + K, S] through the slow AR, then steps [1 + K, n] in compiled frames.

    What a frame draws is put aside: the next one gets the columns that the vectors have.
    """
    native, length, count = model.native, prompt.shape[1], steps.shape[1]
    assert native is not None
    state = DecodeState.allocate(model, num_slots=2, max_positions=length + count + 1)
    short = min(_SHORT, length)
    for slot, positions in ((_BESIDE, short), (_OWN, length)):
        state.assign(slot, Sampling(max_frames=count + 1), prompt_positions=positions)
    spans = [Span(_BESIDE, 0, short), Span(_OWN, 0, length)]
    columns = torch.cat([prompt[:, :short], prompt], dim=1).T
    prefill = model.slow.prefill(columns, spans, state.cache)[short:]
    state.position.copy_(torch.tensor([short, length]))
    rows = [prefill[-1].float()]
    for index in range(count):
        state.columns.copy_(torch.stack([steps[:, -1 - index], steps[:, index]]))
        state.active.fill_(True)
        native.make_frame(model, state)
        rows.append(native.states(state)[_OWN].clone())
    hidden = torch.stack(rows)
    return Forced(prefill.float(), hidden, model.slow.logits(hidden).float())


def _check_compiled(*checks: Callable[..., Iterator[CaseResult]], **options: object) -> Check:
    def run(folder: GoldenFolder) -> Iterator[CaseResult]:
        try:
            native_library()
        except NotCompiledError as error:
            raise InvalidSpecError(f"Nothing can be compiled here: {error}.") from error
        for check in checks:
            yield from check(folder, **options)

    return run


_frames = partial(_check_compiled, form=LinearForm.NATIVE)
_codec = partial(_check_compiled, compiled=True)

CHECKS: dict[str, Check] = {
    "lm.safetensors": _frames(check_lm, run=run_forced_compiled),
    "lm_far.safetensors": _frames(check_lm_far, run=run_forced_compiled),
    "greedy.safetensors": _frames(check_greedy, run_jobs=partial(run_batched, own_noise=True)),
    codec_checks.DECODE: _codec(codec_checks.check_decode, streamed_checks.check_decode),
    codec_checks.LONG: _codec(codec_checks.check_long, streamed_checks.check_long),
    codec_checks.END_TO_END: _codec(
        codec_checks.check_end_to_end, streamed_checks.check_end_to_end
    ),
}
COMPANIONS: dict[str, str] = {}
