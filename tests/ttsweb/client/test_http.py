"""Requests of the client: what is repeated, how often, after which pause, and what is raised."""

from __future__ import annotations

import datetime as dt
import socket
from email.utils import format_datetime

import pytest

from tests.ttsweb.client.faulty_server import Answer, FaultyServer, json_answer, problem
from ttsweb.client import (
    ApiError,
    AuthenticationError,
    Client,
    ClientError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    ServerError,
    ServerUnreachableError,
    TooManyRequestsError,
)
from ttsweb.client.http import LONGEST_PAUSE_SECONDS, pause_before

JOB_ID = "5b0f4a0e-0d53-4bbb-8ad1-3f4e4b1b2f11"
JOB = {"id": JOB_ID, "status": "queued"}


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        *(([problem(status, "later")] * 2, 3) for status in (429, 502, 503, 504)),
        ([Answer(cut=0)], 2),  # a connection that broke
    ],
)
def test_safe_request_is_repeated_until_it_is_answered(
    client: Client, faulty: FaultyServer, answers: list[Answer], asked: int
) -> None:
    faulty.script = [*answers, json_answer(JOB)]
    assert dict(client.jobs.get(JOB_ID)) == JOB
    assert len(faulty.requests) == asked


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500, 507])
def test_what_repeating_cannot_mend_is_asked_once(
    client: Client, faulty: FaultyServer, status: int
) -> None:
    faulty.script = [problem(status, "no"), json_answer(JOB)]
    with pytest.raises(ApiError):
        client.jobs.get(JOB_ID)
    assert len(faulty.requests) == 1


def test_repetitions_are_bounded(client: Client, faulty: FaultyServer) -> None:
    faulty.script = [problem(503, "database_unavailable")]
    with pytest.raises(ServerError) as caught:
        client.jobs.get(JOB_ID)
    assert caught.value.code == "database_unavailable"
    assert len(faulty.requests) == 4


def test_number_of_repetitions_can_be_raised_later(client: Client, faulty: FaultyServer) -> None:
    faulty.script = [*[problem(503, "starting") for _ in range(6)], json_answer(JOB)]
    client.retries = 6
    assert dict(client.jobs.get(JOB_ID)) == JOB


def test_job_that_is_sent_again_carries_the_same_key(client: Client, faulty: FaultyServer) -> None:
    faulty.script = [Answer(cut=0), problem(502, "bad_gateway"), json_answer(JOB, 202)]
    client.jobs.create("Hello.", voice="Ada")
    client.jobs.create("Hello.", voice="Ada")

    keys = [request.headers["idempotency-key"] for request in faulty.requests]
    assert keys[0] == keys[1] == keys[2]
    assert keys[3] != keys[0]
    assert len({request.body for request in faulty.requests}) == 1


@pytest.mark.parametrize("answer", [Answer(cut=0), problem(503, "later")])
def test_what_must_not_arrive_twice_is_not_repeated(
    client: Client, faulty: FaultyServer, answer: Answer
) -> None:
    faulty.script = [answer, json_answer(JOB)]
    with pytest.raises(ClientError):
        client.jobs.retry(JOB_ID)
    with pytest.raises(ClientError):
        faulty.script = [answer, Answer(204, b"")]
        client.jobs.delete(JOB_ID)
    assert [request.method for request in faulty.requests] == ["POST", "DELETE"]


def test_request_that_was_put_off_is_repeated_whatever_it_is(
    client: Client, faulty: FaultyServer
) -> None:
    faulty.script = [problem(429, "too_many"), json_answer(JOB)]
    assert dict(client.jobs.retry(JOB_ID)) == JOB


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_waited_for(
    client: Client, faulty: FaultyServer, pauses: list[float], as_date: bool
) -> None:
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=40)
    named = format_datetime(moment, usegmt=True) if as_date else "40"
    faulty.script = [problem(429, "too_many", Retry_After=named), json_answer(JOB)]
    client.jobs.get(JOB_ID)
    assert len(pauses) == 1 and 30 < pauses[0] <= 40


def test_retry_after_that_is_too_far_off_is_told_and_not_waited_for(
    client: Client, faulty: FaultyServer, pauses: list[float]
) -> None:
    faulty.script = [problem(429, "quota", Retry_After="3600"), json_answer(JOB)]
    with pytest.raises(TooManyRequestsError) as caught:
        client.jobs.get(JOB_ID)
    assert caught.value.retry_after == 3600
    assert pauses == []


