"""Check what is made of text: token ids, turns and batches, prompts."""

from __future__ import annotations

from collections.abc import Iterator

from lab.golden.case import (
    CaseResult,
    Check,
    GoldenFolder,
    compare_equal,
    compare_value,
    not_understood,
)
from lab.golden.generate import (
    Conversation,
    group_turns_into_batches,
    split_into_batches,
    split_text_by_speaker,
)
from lab.golden.models import load, voices_of
from synth.engine.prompt import prompt_builder

_PROMPT_ROW = {
    "text",
    "chunk_length",
    "prompt_text",
    "prompt_codes",
    "batches",
    "prompts",
    "generated",
    "columns",
    "columns_if_joined",  # a statistic of how many columns a joint tokenisation would give
}


def check_tokenizer(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Compare ids of texts, of special tokens and the semantic range."""
    file, content = "tokenizer.json", folder.json("tokenizer")
    tokenizer = load(folder).tokenizer
    for number, row in enumerate(content["encode"]):
        found = tokenizer.encode_user_text(row["text"], live_special_tokens=True)
        yield compare_value(file, f"encode.{number}", found, row["ids"])
    for token, expected in content["special_ids"].items():
        yield compare_value(file, token, tokenizer.id_of(token), expected)
    special = tokenizer.special
    for name, value in (
        ("semantic_begin_id", special.semantic_begin),
        ("semantic_end_id", special.semantic_end),
    ):
        yield compare_value(file, name, value, content[name])


def check_text(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Compare splitting by speaker and grouping into batches."""
    file = "text.json"
    for number, row in enumerate(folder.json("text")):
        if set(row) != {"text", "turns", "groups"}:
            yield not_understood(file, str(number))
            continue
        turns = split_text_by_speaker(row["text"], drop_leading_text=True)
        yield compare_value(file, f"{number}.turns", turns, row["turns"])
        for group in row["groups"]:
            found = group_turns_into_batches(
                turns, max_turns=group["max_speakers"], max_bytes=group["max_bytes"]
            )
            case = f"{number}.groups.{group['max_speakers']}.{group['max_bytes']}"
            yield compare_value(file, case, found, group["batches"])


def check_prompts(folder: GoldenFolder) -> Iterator[CaseResult]:
    """Compare the prompt of every batch, with the given codes as what was spoken before."""
    file, arrays = "prompts.safetensors", folder.tensors("prompts")
    loaded = load(folder)
    builder = prompt_builder(loaded.model, loaded.tokenizer, like_reference=True)
    for case, row in folder.json("prompts").items():
        if set(row) != _PROMPT_ROW:
            yield not_understood(file, case)
            continue
        batches = split_into_batches(
            row["text"], chunk_bytes=row["chunk_length"], drop_leading_text=True
        )
        yield compare_value(file, f"{case}.batches", batches, row["batches"])
        conversation = Conversation(builder, voices_of(row, arrays, case))
        for number, batch in enumerate(batches):
            prompt = conversation.ask(batch)
            conversation.answer(arrays[f"{case}.generated.{number}"])
            name = f"{case}.prompt.{number}"
            yield compare_equal(file, name, prompt, arrays[name])
        yield compare_value(
            file,
            f"{case}.columns",
            [arrays[name].shape[1] for name in row["prompts"]],
            row["columns"],
        )


CHECKS: dict[str, Check] = {
    "tokenizer.json": check_tokenizer,
    "text.json": check_text,
    "prompts.safetensors": check_prompts,
}
COMPANIONS: dict[str, str] = {"prompts.json": "prompts.safetensors"}
