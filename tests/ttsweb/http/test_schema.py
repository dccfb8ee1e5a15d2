"""The committed description of the API is the one that the code gives, without a warning."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client
from jsonschema import Draft4Validator

from tests.sources import PROJECT
from ttsweb.configuration.library import CONTENT_POLICY, CONTENT_POLICY_HEADER

COMMITTED = PROJECT / "openapi.yaml"


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("schema") / "openapi.yaml"
    call_command("spectacular", "--validate", "--fail-on-warn", "--file", str(file))
    return file.read_text()


@pytest.fixture(scope="module")
def schema(text: str) -> Any:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # some wheels lack the fast one
    return yaml.load(text, Loader=loader)


def test_the_committed_schema_is_the_generated_one(text: str) -> None:
    command = "./tts spectacular --validate --fail-on-warn --file openapi.yaml"
    assert COMMITTED.read_text() == text, f"run: {command}"


def test_operations_are_named_by_what_they_do_and_answer_errors_as_problems(schema: Any) -> None:
    operations = {
        (path, method): one
        for path, item in schema["paths"].items()
        for method, one in item.items()
    }
    for place, operation in operations.items():
        content: Any = operation["responses"]["default"]["content"]["application/problem+json"]
        assert content["schema"]["$ref"].endswith("/Problem"), place
    names = [operation["operationId"] for operation in operations.values()]
    assert len(names) == len(set(names))
    assert not [name for name in names if "api_v1" in name]
    assert operations["/api/v1/voices", "post"]["operationId"] == "create_voice"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("BatchCreateRequest", "items"), ("BookBatchCreateRequest", "entries"),
        ("EntriesCreateRequest", "entries"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("bad", [{"text": 5, "file": 5}, None, "text", {}])
def test_rows_may_be_anything_where_bad_ones_are_skipped(
    name: str, field: str, bad: Any, schema: Any
) -> None:
    reference = {"$ref": f"#/components/schemas/{name}", "components": schema["components"]}
    validator = Draft4Validator(reference)
    assert validator.is_valid({field: [bad], "on_error": "skip"})
    assert not validator.is_valid({field: [bad], "on_error": "reject"})
    assert not validator.is_valid({field: [bad]}), "which is rejected as well"


@pytest.mark.parametrize("accept", ["image/png", "text/html", "application/problem+json"])
def test_an_accept_that_cannot_be_met_is_told_what_can_be_had(accept: str) -> None:
    response = Client().get("/api/v1/schema", headers={"accept": accept})

    problem = response.json()  # whatever the view has besides, a problem is JSON
    assert (response.status_code, problem["code"]) == (406, "not_acceptable")
    assert response["Content-Type"] == "application/problem+json"
    assert "application/yaml" in problem["detail"]
    assert " or application/json." in problem["detail"]


@pytest.mark.parametrize(
    ("accept", "start"),
    [("application/yaml", b"openapi: 3."), ("application/json", b'{\n    "openapi": "3.')],
)
def test_the_schema_is_served_without_a_key(accept: str, start: bytes) -> None:
    response = Client().get("/api/v1/schema", headers={"accept": accept})
    assert response.status_code == 200
    assert response["Content-Type"].startswith(accept)
    assert response.content.startswith(start)
    assert response[CONTENT_POLICY_HEADER] == CONTENT_POLICY


@pytest.mark.parametrize("path", ["/api/v1/schema", "/api/v1/docs"])
def test_errors_of_views_that_answer_otherwise_are_json(path: str) -> None:
    response = Client().delete(path, headers={"accept": "application/yaml, text/html"})
    assert response["Content-Type"] == "application/problem+json"
    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
