"""The client's types against the API's description: no field is missing, invented or misjudged."""

from __future__ import annotations

import importlib
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[3]
SCHEMAS = yaml.safe_load((PROJECT / "openapi.yaml").read_text())["components"]["schemas"]
TYPES = {
    name: kind
    for path in sorted((PROJECT / "ttsweb" / "client").glob("[!_]*.py"))
    for name, kind in vars(importlib.import_module(f"ttsweb.client.{path.stem}")).items()
    if typing.is_typeddict(kind)
}
# What the server answers: the descriptions of it, of the whole thing and of its row in lists.
ANSWERS = {
    "Approvals": ["ApprovedMany"],
    "Batch": ["Batch"],
    "BatchProgress": ["BatchProgress"],
    "Book": ["Book"],
    "BookBatch": ["BookBatch"],
    "BookBatchEntry": ["BookBatchEntry"],
    "BookFile": ["BookFile", "BookFileList"],
    "BookProgress": ["BookProgress"],
    "Item": ["BatchItem"],
    "Job": ["Job", "JobList"],
    "JobVoice": ["JobVoice"],
    "ReviewFlag": ["Flag"],
    "ReviewItem": ["ReviewItem"],
    "ReviewTake": ["ReviewTake"],
    "Segment": ["Segment"],
    "Voice": ["Voice"],
}
# What the client sends: its description, and the fields of it that are arguments of their own.
REQUESTS = {
    "BatchOptions": ("BatchCreateRequest", {"defaults", "items"}),
    "JobChanges": ("PatchedJobPatchRequest", set()),
    "JobOptions": ("JobCreateRequest", {"reference", "references", "text", "voice", "voices"}),
    "LexiconEntry": ("EntryRequest", set()),
}
# Neither: a line of an event stream, and a part of a plan that is described as free pairs.
OTHERS = {"Casting", "Event"}


def fields_of(name: str) -> set[str]:
    """Return the fields of a description."""
    return set(SCHEMAS[name]["properties"])


def optional_fields_of(kind: Any) -> set[str]:
    """Return the fields that a type says may be missing."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name for name, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}


def test_each_type_is_held_to_a_description() -> None:
    assert {*ANSWERS, *REQUESTS, *OTHERS} == set(TYPES)


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_have_the_fields_that_are_described(name: str) -> None:
    kind, descriptions = TYPES[name], [fields_of(one) for one in ANSWERS[name]]
    known, optional = set(typing.get_type_hints(kind)), optional_fields_of(kind)
    everywhere = descriptions[0].intersection(*descriptions)
    somewhere = descriptions[0].union(*descriptions)

    assert known - optional <= everywhere, "not all answers have these"
    assert somewhere <= known, "the type does not know these"
    # An item inherits from a job what only an answer of one job has.
    assert name == "Item" or known <= somewhere, "no answer has these"


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_have_the_fields_that_are_described(name: str) -> None:
    description, arguments = REQUESTS[name]

    assert set(typing.get_type_hints(TYPES[name])) == fields_of(description) - arguments
