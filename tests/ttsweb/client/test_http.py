"""Requests and downloads: what is repeated, how often, after which pause, and what is raised."""

from __future__ import annotations

import datetime as dt
import socket
from email.utils import format_datetime
from pathlib import Path

import pytest

from tests.ttsweb.client.faulty_server import Answer, FaultyClient, json_answer, problem
from ttsweb.client import (
    ApiError,
    AuthenticationError,
    Client,
    ClientError,
    ConflictError,
    DownloadError,
    InvalidRequestError,
    NotFoundError,
    ServerError,
    ServerUnreachableError,
    TooManyRequestsError,
)
from ttsweb.client.http import LONGEST_PAUSE_SECONDS, pause_before

JOB_ID = "5b0f4a0e-0d53-4bbb-8ad1-3f4e4b1b2f11"
JOB = {"id": JOB_ID, "status": "queued"}
GOOD = json_answer(JOB)
BROKEN = Answer(cut=0)  # a connection that broke


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        *(([problem(status, "later")] * 2, 3) for status in (429, 502, 503, 504)),
        ([BROKEN], 2),
        *(([problem(503, "starting")] * count, count + 1) for count in (1, 3)),
    ],
)
def test_safe_request_is_repeated(client: FaultyClient, answers: list[Answer], asked: int) -> None:
    client.answers(*answers, GOOD)
    assert dict(client.jobs.get(JOB_ID)) == JOB
    assert len(client.requests) == asked


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 500, 507])
def test_what_repeating_cannot_mend_is_asked_once(client: FaultyClient, status: int) -> None:
    client.answers(problem(status, "no"), GOOD)
    with pytest.raises(ApiError):
        client.jobs.get(JOB_ID)
    assert len(client.requests) == 1


def test_repetitions_are_bounded_by_a_number_that_can_be_raised_later(client: FaultyClient) -> None:
    client.answers(problem(503, "database_unavailable"))
    with pytest.raises(ServerError) as caught:
        client.jobs.get(JOB_ID)
    assert (caught.value.code, len(client.requests)) == ("database_unavailable", 4)
    client.answers(*[problem(503, "starting")] * 6, GOOD)
    client.retries = 6
    assert dict(client.jobs.get(JOB_ID)) == JOB


def test_job_that_is_sent_again_carries_the_same_key(client: FaultyClient) -> None:
    client.answers(BROKEN, problem(502, "bad_gateway"), json_answer(JOB, 202))
    client.jobs.create("Hello.", voice="Ada")
    client.jobs.create("Hello.", voice="Ada")
    keys = [request.headers["idempotency-key"] for request in client.requests]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    assert len({request.body for request in client.requests}) == 1


@pytest.mark.parametrize("answer", [BROKEN, problem(503, "later")])
def test_what_must_not_arrive_twice_is_repeated_if_put_off(
    client: FaultyClient, answer: Answer
) -> None:
    client.answers(answer, GOOD)
    with pytest.raises(ClientError):
        client.jobs.retry(JOB_ID)
    client.answers(answer, Answer(204, b""))
    with pytest.raises(ClientError):
        client.jobs.delete(JOB_ID)
    assert [request.method for request in client.requests] == ["POST", "DELETE"]
    client.answers(problem(429, "too_many"), GOOD)
    assert dict(client.jobs.retry(JOB_ID)) == JOB


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_waited_for(client: FaultyClient, as_date: bool) -> None:
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=40)
    named = format_datetime(moment, usegmt=True) if as_date else "40"
    client.answers(problem(429, "too_many", Retry_After=named), GOOD)
    client.jobs.get(JOB_ID)
    assert len(client.pauses) == 1 and 30 < client.pauses[0] <= 40


def test_retry_after_that_is_too_far_off_is_told_and_not_waited_for(client: FaultyClient) -> None:
    client.answers(problem(429, "quota", Retry_After="3600"), GOOD)
    with pytest.raises(TooManyRequestsError) as caught:
        client.jobs.get(JOB_ID)
    assert (caught.value.retry_after, client.pauses) == (3600, [])


@pytest.mark.parametrize("named", ["", "soon", "nan", "-5", "inf"])
def test_retry_after_that_is_none_leaves_the_usual_pause(client: FaultyClient, named: str) -> None:
    client.answers(problem(503, "later", Retry_After=named), GOOD)
    client.jobs.get(JOB_ID)
    assert 0 < client.pauses[0] < 1


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
def test_error_has_its_class_and_fields(
    client: FaultyClient, status: int, kind: type[ApiError]
) -> None:
    fields = [{"attr": "text", "code": "blank", "detail": "It is empty."}]
    body = {"status": status, "code": "invalid", "detail": "It is empty.", "errors": fields}
    client.answers(json_answer(body, status))
    with pytest.raises(kind) as caught:
        client.jobs.create("", voice="Ada")
    assert {**vars(caught.value), "retry_after": None} == {**body, "retry_after": None}


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
    client: FaultyClient, answer: Answer, words: str, code: str
) -> None:
    client.answers(answer)
    with pytest.raises(ApiError, match=words) as caught:
        client.jobs.get(JOB_ID)
    assert isinstance(caught.value, InvalidRequestError) is (answer.status == 413)
    assert (caught.value.code, len(client.requests)) == (code, 1)


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