@pytest.mark.parametrize("named", ["", "soon", "nan", "-5", "inf"])
def test_retry_after_that_is_none_leaves_the_usual_pause(
    client: Client, faulty: FaultyServer, pauses: list[float], named: str
) -> None:
    faulty.script = [problem(503, "later", Retry_After=named), json_answer(JOB)]
    client.jobs.get(JOB_ID)
    assert 0 < pauses[0] < 1


def test_pauses_grow_up_to_a_bound() -> None:
    assert pause_before(0) < 0.5001
    assert pause_before(3) > pause_before(0) * 3
    assert pause_before(50) <= LONGEST_PAUSE_SECONDS


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError), (401, AuthenticationError), (404, NotFoundError),
        (409, ConflictError), (413, InvalidRequestError), (500, ServerError),
    ],
)  # fmt: skip
def test_error_has_its_class_code_sentence_and_fields(
    client: Client, faulty: FaultyServer, status: int, kind: type[ApiError]
) -> None:
    fields = [{"attr": "text", "code": "blank", "detail": "It is empty."}]
    body = {"status": status, "code": "invalid", "detail": "It is empty.", "errors": fields}
    faulty.script = [json_answer(body, status)]

    with pytest.raises(kind) as caught:
        client.jobs.create("", voice="Ada")

    error = caught.value
    assert (error.status, error.code, error.detail) == (status, "invalid", "It is empty.")
    assert error.errors == fields


@pytest.mark.parametrize(
    ("answer", "words", "code"),
    [
        (Answer(413, b"<html>too large</html>"), r"127\.0\.0\.1.* 413", "http_413"),
        *((Answer(200, body), "check the address", "not_ttsweb")
          for body in (b"<html>", b"[1]", b"")),
        (Answer(301, b"", {"Location": "https://other.example/"}), r"https://other\.example/",
         "redirected"),
    ],
)  # fmt: skip
def test_answer_of_another_program_is_told_and_the_key_not_carried_along(
    client: Client, faulty: FaultyServer, answer: Answer, words: str, code: str
) -> None:
    faulty.script = [answer]
    with pytest.raises(ApiError, match=words) as caught:
        client.jobs.get(JOB_ID)
    assert isinstance(caught.value, InvalidRequestError) is (answer.status == 413)
    assert caught.value.code == code
    assert len(faulty.requests) == 1


def test_server_that_is_away_is_named() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    pauses: list[float] = []

    with (
        Client(url, "tts_key", retries=2, sleep=pauses.append) as client,
        pytest.raises(ServerUnreachableError, match=url),
    ):
        client.jobs.retry(JOB_ID)

    assert len(pauses) == 2, "what was never sent may be sent again"


def test_proxy_of_the_environment_is_not_used_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, faulty: FaultyServer
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    faulty.script = [json_answer(JOB)]
    with Client(faulty.url, "tts_key", retries=0) as client:
        assert dict(client.jobs.get(JOB_ID)) == JOB


def test_list_goes_on_by_the_cursor_alone(client: Client, faulty: FaultyServer) -> None:
    elsewhere = "https://elsewhere.example/api/v1/jobs?cursor=abc%3D&limit=9"
    faulty.script = [
        json_answer({"next": elsewhere, "results": [{"id": "1"}]}),
        json_answer({"next": None, "results": [{"id": "2"}]}),
    ]
    found = list(client.jobs.list(status="queued"))

    assert [job["id"] for job in found] == ["1", "2"]
    assert [request.path for request in faulty.requests] == [
        "/api/v1/jobs?limit=100&status=queued",
        "/api/v1/jobs?limit=100&status=queued&cursor=abc%3D",
    ]


def test_path_of_the_address_is_kept(faulty: FaultyServer) -> None:
    faulty.script = [json_answer(JOB)]
    with Client(f"{faulty.url}/speech/", "tts_key") as client:
        client.jobs.get(JOB_ID)
    assert faulty.requests[0].path == f"/speech/api/v1/jobs/{JOB_ID}"
    assert faulty.requests[0].headers["authorization"] == "Bearer tts_key"


@pytest.mark.parametrize(
    ("url", "key", "code"),
    [
        *((url, "tts_key", "url_invalid") for url in (
            "", "tts.example.org", "ftp://h", "http://", "http://u:p@h", "http://h/?a=1",
            "http://h:port",
        )),
        *(("http://127.0.0.1", key, "api_key_invalid") for key in (
            "", " ", "tts key", "tts_\nkey", "tts_ké",
        )),
    ],
)  # fmt: skip
def test_address_that_is_none_and_key_that_no_header_can_carry_are_refused(
    url: str, key: str, code: str
) -> None:
    with pytest.raises(ClientError) as caught:
        Client(url, key)
    assert caught.value.code == code
    assert key.strip() == "" or key not in str(caught.value)
