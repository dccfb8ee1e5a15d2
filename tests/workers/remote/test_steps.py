"""The steps of remote workers: who is let in, whose claims they touch, and what garbage does."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec
import numpy as np
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from synth.accounts.access import ScopeError, create_key
from synth.contract import EngineClass, FinishReason
from synth.models import ApiKey, AuditEntry, LiveChunk, Segment, WorkerStatus
from tests.factories import CODEC_FINGERPRINT, make_job, make_user, stored
from workers.remote import messages as m
from workers.remote.steps import CALLS
from workers.rendering.codes import pack_codes

pytestmark = pytest.mark.django_db
ENGINE = m.EngineNamed(
    CODEC_FINGERPRINT, EngineClass("m", 1, "float32", "plain", True, "d", "float32", "plain")
)


@pytest.fixture
def operator() -> User:
    return make_user("operator", is_staff=True)


def key_of(user: User, *scopes: str) -> str:
    return create_key(user, "home", scopes=list(scopes) or ["worker"])[1]


def send(
    key: str, step: str, body: Any = b"\x80", *, name: str = "gpu", protocol: str = str(m.PROTOCOL)
) -> Any:
    """Send a step as it stands; return the answer."""
    content = m.write(body) if isinstance(body, m.Part) else body
    headers = {"X-Worker-Protocol": protocol, "X-Worker-Name": name}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return Client(raise_request_exception=False).post(
        f"{m.ROOT}/{step}", content, content_type=m.MEDIA_TYPE, headers=headers
    )


def taken(key: str, step: str, body: m.Part, answer: type[Any], **how: Any) -> Any:
    found = send(key, step, body, **how)
    assert found.status_code == 200, found.content
    return m.read(answer, found.content)


def test_other_keys_and_people_without_one_are_not_let_in(operator: User, client: Client) -> None:
    root = make_user("root", is_superuser=True, is_staff=True)
    other = key_of(root, "read", "voices", "jobs", "admin")
    demoted = key_of(operator)
    User.objects.filter(pk=operator.pk).update(is_staff=False)

    assert send(other, "begin").json()["code"] == "scope_missing"
    assert [send(key, "begin").status_code for key in (other, "", "tts_x", demoted)] == [
        403, 401, 401, 403,
    ]  # fmt: skip
    client.force_login(root)
    assert client.post(f"{m.ROOT}/begin").status_code == 401


@pytest.mark.parametrize("over", ["expires_at", "revoked_at"])
def test_key_that_is_over_takes_no_step(operator: User, over: str) -> None:
    make_job(segments=1)
    key = key_of(operator)
    ApiKey.objects.update(**{over: timezone.now()})

    answers = {step: send(key, step) for step in CALLS}

    codes = {(answer.status_code, answer.json()["code"]) for answer in answers.values()}
    assert codes == {(401, {"expires_at": "key_expired", "revoked_at": "key_revoked"}[over])}
    assert not WorkerStatus.objects.exists()


@pytest.mark.parametrize("scopes", [["worker", "read"], ["worker"]])
def test_scope_is_alone_and_for_staff(scopes: list[str]) -> None:
    user = make_user("ada", is_staff="read" in scopes)
    with pytest.raises(ScopeError, match="nothing else" if "read" in scopes else "staff"):
        create_key(user, "k", scopes=scopes)
    assert not ApiKey.objects.exists()


def test_worker_of_another_version_is_told_both(operator: User) -> None:
    answer = send(key_of(operator), "begin", protocol="7")

    assert (answer.status_code, answer.json()["code"]) == (409, "worker_version_unfit")
    said = answer.json()["detail"]
    assert "version 7" in said and f"version {m.PROTOCOL}" in said


def claimed(key: str, name: str = "gpu") -> list[m.HeldRow]:
    """Return the claims that a worker gets when it asks for two segments."""
    token = uuid.uuid4()
    room = m.SegmentRoom(CODEC_FINGERPRINT, 2, 2, 4, None, [], 0, 0, token)
    rows = taken(key, "claim-segments", room, m.SegmentsClaimed, name=name).segments
    again = taken(key, "claim-segments", room, m.SegmentsClaimed, name=name).segments
    assert [row.pk for row in rows] == [row.pk for row in again], "a repeated claim took others"
    return [m.HeldRow("segment", row.pk, token) for row in rows]


@pytest.mark.parametrize("thief", ["another key", "another name"])
def test_claims_are_renewed_and_settled_by_their_own_worker_alone(
    operator: User, thief: str
) -> None:
    make_job(segments=4)
    own = key_of(operator)
    other = key_of(operator) if thief == "another key" else own
    name = "gpu" if thief == "another key" else "gpu-2"
    rows = claimed(own)
    before = list(Segment.objects.order_by("pk").values("status", "claim_token", "lease_until"))

    lost = taken(other, "renew", m.HeldRows(rows), m.Places, name=name)
    taken(other, "hand-back", m.HeldRows(rows), m.Nothing, name=name)
    failed = m.Failed(rows[0], m.Failure("coded", "prompt_too_long", "No."))
    taken(other, "fail", failed, m.Nothing, name=name)

    assert lost.places == [0, 1]
    after = list(Segment.objects.order_by("pk").values("status", "claim_token", "lease_until"))
    assert after == before
    assert taken(own, "renew", m.HeldRows(rows), m.Places).places == []
    taken(own, "fail", failed, m.Nothing)
    taken(own, "fail", failed, m.Nothing)
    failed_row = Segment.objects.get(pk=int(str(rows[0].pk)))
    assert stored(failed_row, "status", "error_code", "error_message") == (
        "failed", "prompt_too_long", "No.",
    )  # fmt: skip


def test_worker_that_begins_anew_frees_what_it_held_before(operator: User) -> None:
    make_job(segments=2)
    key = key_of(operator)
    claimed(key)

    taken(key, "begin", m.Begin("a", ""), m.Welcome)

    assert set(Segment.objects.values_list("status", "losses")) == {("queued", 1)}


def test_audit_log_has_the_beginning_of_a_worker_and_no_other_step(operator: User) -> None:
    key = key_of(operator)
    taken(key, "begin", m.Begin("a", ""), m.Welcome)
    taken(key, "losses", m.Nothing(), m.LossCounts)

    assert [entry.route for entry in AuditEntry.objects.all()] == ["worker-call"]


def test_two_homes_with_one_name_are_two_workers(operator: User) -> None:
    for _ in range(2):
        said = m.Status({"state": "ready", "device": "cpu"}, True)
        taken(key_of(operator), "status", said, m.Nothing)

    assert WorkerStatus.objects.count() == 2
    assert all(row.name.endswith("/gpu") for row in WorkerStatus.objects.all())


def test_second_living_worker_of_a_key_and_name_begins_nothing_and_the_displaced_one_is_told(
    operator: User,
) -> None:
    make_job(segments=2)
    key = key_of(operator)
    ready = m.Status({"state": "ready", "run": "a"}, True)
    taken(key, "status", ready, m.Nothing)
    rows = claimed(key)

    twin = taken(key, "begin", m.Begin("b", ""), m.Welcome)
    assert twin.namesake
    assert taken(key, "renew", m.HeldRows(rows), m.Places).places == []
    assert taken(key, "begin", m.Begin("a", ""), m.Welcome, name="other").namesake == ""

    # A call of the first one that was long on its way frees nothing of its own.
    assert taken(key, "begin", m.Begin("a", ""), m.Welcome).namesake == ""
    assert taken(key, "renew", m.HeldRows(rows), m.Places).places == []

    # The next run of the same home knows that the one before has ended.
    assert taken(key, "begin", m.Begin("c", "a"), m.Welcome).namesake == ""
    assert taken(key, "renew", m.HeldRows(rows), m.Places).places == [0, 1]
    taken(key, "status", m.Status({"state": "ready", "run": "c"}, True), m.Nothing)
    late = send(key, "status", m.Status({"state": "ready", "run": "a"}, False))
    assert (late.status_code, late.json()["code"]) == (409, "worker_name_taken")
    assert "has begun since" in late.json()["detail"]


def test_piece_of_a_segment_that_is_not_the_workers_is_not_kept(operator: User) -> None:
    job = make_job(segments=1)
    segment = job.segments.get()
    piece = m.PieceSent(job.pk, segment.pk, uuid.uuid4(), 0, b"\0" * 400, 44_100, False)

    broken = taken(key_of(operator), "pieces", m.PiecesSent([piece]), m.Broken)

    assert broken.attempts == [piece.attempt]
    assert not LiveChunk.objects.exists()


CODES = np.zeros((10, 4), np.int16)
GOOD = m.Rendered(pack_codes(CODES), b"\0" * 64, 44_100, FinishReason.END, [0.0] * 4)
UNFIT: dict[str, Any] = {
    "codes": b"no codes",
    "audio": b"\0" * 63,
    "seconds": [0.0, float("nan"), 0.0, 0.0],
}


@pytest.mark.parametrize("field", UNFIT)
def test_rendering_that_is_none_is_refused(field: str) -> None:
    sent = msgspec.structs.replace(GOOD, **{field: UNFIT[field]})

    with pytest.raises(m.BadMessageError):
        m.audio_of(sent, max_frames=4)
    with pytest.raises(m.BadMessageError):
        m.audio_of(GOOD, max_frames=3)
    assert m.audio_of(GOOD, max_frames=4).audio.shape == (16,)


strange = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
    | st.binary() | st.uuids().map(str),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.parametrize("step", CALLS)
def test_garbage_is_refused_and_never_a_server_error(operator: User, step: str) -> None:
    key = key_of(operator)
    fields = [field.encode_name for field in msgspec.structs.fields(CALLS[step][0])]

    @settings(
        max_examples=40, deadline=None, database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )  # fmt: skip
    @given(st.binary(max_size=60) | strange | st.fixed_dictionaries(dict.fromkeys(fields, strange)))
    def check(body: Any) -> None:
        content = body if isinstance(body, bytes) else msgspec.msgpack.encode(body)
        assert send(key, step, content).status_code in (200, 400)

    check()


def test_depth_and_size_are_bounded(operator: User) -> None:
    key = key_of(operator)
    deep = b"\x91" * 100_000 + b"\x90"

    assert send(key, "status", deep).status_code == 400
    assert send(key, "settle", b"\0" * ((64 << 20) + 1)).status_code == 413
    assert send(key, "nothing-such").status_code == 404
    assert send(key, "begin", name="a/b").status_code == 400
