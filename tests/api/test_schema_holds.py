"""Hold a served project to its description: generated requests, good and bad, to every operation.

Half of the requests name things that are there, so that views are tried and not only their 404s.
Which requests those are, and how to draw others, says `tests/api/generated.py`.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from schemathesis import Case, Response
from schemathesis.checks import CheckContext
from schemathesis.core.failures import AcceptedNegativeData
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from tests.api.generated import OPERATIONS, send_requests, tells_more
from tests.api.served import Served

TIMEOUT_SECONDS = 30
# What takes a thing away, or ends it: each such request gets one of its own.
CONSUMING = {"DELETE"}
# What a description cannot say of a good request; each is a 400 with its sentence. Before a code
# may stand the end of the path of the field that it is unsayable of.
UNSAYABLE = {
    # which names of properties there are
    *("casting.characters.* name_invalid", "casting.languages.* language_invalid"),
    "speaker_invalid",
    # which names differ by case alone
    *("casting.characters.* name_twice", "casting.languages.* name_twice"),
    "entry invalid",  # one field needs another
    "takes repeated",  # which entries are equal in one of their fields
    # no text holds a control character
    *("control_characters", "not_one_line", "text_invalid", "transcript_not_text"),
    # what is in a file
    *("archive_invalid", "clip_not_audio", "file_not_utf8", "batch_items_invalid"),
    *("book_batch_entries_invalid", "manifest_empty", "manifest_header_invalid"),
    *("manifest_not_utf8", "csv_columns", "pls_invalid"),
    *("file_empty", "batch_empty"),  # which lines of a file are blank
    "bad_event_id",  # which events there were
    *("bit_rate_unfit", "sample_rate_unfit"),  # what a format can have
    "cursor_invalid",  # which cursors there are
    "date_invalid",  # which days a month has
    "placeholder_unknown",  # what is in braces: generators spoil a pattern of any length
    "history_not_supported",  # what the model's card allows
    "loudness_unfit",  # what a preset sets itself
    "idempotency_key_reused",  # which keys were used
    "group_unknown",  # which groups there are
    "permission_unknown",  # which permissions there are
    "password_weak",  # which passwords are too well known
    "null_characters_not_allowed",  # no text holds a NUL
    *("deadline_past", "in_the_past"),  # which moments are over
    "live_required",  # one parameter needs another
    "voice_required",  # one of two fields
    "deadline_invalid",  # which moments are ten years ahead
    "too_many_files",  # how many clips the operator allows
    "clip_required",  # as many clips as transcripts
    *("text_unspeakable", "text_empty", "text_not_text"),  # what can be spoken
    "transcript_required",  # a clip needs its words
    "url_invalid",  # which URLs lead somewhere
    "url_private_address",  # which URLs lead inside
    "url_references_off",  # what the operator has switched on
}


@pytest.mark.parametrize("label", OPERATIONS)
def test_operation_is_as_described(label: str, served: Served) -> None:
    send_requests(OPERATIONS[label], hold_to_description, served=served)


def hold_to_description(case: Case[Any], served: Served) -> None:
    if not tells_more(case):
        return
    name_what_is_there(case, served)
    case.call_and_validate(
        base_url=served.url,
        headers=dict(served.headers),
        timeout=TIMEOUT_SECONDS,
        excluded_checks=[positive_data_acceptance, negative_data_rejection],
        additional_checks=[accepted_unless_unsayable, refused_unless_text_of_a_form],
    )


def accepted_unless_unsayable(
    ctx: CheckContext, response: Response, case: Case[Any]
) -> bool | None:
    """Hold a request that is good by its description to be taken, or refused for what none says."""
    if response.status_code in (400, 422):
        problem = response.json()
        errors = problem["errors"] or [problem]
        if problem["code"] in UNSAYABLE or all(is_unsayable(error) for error in errors):
            return None
    return positive_data_acceptance(ctx, response, case)


def is_unsayable(error: dict[str, Any]) -> bool:
    """Say whether no description can tell which values this error is of."""
    place = f"{error.get('attr')} {error['code']}"
    return any(
        fnmatchcase(place, f"*{known}") if " " in known else known == error["code"]
        for known in UNSAYABLE
    )


def refused_unless_text_of_a_form(
    ctx: CheckContext, response: Response, case: Case[Any]
) -> bool | None:
    """Hold a bad request to be refused; in a form every value is a text, and `{}` is one too."""
    try:
        return negative_data_rejection(ctx, response, case)
    except AcceptedNegativeData as failure:
        is_form = str(case.media_type).startswith("multipart/")
        if is_form and "in body" in failure.message and "Incorrect type" in failure.message:
            return None
        raise


def name_what_is_there(case: Case[Any], served: Served) -> None:
    """Put ids of things that are there into every other request whose path is a good one."""
    is_of_lines = case.media_type in ("application/x-ndjson", "application/jsonl")
    if case.operation.label == "POST /api/v1/batches" and not is_of_lines:
        case.query.clear()  # its parameters are for a body that has no fields
    names = [name for name in case.path_parameters if name in served.ids]
    if not names or case.meta is None:
        return
    if case.meta.is_negative_at(ParameterLocation.PATH) or hash_of(case) % 2:
        return
    values = {name: served.ids[name] for name in names}
    if case.method in CONSUMING and case.method == case.operation.method.upper():
        values[names[-1]] = served.make(names[-1])
    case.path_parameters.update(values)


def hash_of(case: Case[Any]) -> int:
    """Return a number of the request, which tells requests apart the same way each time."""
    return sum(repr(case.path_parameters).encode())
