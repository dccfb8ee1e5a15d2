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
    if typing.is_typeddict(kind) and not name.startswith("_")
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
# What the server answers and calls otherwise, and what it answers whole and as a row in lists.
RENAMED = {
    "Approvals": ["ApprovedMany"],
    "BookBatchReport": ["Report"],
    "BookFile": ["BookFile", "BookFileList"],
    "BookSample": ["Sample"],
    "Item": ["BatchItem"],
    "Job": ["Job", "JobList"],
    "JobFile": ["FileReport"],
    "ReviewFlag": ["Flag"],
    "ReviewNeighbour": ["Neighbour"],
    "SkippedEntry": ["Skipped"],
    "TakeMeasure": ["Check"],
    "TakeQuality": ["Quality"],
    "VoiceClip": ["Clip"],
    "VoiceVersion": ["Version"],
    "VoiceWarning": ["Warning"],
}
ANSWERS = {name: RENAMED.get(name, [name]) for name in TYPES if name not in {*REQUESTS, *OTHERS}}


def fields_of(name: str) -> set[str]:
    return set(SCHEMAS[name]["properties"])


def optional_fields_of(kind: Any) -> set[str]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name for name, hint in hints.items() if typing.get_origin(hint) is typing.NotRequired}


def test_each_type_is_held_to_a_description() -> None:
    descriptions = {one for names in ANSWERS.values() for one in names}
    assert descriptions | {name for name, _ in REQUESTS.values()} <= set(SCHEMAS)
    assert {*RENAMED, *REQUESTS, *OTHERS} <= set(TYPES)


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


def described_part(schema: dict[str, Any]) -> str | None:
    """Return the name of the object that a field is described as, or a list of."""
    inner = schema.get("items", schema)
    reference = inner.get("$ref") or inner.get("allOf", [{}])[0].get("$ref", "")
    name: str = reference.rpartition("/")[2]
    return name if "properties" in SCHEMAS.get(name, {}) else None


def types_in(hint: Any) -> set[str]:
    inner: set[str] = set().union(*map(types_in, typing.get_args(hint)))
    return inner | {getattr(hint, "__name__", "")}


@pytest.mark.parametrize("name", ANSWERS)
def test_parts_that_are_described_are_no_free_dictionaries(name: str) -> None:
    hints = typing.get_type_hints(TYPES[name])
    known = {**ANSWERS, "LexiconEntry": ["Entry"]}
    free = [
        field
        for description in ANSWERS[name]
        for field, schema in SCHEMAS[description]["properties"].items()
        if (part := described_part(schema))
        and not any(part in known.get(one, ()) for one in types_in(hints[field]))
    ]
    assert free == []


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_have_the_fields_that_are_described(name: str) -> None:
    description, arguments = REQUESTS[name]
    assert set(typing.get_type_hints(TYPES[name])) == fields_of(description) - arguments
