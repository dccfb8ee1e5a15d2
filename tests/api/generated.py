"""Draw requests from the project's description, the same ones wherever that is done.

A request that is drawn depends on more than a seed:

- Hypothesis mixes in constants of the modules that are loaded: numbers and short texts of every
  source file outside of site-packages and of folders named `test` or `tests`
  (`hypothesis.internal.constants_ast`). So it drew other requests in one process than in two, in a
  lone file than in a whole run, and in a clone below `~/test` than in one elsewhere. With the
  tasks and the engine loaded besides, 26 of 125 operations got others. Here no such constant is
  used.
- `derandomize` takes its seed from the source of the test function, so that a comment in it changes
  every request. Here the seed is `TTS_TEST_SEED`, mixed with the operation's name by schemathesis.
- In CI Hypothesis loads settings of its own, and schemathesis reads a `schemathesis.toml` of any
  folder above. Here all settings that matter are given.
- What is left are the versions of both libraries, which constraints.txt pins, and Python's version:
  which characters there are is Unicode's, and each Python has its own table of them.

`TTS_TEST_EXAMPLES` is the number of random requests of an operation, one unless said otherwise and
three with `./tts test --all`. They start at `TTS_TEST_SEED`; `random` takes another seed each time,
and the head of the run names it. Beside them stand requests for every boundary of every field: ten
thousand, of which a run of one example sends those that `tells_more` chooses.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Hashable
from typing import Any

import hypothesis
import schemathesis
import yaml
from hypothesis import strategies
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from schemathesis import Case
from schemathesis.checks import load_all_checks
from schemathesis.config import GenerationConfig, SchemathesisConfig
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source

from tests.workers.commands import PROJECT

_tried: set[Hashable] = set()
EXAMPLES = int(os.environ.get("TTS_TEST_EXAMPLES", "1"))
SEED = int(os.environ.get("TTS_TEST_SEED", "0"))


def described() -> dict[str, Any]:
    """Return the description without its `default` answers, so that no status goes unsaid."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some wheels lack the fast one
    document: dict[str, Any] = yaml.load((PROJECT / "openapi.yaml").read_text(), Loader=loader)
    for operations in document["paths"].values():
        for operation in operations.values():
            operation["responses"].pop("default", None)
    return document


def json_lines() -> strategies.SearchStrategy[bytes]:
    """Draw files of JSONL: items of batches, good and bad, and lines that are not even JSON."""
    item = strategies.fixed_dictionaries(
        {"text": strategies.text(max_size=40)},
        optional={
            "voice": strategies.sampled_from(["Ada", "", "nobody"]),
            "custom_id": strategies.text(max_size=5),
            "speed": strategies.sampled_from([1, 1.5, 9, "1"]),
            "unknown": strategies.none(),
        },
    )
    good = item.map(lambda one: json.dumps(one).encode())
    line = strategies.one_of(good, good, good, strategies.binary(max_size=20))
    return strategies.lists(line, min_size=1, max_size=4).map(b"\n".join)


def tells_more(case: Case[Any]) -> bool:
    """Say whether a request breaks or keeps a rule that none before it tried of that operation.

    The same fields stand in several places: in items, in `defaults`, in a form, in a query. Each
    rule of a field is tried in one of them, and each place with each kind of rule.
    """
    phase: Any = case.meta.phase.data if case.meta is not None else None
    text = getattr(phase, "description", None)
    if text is None or EXAMPLES > 1:
        return True
    *place, rule = re.split(" -> |: ", text)
    rule = re.sub("'.*'", "", rule)  # a pattern, or which one of the fields stands alone
    where = (*place[:-1], phase.parameter_location, phase.parameter, str(case.media_type))
    tries = {(case.operation.label, *one, rule) for one in (where, place[-1:] or where)}
    is_new = not tries <= _tried
    _tried.update(tries)
    return is_new


# Hypothesis has no setting for this; whoever draws requests imports this module before. The patched
# name is private: where it is gone, test_generated.py fails.
providers._get_local_constants = Constants
providers.CONSTANTS_CACHE.cache.clear()

schemathesis.openapi.media_type("application/x-ndjson", json_lines(), aliases=["application/jsonl"])
schema = schemathesis.openapi.from_dict(described(), config=SchemathesisConfig(seed=SEED))
schema.config.generation = GenerationConfig(max_examples=EXAMPLES, database="none", no_shrink=True)
settings = hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=False,
    database=None,
    print_blob=False,
    suppress_health_check=list(hypothesis.HealthCheck),
)
_found: Any = schema.get_all_operations()
OPERATIONS = {operation.label: operation for operation in (one.ok() for one in _found)}


def send_requests(operation: Any, check: Callable[..., None], **fixtures: Any) -> None:
    """Draw the requests of an operation and call `check` with each as `case`.

    `schema.parametrize()` draws those of all operations while tests are collected, which each
    process of a run does. What it calls later is called here; its name is private as well.
    """
    load_all_checks()
    test = build_operation_test(
        config=schema.config,
        operation=operation,
        test_func=check,
        given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
        explicit_settings=settings,
    )
    test(**fixtures)
