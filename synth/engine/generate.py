"""Generate whole requests: plain loops over `prefill` and `decode_step`, batched or in turns."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.contract import FinishReason, Sampling
from synth.engine.dialogue import DEFAULT_CHUNK_BYTES, split_into_batches
from synth.engine.errors import NonFiniteLogitsError
from synth.engine.model.compat import PRODUCT, Compat
from synth.engine.model.decode import StepOutput, decode_step
from synth.engine.model.decode_state import FINISH_REASONS, DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.noise import NoiseSource
from synth.engine.model.prefill import SlotPrompt, prefill
from synth.engine.model.sampling import DEFAULT_MAX_TOP_K
from synth.engine.prompt import Conversation, PromptBuilder, VoicePrompt, check_prompt_length
from synth.engine.tokenizer import Tokenizer


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
    compat: Compat = PRODUCT,
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
        compat=compat,
    )
    for slot, request in enumerate(requests):
        state.assign(
            slot,
            request.sampling,
            prompt_positions=request.prompt.shape[1],
            noise_offset=request.noise_offset,
        )
    prompts = [SlotPrompt(slot, request.prompt) for slot, request in enumerate(requests)]
    outputs = [prefill(model, state, prompts, noise)]
    while len(outputs) % check_every or bool(state.active.any()):
        outputs.append(decode_step(model, state, noise))
    return _collect(requests, outputs, state)


def generate_text(
    model: DualAR,
    tokenizer: Tokenizer,
    text: str,
    voices: Sequence[VoicePrompt] = (),
    *,
    sampling: Sampling,
    noise: NoiseSource | None = None,
    compat: Compat = PRODUCT,
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
        compat=compat,
        chunk_bytes=chunk_bytes,
    )
    request = next(requests, None)
    while request is not None:
        generation = generate_codes(
            model, [request], noise=noise, compat=compat, max_top_k=max_top_k
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
    compat: Compat = PRODUCT,
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
) -> Generator[CodeRequest, Generation, None]:
    """Yield the request of each batch of a text, for whoever generates it and sends it back.

    Errors as for `generate_text`.
    """
    conversation = Conversation(prompt_builder(model, tokenizer, compat), voices)
    num_frames = 0
    batches = split_into_batches(
        text, chunk_bytes=chunk_bytes, drop_leading_text=compat.drop_leading_text
    )
    for batch in batches:
        prompt = conversation.ask(batch)
        check_prompt_length(prompt, model.config.text_config.max_seq_len)
        generation = yield CodeRequest(prompt, sampling, noise_offset=num_frames)
        num_frames += generation.columns.shape[1]
        conversation.answer(generation.codes)


def prompt_builder(model: DualAR, tokenizer: Tokenizer, compat: Compat = PRODUCT) -> PromptBuilder:
    """Return the builder of this model's prompts."""
    return PromptBuilder(
        tokenizer,
        num_codebooks=model.slow.num_codebooks,
        codebook_size=model.slow.codebook_size,
        compat=compat,
    )


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
        if state.compat.drop_last_frame:
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
