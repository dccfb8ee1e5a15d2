"""The code of each refusal has one HTTP status, and stands in the guide's table of errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from synth.api.batches.entries import _WORDS
from synth.audiobooks.start import PLAN_UNFIT
from synth.transitions import jobs
from tests.sources import PRODUCT, PROJECT, name_of, parse, paths_of
from ttsweb.http.problems import STATUSES, status_of
from ttsweb.refusals import RefusedError

WEB = ("ttsweb", "voices", "synth")
# Errors of rooms that know nothing of the web: a RefusedError takes over their codes.
CONVERTED = {"TextRejectedError", "PlanEditError", "CreditsError", "RuleError"}
NEVER_OF_A_REQUEST = {
    "placeholder_unknown",  # the serializer turns it into a 400 of its field
    *("clip_no_audio", "clip_not_finite", "clip_rate_unsupported", "clip_silent"),
    *("clip_too_long", "clip_too_many_channels", "clip_undecodable"),  # the worker's child process
    # An OpenID provider's refusal leads back to the log-in page, which says it.
    *("account_inactive", "email_ambiguous", "email_unverified"),
    # Events of the Wyoming protocol, which has no statuses.
    *("client_idle", "event_invalid", "internal_error", "rate_changed"),
    *("text_format_not_supported", "too_many_texts"),
}
# Those of the REST framework itself; each is sent by a serializer or by the framework's views.
FRAMEWORK_CODES = {
    *("required", "null", "blank", "empty", "invalid_choice", "min_value", "max_value"),
    *("max_length", "not_a_list", "parse_error", "unsupported_media_type", "not_acceptable"),
    *("method_not_allowed", "not_authenticated", "authentication_failed"),
}
TOLD = {
    *("ApiProblem", "SubmitRejectedError", "RetryRefusedError", "ChangeRefusedError"),
    *("KeyLimitError", "KeyRejectedError", "LexiconError", "BadLine", "FileRefusedError"),
    *("ClipRejectedError", "ImportRefusedError", "ItemError", "RuleError", "TextRejectedError"),
    *("FetchError", "ErrorDetail", "ValidationError", "_send_problem", "problem_body"),
}
CODE = re.compile(r"[a-z]+(_[a-z0-9]+)+")
NO_CODES = {"custom_id", "not_text"}  # names of fields among the arguments


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Yield what web code calls, by its name; the client only repeats what it was told."""
    for path in paths_of(*WEB):
        if "client" not in path.name:
            for node in parse(path)[1]:
                if isinstance(node, ast.Call):
                    yield name_of(node.func), node


def texts(*nodes: ast.AST) -> set[str]:
    values = [node.value for node in nodes if isinstance(node, ast.Constant)]
    return {value for value in values if isinstance(value, str)}


def test_table_of_statuses_has_the_codes_that_are_raised_and_no_other() -> None:
    classes = (node for path in paths_of(*WEB) for node in parse(path)[1])
    makers = {"RefusedError", "_refused", *CONVERTED} | {
        node.name
        for node in classes
        if isinstance(node, ast.ClassDef) and "RefusedError" in map(name_of, node.bases)
    }
    raised = {PLAN_UNFIT, *jobs.CODES, *(words.too_many for words in _WORDS.values())}
    for name, call in calls():
        if name in makers:
            cases = [one.value for one in call.keywords if one.arg == "case"]
            raised |= texts(*call.args[name == "RuleError" :][:1], *cases)

    assert raised - NEVER_OF_A_REQUEST == STATUSES.keys()


def test_codes_that_answers_tell_are_those_of_the_guide_s_table() -> None:
    guide = (PROJECT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]+`) \|", guide, re.MULTILINE)
    answer = {code for row in rows for code in re.findall(r"`([a-z0-9_]+)`", row)}
    known = set()
    for name, call in calls():
        if name in TOLD:
            named = [word.value for word in call.keywords if word.arg == "code"]
            known |= set(filter(CODE.fullmatch, texts(*call.args[:3], *named))) - NO_CODES
    constants = (
        node for path in paths_of(*PRODUCT) for node in parse(path)[1] if "client" not in path.name
    )

    assert len(known) >= 150
    assert sorted(known - answer) == []
    assert sorted(answer - texts(*constants) - FRAMEWORK_CODES) == []


def test_case_tells_uses_of_a_code_apart() -> None:
    above = RefusedError("text_too_long", "Too long.")
    of_segment = RefusedError("text_too_long", "Too long.", case="segment_text_too_long")
    assert (status_of(above), status_of(of_segment)) == (413, 400)
    assert status_of(of_segment.at("text", "Shorten it.")) == 400