def test_proxy_of_the_environment_is_not_used_for_this_machine_and_a_path_is_kept(
    monkeypatch: pytest.MonkeyPatch, client: FaultyClient
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    client.answers(GOOD)
    with Client(f"{client.url}/speech/", "tts_key", retries=0) as another:
        assert dict(another.jobs.get(JOB_ID)) == JOB
    assert client.requests[0].path == f"/speech/api/v1/jobs/{JOB_ID}"
    assert client.requests[0].headers["authorization"] == "Bearer tts_key"


def test_list_goes_on_by_the_cursor_alone(client: FaultyClient) -> None:
    elsewhere = "https://elsewhere.example/api/v1/jobs?cursor=abc%3D&limit=9"
    client.answers(
        json_answer({"next": elsewhere, "results": [{"id": "1"}]}),
        json_answer({"next": None, "results": [{"id": "2"}]}),
    )
    assert [job["id"] for job in client.jobs.list(status="queued")] == ["1", "2"]
    first = "/api/v1/jobs?limit=100&status=queued"
    assert [request.path for request in client.requests] == [first, f"{first}&cursor=abc%3D"]


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
def test_address_that_is_none_and_key_of_no_header_are_refused(
    url: str, key: str, code: str
) -> None:
    with pytest.raises(ClientError) as caught:
        Client(url, key)
    assert caught.value.code == code
    assert key.strip() == "" or key not in str(caught.value)


SOUND = bytes(range(256)) * 40
OTHER = SOUND[::-1]
NO_RANGE = problem(416, "range_not_satisfiable")


def whole(body: bytes = SOUND, etag: str = '"one"', cut: int | None = None) -> Answer:
    return Answer(200, body, {"ETag": etag}, cut)


def rest(start: int, body: bytes = SOUND, etag: str = '"one"', cut: int | None = None) -> Answer:
    place = f"bytes {start}-{len(body) - 1}/{len(body)}"
    return Answer(206, body[start:], {"ETag": etag, "Content-Range": place}, cut)


@pytest.mark.parametrize(
    ("script", "content", "starts"),
    [
        ([whole(cut=1000), rest(1000, cut=500), rest(1500)], SOUND, [None, 1000, 1500]),
        # The part of another file is thrown away.
        ([whole(cut=1000), rest(1000, OTHER, '"two"'), whole(OTHER, '"two"')], OTHER,
         [None, 1000, None]),
        # A server without ranges sends all of it again.
        ([whole(cut=1000), whole()], SOUND, [None, 1000]),
        ([whole(cut=1000), NO_RANGE, whole(OTHER[:200])], OTHER[:200], [None, 1000, None]),
        # Without a strong tag a file is not pieced together.
        *(([whole(etag=tag, cut=1000), rest(1000, OTHER, tag), whole(OTHER, tag)], OTHER,
           [None, 1000, None]) for tag in ("", 'W/"one"')),
    ],
)  # fmt: skip
def test_broken_download_goes_on_where_it_broke_off_or_begins_anew(
    client: FaultyClient,
    tmp_path: Path,
    script: list[Answer],
    content: bytes,
    starts: list[int | None],
) -> None:
    counts: list[tuple[int, int | None]] = []
    target = tmp_path / "new" / "out.wav"
    client.answers(*script)
    client.jobs.download(JOB_ID, target, lambda size, total: counts.append((size, total)))
    assert target.read_bytes() == content
    asked = [request.headers.get("range") for request in client.requests]
    assert asked == [start and f"bytes={start}-" for start in starts]
    assert [path.name for path in target.parent.iterdir()] == ["out.wav"]
    assert counts[-1] == (len(content), len(content))
    assert {total for _, total in counts} <= {len(SOUND), len(content)}, "of the whole"


def test_later_call_goes_on_with_what_earlier_ones_left(
    client: FaultyClient, tmp_path: Path
) -> None:
    target = tmp_path / "out [1].wav"
    client.answers(whole(cut=1000), problem(404, "gone"))
    with pytest.raises(NotFoundError, match="sentence"):
        client.jobs.download(JOB_ID, target)
    client.answers(rest(1000))
    client.jobs.download(JOB_ID, target)
    assert target.read_bytes() == SOUND
    assert client.requests[-1].headers["range"] == "bytes=1000-"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize(
    "script", [[whole(cut=1000), rest(1000, cut=0)], [whole(etag="", cut=1000)]]
)
def test_tries_that_bring_nothing_end(
    client: FaultyClient, tmp_path: Path, script: list[Answer]
) -> None:
    client.answers(*script)
    with pytest.raises((DownloadError, ServerUnreachableError)) as caught:
        client.jobs.download(JOB_ID, tmp_path / "out.wav")
    assert caught.value.code in ("download_incomplete", "server_unreachable")
    assert len(script) == 2 or "was not downloaded completely" in str(caught.value)
    assert not (tmp_path / "out.wav").exists()
    assert len(client.requests) < 20


def test_refusal_leaves_a_file_and_a_folder_is_no_target(
    client: FaultyClient, tmp_path: Path
) -> None:
    with pytest.raises(IsADirectoryError):
        client.jobs.download(JOB_ID, tmp_path)
    assert client.requests == []
    target = tmp_path / "out.wav"
    target.write_bytes(b"before")
    client.answers(problem(409, "job_not_finished"))
    with pytest.raises(ConflictError):
        client.jobs.download(JOB_ID, target)
    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.wav"]


def test_file_that_the_storage_itself_serves_is_fetched_without_the_key(
    client: FaultyClient, tmp_path: Path
) -> None:
    signed = f"{client.server.url}/bucket/file.wav?X-Amz-Signature=1"
    client.answers(Answer(302, b"", {"Location": signed}), Answer(200, b"audio"))
    client.jobs.download(JOB_ID, tmp_path / "out.wav")
    assert (tmp_path / "out.wav").read_bytes() == b"audio"
    first, second = client.requests
    assert first.headers["authorization"] and "authorization" not in second.headers
    assert second.path.startswith("/bucket/file.wav?X-Amz")
