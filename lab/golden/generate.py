"""Generate whole texts as the reference does: plain loops over `start_slots` and `decode_step`."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.contract import FinishReason, Sampling
from synth.engine.errors import InvalidSpecError, NonFiniteLogitsError, PromptTooLongError
from synth.engine.model.decode import StepOutput, decode_step
from synth.engine.model.decode_state import FINISH_REASONS, DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.prefill import SlotStart, start_slots
from synth.engine.model.sampling import DEFAULT_MAX_TOP_K, NoiseSource
from synth.engine.prompt import SPEAKER_TAG, PromptBuilder, Tokenizer, VoicePrompt, prompt_builder

MAX_TURNS_PER_BATCH = 5
DEFAULT_CHUNK_BYTES = 512
RESERVED_POSITIONS = 2048  # positions of the context a prompt must leave free


@dataclass(frozen=True, slots=True, eq=False)
class CodeRequest:
    """Ask for the codes of one prompt, int64 [1 + K, S].

    `noise_offset` counts the frames that earlier batches of the same text made.
    """

    prompt: Tensor
    sampling: Sampling
    noise_offset: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """Hold what one prompt gave, on the CPU.

    `prompt` is the request's. `codes` int64 [K, T] is the speech; `columns` int64 [1 + K, n] are
    all frames made, an end frame included; `draws` int64 [n, 2] both tokens drawn for each.
    `finish_reason` is None when the model gave NaN or infinity; `codes` holds what came before.
    """

    prompt: Tensor
    codes: Tensor
    columns: Tensor
    draws: Tensor
    finish_reason: FinishReason | None

    def raise_if_failed(self) -> Generation:
        """Return itself, or raise NonFiniteLogitsError when the request failed."""
        if self.finish_reason is None:
            frame = self.columns.shape[1]
            raise NonFiniteLogitsError(f"The model's logits at frame {frame} are not finite.")
        return self


def generate_codes(
    model: DualAR,
    requests: Sequence[CodeRequest],
    *,
    noise: NoiseSource | None = None,
    like_reference: bool = False,
    max_top_k: int = DEFAULT_MAX_TOP_K,
    max_seq_len: int | None = None,
    check_every: int = 1,
) -> list[Generation]:
    """Generate a batch of requests of any lengths, seeds and sampling parameters in one pass.

    Args:
        noise: the counter-based numbers of each request's seed when None.
        max_seq_len: the context's positions when fewer than the model's own.
        check_every: steps between two looks at the end flags; each look waits for the device.

    Raises:
        InvalidSpecError: a sampling value is out of range, or a prompt leaves no room. One request
            whose logits are not finite fails alone: see `Generation.finish_reason`.
    """
    context = max_seq_len or model.config.text_config.max_seq_len
    state = DecodeState.allocate(
        model,
        num_slots=len(requests),
        max_positions=max(_positions_needed(request, context) for request in requests),
        max_top_k=max_top_k,
        like_reference=like_reference,
        noise=noise,
    )
    for slot, request in enumerate(requests):
        assign_request(state, slot, request)
    starts = [SlotStart(slot, request.prompt) for slot, request in enumerate(requests)]
    start_slots(model, state, starts)
    outputs: list[StepOutput] = []
    while len(outputs) % check_every or bool(state.active.any()):
        outputs.append(decode_step(model, state))
    return _collect(requests, outputs, state)


def assign_request(state: DecodeState, slot: int, request: CodeRequest) -> None:
    """Give a slot to a request; like the reference, refuse what it would give nothing for.

    Raises:
        InvalidSpecError: as for `DecodeState.assign`.
    """
    positions, most = request.prompt.shape[1], request.sampling.max_frames
    if state.like_reference and (state.max_positions - positions < 2 or most == 1):
        raise InvalidSpecError("With the last frame dropped nothing would be left.")
    offset = request.noise_offset
    state.assign(slot, request.sampling, prompt_positions=positions, noise_offset=offset)


def generate_text(
    model: DualAR,
    tokenizer: Tokenizer,
    text: str,
    voices: Sequence[VoicePrompt] = (),
    *,
    sampling: Sampling,
    noise: NoiseSource | None = None,
    like_reference: bool = False,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    max_top_k: int = DEFAULT_MAX_TOP_K,
) -> Iterator[Generation]:
    """Yield the generations of a text's batches; each hears the ones before it.

    `sampling.max_frames` counts for each batch.

    Raises:
        PromptTooLongError: a batch does not fit, possibly after earlier ones came back.
        InvalidSpecError, NonFiniteLogitsError: as named there.
    """
    requests = text_requests(
        model,
        tokenizer,
        text,
        voices,
        sampling=sampling,
        like_reference=like_reference,
        chunk_bytes=chunk_bytes,
    )
    request = next(requests, None)
    while request is not None:
        generation = generate_codes(
            model, [request], noise=noise, like_reference=like_reference, max_top_k=max_top_k
        )[0].raise_if_failed()
        yield generation
        try:
            request = requests.send(generation)
        except StopIteration:
            return


def text_requests(
    model: DualAR,
    tokenizer: Tokenizer,
    text: str,
    voices: Sequence[VoicePrompt] = (),
    *,
    sampling: Sampling,
    like_reference: bool = False,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> Generator[CodeRequest, Generation, None]:
    """Yield the request of each batch of a text, for whoever generates it and sends it back.

    Errors as for `generate_text`.
    """
    conversation = Conversation(
        prompt_builder(model, tokenizer, like_reference=like_reference), voices
    )
    num_frames = 0
    batches = split_into_batches(text, chunk_bytes=chunk_bytes, drop_leading_text=like_reference)
    for batch in batches:
        prompt = conversation.ask(batch)
        check_prompt_length(prompt, model.config.text_config.max_seq_len)
        generation = yield CodeRequest(prompt, sampling, noise_offset=num_frames)
        num_frames += generation.columns.shape[1]
        conversation.answer(generation.codes)


def _positions_needed(request: CodeRequest, context: int) -> int:
    """Return the positions a request may come to use: a cache larger than that is waste."""
    limit = request.sampling.max_frames or context
    return min(context, request.prompt.shape[1] + limit)


def _collect(
    requests: Sequence[CodeRequest], outputs: Sequence[StepOutput], state: DecodeState
) -> list[Generation]:
    """Turn the frames of all slots into one result per slot, with one copy from the device."""
    columns = torch.stack([output.columns for output in outputs], dim=-1).cpu()
    draws = torch.stack(
        [torch.stack([output.first_draw, output.second_draw], -1) for output in outputs], dim=1
    ).cpu()
    made = torch.stack([output.made for output in outputs], dim=-1).cpu()
    speech = torch.stack([output.is_speech for output in outputs], dim=-1).cpu()
    status = state.status.tolist()
    results = []
    for slot, request in enumerate(requests):
        own = columns[slot][:, made[slot]]
        codes = columns[slot][1:, speech[slot]]
        if state.like_reference:  # its last column never comes back
            codes = own[1:, :-1]
        results.append(
            Generation(
                request.prompt,
                codes,
                own,
                draws[slot, made[slot]],
                FINISH_REASONS.get(status[slot]),
            )
        )
    return results


def pair_voices(
    texts: Sequence[str] | None,
    codes: Sequence[Tensor] | None,
    *,
    like_reference: bool = False,
) -> tuple[VoicePrompt, ...]:
    """Join transcripts and codes to voices; raise InvalidSpecError when their numbers differ."""
    texts, codes = texts or (), codes or ()
    if like_reference and not (texts and codes):  # a half voice is dropped
        return ()
    if len(texts) != len(codes):
        raise InvalidSpecError(
            f"There are {len(texts)} voice transcripts but {len(codes)} arrays of voice codes."
        )
    return tuple(VoicePrompt(text, tensor) for text, tensor in zip(texts, codes, strict=True))


class Conversation:
    """Grow one prompt turn by turn: what was said before stands before what is said next."""

    def __init__(self, builder: PromptBuilder, voices: Sequence[VoicePrompt] = ()) -> None:
        self._builder = builder
        self._history = builder.system(voices)

    def ask(self, text: str) -> Tensor:
        """Return the prompt for one batch of text, int64 [1 + K, S]."""
        self._history = torch.cat([self._history, self._builder.turn(text)], dim=1)
        return self._history

    def answer(self, codes: Tensor) -> None:
        """Enter the codes [K, T] that were spoken for the last batch."""
        self._history = torch.cat([self._history, self._builder.answer(codes)], dim=1)


def check_prompt_length(prompt: Tensor, max_seq_len: int) -> None:
    """Raise PromptTooLongError unless the prompt leaves the reserved positions free."""
    limit = max_seq_len - RESERVED_POSITIONS
    if prompt.shape[1] > limit:
        raise PromptTooLongError(positions=prompt.shape[1], limit=limit)


def split_text_by_speaker(text: str, *, drop_leading_text: bool = False) -> list[str]:
    """Return one turn per speaker tag: the tag with the text up to the next, outer space stripped.

    Text before the first tag is a turn of its own, unless `drop_leading_text`. A text without any
    tag gives an empty list.
    """
    starts = [match.start() for match in SPEAKER_TAG.finditer(text)]
    if not starts:
        return []
    turns = [
        text[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)
    ]
    leading = text[: starts[0]].strip()
    return turns if drop_leading_text or not leading else [leading, *turns]


def group_turns_into_batches(
    turns: Sequence[str], *, max_turns: int = MAX_TURNS_PER_BATCH, max_bytes: int
) -> list[str]:
    """Join turns with line ends, greedily, up to `max_turns` turns and `max_bytes` UTF-8 bytes.

    The joining line ends are not counted, and a single turn above the limit goes alone, uncut.
    """
    batches: list[list[str]] = []
    num_bytes = 0
    for turn in turns:
        size = len(turn.encode())
        if not batches or len(batches[-1]) >= max_turns or num_bytes + size > max_bytes:
            batches.append([])
            num_bytes = 0
        batches[-1].append(turn)
        num_bytes += size
    return ["\n".join(batch) for batch in batches]


def split_into_batches(
    text: str, *, chunk_bytes: int = DEFAULT_CHUNK_BYTES, drop_leading_text: bool = False
) -> list[str]:
    """Return the batches of a request's text; untagged text is one batch, however long."""
    turns = split_text_by_speaker(text, drop_leading_text=drop_leading_text)
    if not turns:
        return [text]
    return group_turns_into_batches(turns, max_bytes=chunk_bytes)
