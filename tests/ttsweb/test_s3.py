"""Storages of both kinds mean the same, and what a bucket's server does wrong is an outage."""

from __future__ import annotations

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.management import call_command
from django.http import HttpResponseBase, StreamingHttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from lab.faulty_proxy import FaultyProxy
from lab.s3_server import S3Server
from tests.conftest import use_storage
from tests.factories import logged_in, make_ended_job, make_user
from ttsweb import s3 as bucket_storage
from ttsweb.commands.base import CommandError
from ttsweb.http.api import _as_api_exception
from ttsweb.http.ranged import StoredObject, object_response
from ttsweb.pages import middleware
from ttsweb.storage import StorageAwayError, fetch_object
from workers.kinds import is_disk_full, is_outage
from workers.local.doctor import look_at_storage

CONTENT = bytes(range(256)) * 1024
storage: Any = default_storage  # both kinds have more than Django's class


@pytest.fixture(params=["folder", "bucket"])
def kind(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue("storage_folder" if request.param == "folder" else "bucket")
    return str(request.param)


@pytest.fixture
def proxy(
    s3: S3Server, bucket: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultyProxy]:
    """What stands between this process and its bucket; it waits a second for an answer."""
    proxy = FaultyProxy(s3.endpoint)
    monkeypatch.setattr(bucket_storage, "READ_SECONDS", 1)
    address = s3.storage_url(bucket, "a/prefix", endpoint=proxy.url)
    use_storage(settings, monkeypatch, s3, address)
    yield proxy
    proxy.close()


def store(name: str = "exports/ab/one.wav", content: bytes = CONTENT) -> str:
    return str(storage.save(name, ContentFile(content)))


def test_object_is_read_from_any_place(kind: str) -> None:
    key = store()
    with storage.open(key) as file:
        assert file.read() == CONTENT
        assert file.seek(-3, 2) and file.read() == CONTENT[-3:]
        file.seek(5)
        assert (file.read(3), file.tell()) == (CONTENT[5:8], 8)
    with storage.open_range(key, 1000, 1010) as file:
        assert file.read(10) == CONTENT[1000:1010]
    empty = store("exports/ab/empty", b"")
    with storage.open(empty) as file, storage.open_range(empty, 0, 0) as nothing:
        assert file.read() == nothing.read() == b""
    assert storage.size(key) == len(CONTENT)
    assert fetch_object(key).read() == CONTENT


def test_what_is_not_there_is_missing_and_may_be_deleted(kind: str) -> None:
    for ask in (storage.open, storage.size, storage.get_modified_time):
        with pytest.raises(FileNotFoundError):
            ask("exports/none")
    assert not storage.exists("exports/none")
    storage.delete("exports/none")
    key = store()
    storage.delete(key)
    assert not storage.exists(key)


def test_folders_and_keys_are_listed(kind: str) -> None:
    for name in ("exports/ab/1", "exports/ab/2", "exports/cd/3", "books/ab/4"):
        store(name)
    assert sorted(storage.listdir("exports")[0]) == ["ab", "cd"]
    assert sorted(storage.listdir("exports/ab")[1]) == ["1", "2"]
    assert sorted(storage.list_keys("exports/")) == ["exports/ab/1", "exports/ab/2", "exports/cd/3"]
    assert sorted(storage.list_keys("exports/c")) == ["exports/cd/3"]
    assert list(storage.list_keys("takes/")) == []


def test_of_two_writers_of_one_name_the_first_has_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert store()  # the storage is made, and its server was looked at
    backend = storage._wrapped
    find = backend.get_available_name
    first: list[str] = []

    def write_between(name: str, *more: Any, **named: Any) -> str:
        found = find(name, *more, **named)
        if not first:  # the other writer is done between the look at the name and the write
            first.append("")
            first[0] = store(name, b"first")
        return str(found)

    monkeypatch.setattr(backend, "get_available_name", write_between)
    second = store("exports/ab/raced", b"second")

    assert first[0] == "exports/ab/raced" != second
    assert fetch_object(first[0]).read() == b"first"
    assert fetch_object(second).read() == b"second"


@pytest.mark.parametrize("range_", ["", "bytes=100-199", "bytes=-10"])
def test_downloads_come_in_ranges(kind: str, range_: str) -> None:
    stored = StoredObject(store(), "audio/wav", "one.wav", etag="abc", is_finished=True)
    response = answer(stored, **({"Range": range_} if range_ else {}))

    expected = {"": CONTENT, "bytes=100-199": CONTENT[100:200], "bytes=-10": CONTENT[-10:]}[range_]
    assert response.status_code == (206 if range_ else 200)
    assert isinstance(response, StreamingHttpResponse) and response.getvalue() == expected
    assert response.headers["Content-Length"] == str(len(expected))


def answer(stored: StoredObject, method: str = "GET", **headers: str) -> HttpResponseBase:
    return object_response(RequestFactory().generic(method, "/audio", headers=headers), stored)


def test_large_object_goes_in_parts_and_is_there_once(
    bucket: str, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_storage, "PART_BYTES", 5 << 20)
    first, second = (bytes([number]) * (11 << 20) for number in (1, 2))
    keys = [store("exports/big", first), store("exports/big", second)]

    assert [fetch_object(key).read() == one for key, one in zip(keys, (first, second), strict=True)]
    assert keys[0] == "exports/big" != keys[1]
    assert len(s3.keys(bucket)) == 2
    assert "Uploads" not in s3.client().list_multipart_uploads(Bucket=bucket)


def test_finished_files_come_from_the_server_itself_where_that_is_asked_for(
    s3: S3Server, bucket: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_storage(settings, monkeypatch, s3, s3.storage_url(bucket, "p", signed_urls="true"))
    finished = StoredObject(store(), "audio/wav", 'Ox "1".wav', download=True, is_finished=True)

    sent = answer(finished)
    fetched = httpx.get(sent.headers["Location"], headers={"Range": "bytes=0-9"}, trust_env=False)

    assert sent.status_code == 302 and "no-store" in sent.headers["Cache-Control"]
    assert "X-Amz-Expires=900" in sent.headers["Location"]
    assert (fetched.status_code, fetched.content) == (206, CONTENT[:10])
    assert fetched.headers["Content-Type"] == "audio/wav"
    assert fetched.headers["Content-Disposition"] == 'attachment; filename="Ox \\"1\\".wav"'
    # Not for what a page plays, nor for what is no finished file; a HEAD cannot be signed so.
    assert answer(finished, **{"Sec-Fetch-Dest": "audio"}).status_code == 200
    assert answer(finished, "HEAD").status_code == 200
    assert answer(StoredObject(finished.key, "audio/wav", "one.wav")).status_code == 200


@pytest.mark.django_db
def test_job_s_audio_is_sent_on_to_the_bucket_and_plays_from_the_page(
    s3: S3Server, bucket: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_storage(settings, monkeypatch, s3, s3.storage_url(bucket, "p", signed_urls="true"))
    owner = make_user()
    address, browser = f"/api/v1/jobs/{make_ended_job(owner).pk}/audio", logged_in(owner)

    sent = browser.get(address)
    played = browser.get(address, headers={"Sec-Fetch-Dest": "audio"})

    fetched = httpx.get(sent.headers["Location"], trust_env=False)
    assert (sent.status_code, fetched.content) == (302, b"0123456789")
    assert (played.status_code, played.getvalue()) == (200, b"0123456789")


@pytest.mark.parametrize("fault", ["refuse", "hang", "busy"])
def test_server_that_is_away_is_an_outage_and_comes_back(proxy: FaultyProxy, fault: str) -> None:
    key = store()
    with proxy.failing(fault):
        storage._wrapped._client.close()  # no connection from before
        for step in (lambda: store("exports/ab/two"), lambda: storage.exists(key)):
            with pytest.raises(StorageAwayError) as caught:
                step()
            assert is_outage(caught.value) and not is_disk_full(caught.value)
        found = look_at_storage()
    assert (found.level, "S3 storage" in found.text) == ("fail", True), found
    problem: Any = _as_api_exception(caught.value)
    assert (problem.status_code, problem.code) == (503, "storage_unavailable")
    assert int(problem.headers["Retry-After"]) > 0
    assert storage.exists(key)
    assert fetch_object(store("exports/ab/two")).read() == CONTENT
    assert look_at_storage().level == "ok"


@pytest.mark.django_db
def test_command_tells_in_sentences_that_the_storage_is_away(proxy: FaultyProxy) -> None:
    make_ended_job(make_user())
    storage._wrapped._client.close()
    with proxy.failing("busy"), pytest.raises(CommandError) as caught:
        call_command("check_data")
    assert re.fullmatch(
        r"storage_unavailable: The S3 storage answered 503\. \d objects? looked at; .*\.",
        str(caught.value),
    )


def test_answer_that_breaks_off_is_read_on_from_there(proxy: FaultyProxy) -> None:
    key = store()
    storage._wrapped._client.close()
    with proxy.failing("cut"):
        file = storage.open(key)
    with file:
        assert file.read() == CONTENT
    assert proxy.num_faults == 1


def test_put_whose_answer_was_lost_is_known_by_its_mark(
    proxy: FaultyProxy, s3: S3Server, bucket: str
) -> None:
    store("exports/ab/other")
    storage._wrapped._client.close()
    with proxy.failing("lost", times=1):
        assert store() == "exports/ab/one.wav"
    assert proxy.num_faults == 1
    assert len(s3.keys(bucket)) == 2


def test_bucket_that_is_not_there_makes_nothing_missing(
    s3: S3Server, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_storage(settings, monkeypatch, s3, s3.storage_url("never-made"))
    for ask in (storage.exists, storage.open, storage.size, store):
        with pytest.raises(StorageAwayError, match="bucket that TTS_STORAGE names does not exist"):
            ask("exports/one")


def test_pages_say_that_the_storage_is_away() -> None:
    try:
        raise StorageAwayError("The S3 storage does not answer (ReadTimeout).")
    except StorageAwayError:
        page, asked = (
            middleware.server_error(RequestFactory().get(path)) for path in ("/admin/", "/api/v1/x")
        )
    assert page.status_code == asked.status_code == 503
    assert "The storage does not answer" in page.content.decode()  # type: ignore[attr-defined]
    assert b"storage_unavailable" in asked.content  # type: ignore[attr-defined]
    assert page.headers["Retry-After"] == asked.headers["Retry-After"] == "5"


@contextmanager
def server_that_answers(status: int, body: bytes) -> Iterator[str]:
    """Run a server that answers PUT alike, whatever the conditions; yield its address."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_DELETE(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, *told: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "code", "sentence", "is_full"),
    [
        (200, "", "does not keep `If-None-Match", False),
        (501, "NotImplemented", "does not keep `If-None-Match", False),
        (403, "AccessDenied", "refuses access .AccessDenied.; check the credentials", False),
        (507, "XMinioStorageFull", "is full", True),
        (400, "InvalidRequest", "answered 400 InvalidRequest", False),
        (400, "IllegalRegion", "in another region", False),
    ],
)
def test_server_that_refuses_or_replaces_is_told_in_a_sentence(
    s3: S3Server,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
    sentence: str,
    is_full: bool,
) -> None:
    body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode() if code else b""
    with server_that_answers(status, body) as endpoint:
        use_storage(settings, monkeypatch, s3, s3.storage_url("bucket", endpoint=endpoint))
        with pytest.raises(StorageAwayError, match=sentence) as caught:
            store()
    assert is_outage(caught.value)
    assert is_disk_full(caught.value) == is_full
    assert "127.0.0.1" not in str(caught.value)
