"""Downloads: gone on with where they broke off, and never half a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ttsweb.client.faulty_server import Answer, FaultyServer, problem
from ttsweb.client import Client, ConflictError, DownloadError

JOB_ID = "5b0f4a0e-0d53-4bbb-8ad1-3f4e4b1b2f11"
SOUND = bytes(range(256)) * 40
OTHER = SOUND[::-1]


def whole(body: bytes = SOUND, etag: str = '"one"', cut: int | None = None) -> Answer:
    return Answer(200, body, {"ETag": etag}, cut)


def rest(start: int, body: bytes = SOUND, etag: str = '"one"', cut: int | None = None) -> Answer:
    place = f"bytes {start}-{len(body) - 1}/{len(body)}"
    return Answer(206, body[start:], {"ETag": etag, "Content-Range": place}, cut)


def ranges(faulty: FaultyServer) -> list[str | None]:
    return [request.headers.get("range") for request in faulty.requests]


def test_broken_download_goes_on_where_it_broke_off(
    client: Client, faulty: FaultyServer, tmp_path: Path
) -> None:
    faulty.script = [whole(cut=1000), rest(1000, cut=500), rest(1500)]
    client.jobs.download(JOB_ID, tmp_path / "new" / "out.wav")
    assert (tmp_path / "new" / "out.wav").read_bytes() == SOUND
    assert ranges(faulty) == [None, "bytes=1000-", "bytes=1500-"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.wav"]


def test_later_call_goes_on_with_what_an_earlier_one_left(
    client: Client, faulty: FaultyServer, tmp_path: Path
) -> None:
    target = tmp_path / "out [1].wav"
    faulty.script = [whole(cut=1000), problem(404, "gone")]
    with pytest.raises(Exception, match="sentence"):
        client.jobs.download(JOB_ID, target)
    faulty.script = [rest(1000)]
    client.jobs.download(JOB_ID, target)

    assert target.read_bytes() == SOUND
    assert ranges(faulty)[-1] == "bytes=1000-"
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


NO_RANGE = problem(416, "range_not_satisfiable")


@pytest.mark.parametrize(
    ("script", "content"),
    [
        # The part of another file is thrown away.
        ([whole(cut=1000), rest(1000, OTHER, '"two"'), whole(OTHER, '"two"')], OTHER),
        ([whole(cut=1000), whole()], SOUND),  # a server without ranges sends all of it again
        ([whole(cut=1000), NO_RANGE, whole(OTHER[:200])], OTHER[:200]),
        # Without a strong tag a file is not pieced together.
        *(
            ([whole(etag=tag, cut=1000), rest(1000, OTHER, tag), whole(OTHER, tag)], OTHER)
            for tag in ("", 'W/"one"')
        ),
    ],
)
def test_download_that_cannot_go_on_begins_anew(
    client: Client, faulty: FaultyServer, tmp_path: Path, script: list[Answer], content: bytes
) -> None:
    faulty.script = list(script)
    client.jobs.download(JOB_ID, tmp_path / "out.wav")
    assert (tmp_path / "out.wav").read_bytes() == content
    assert ranges(faulty) == [None, "bytes=1000-", None][: len(script)]
    assert [path.name for path in tmp_path.iterdir()] == ["out.wav"]


def test_tries_that_bring_nothing_end_and_leave_no_file(
    client: Client, faulty: FaultyServer, tmp_path: Path
) -> None:
    faulty.script = [whole(cut=1000), rest(1000, cut=0)]
    with pytest.raises(Exception) as caught:
        client.jobs.download(JOB_ID, tmp_path / "out.wav")
    assert caught.value.code in ("download_incomplete", "server_unreachable")  # type: ignore[attr-defined]
    assert not (tmp_path / "out.wav").exists()
    assert len(faulty.requests) < 20


def test_file_that_ends_early_each_time_is_told(
    client: Client, faulty: FaultyServer, tmp_path: Path
) -> None:
    faulty.script = [whole(etag="", cut=1000)]
    with pytest.raises(DownloadError, match="was not downloaded completely"):
        client.jobs.download(JOB_ID, tmp_path / "out.wav")
    assert not (tmp_path / "out.wav").exists()


def test_refusal_leaves_the_file_that_is_there(
    client: Client, faulty: FaultyServer, tmp_path: Path
) -> None:
    target = tmp_path / "out.wav"
    target.write_bytes(b"before")
    faulty.script = [problem(409, "job_not_finished")]
    with pytest.raises(ConflictError):
        client.jobs.download(JOB_ID, target)
    assert target.read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["out.wav"]


def test_folder_is_no_target(client: Client, faulty: FaultyServer, tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        client.jobs.download(JOB_ID, tmp_path)
    assert faulty.requests == []


def test_bytes_are_counted_against_the_whole(
    client: Client, faulty: FaultyServer, tmp_path: Path
) -> None:
    counts: list[tuple[int, int | None]] = []
    faulty.script = [whole(cut=1000), rest(1000)]
    client.jobs.download(
        JOB_ID, tmp_path / "out.wav", lambda size, total: counts.append((size, total))
    )
    assert counts[-1] == (len(SOUND), len(SOUND))
    assert all(total == len(SOUND) for _, total in counts)
