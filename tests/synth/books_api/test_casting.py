"""Casting over REST: what is refused, what the plan tells, and who then speaks in the job."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from rest_framework.test import APIClient

from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.books.book import (
    Block,
    BlockKind,
    Book,
    Document,
    Metadata,
    TocEntry,
    book_to_json,
    count_chars,
)
from synth.models import BookSource, RenderJob, Segment
from synth.text.pauses import DEFAULT_PAUSES
from tests.factories import make_voice
from tests.synth.books_api.shelf import path_of, refusal_of, speak_all, store_book

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("voices")]
BOOKS = "/api/v1/books"


def block(text: str, kind: BlockKind = BlockKind.PARAGRAPH, **fields: Any) -> Block:
    return Block(kind, text, count_chars(text), **fields)


PROSE = (
    block("“Come here at once,” said Ann to the old man."),
    block("He went to the gate and waited for a long time."),
    block("Bonjour à tous mes amis de Paris.", language="fr"),
    block("I came back alone.", BlockKind.SPEECH, speaker="BEN"),
)


def store(owner: User, blocks: Sequence[Block] = PROSE, **fields: Any) -> BookSource:
    """Return a planned book of one chapter with these blocks."""
    heading = block("The Gate", BlockKind.HEADING, level=1)
    total = sum(one.source_chars for one in (heading, *blocks))
    document = Document("a.xhtml", (heading, *blocks), total, role="chapter", language="en")
    toc = (TocEntry("The Gate", "a.xhtml"),)
    metadata = Metadata("A Gate", authors=("A. Porter", "B. Porter"), language="en", date="1899-05")
    content = json.dumps(book_to_json(Book(metadata, (document,), toc))).encode()
    key = default_storage.save("books/test/cast.json", ContentFile(content))
    return store_book(owner, book_key=key, **fields)


def change(api: APIClient, book: BookSource, **fields: Any) -> Any:
    return api.patch(path_of(book, "/plan"), fields, format="json")


SPEAKER = "casting.dialogue_voice"
CAST = {
    "dialogue": "detect",
    "dialogue_voice": "Bob",
    "characters": {"Ben": "Cy"},
    "languages": {"fr": "Bob"},
}


def spoken(job: RenderJob) -> list[tuple[str, str]]:
    """Return the roles and texts of a job's segments."""
    roles = dict(job.voices.values_list("speaker", "role"))
    rows = job.segments.order_by("chapter__index", "index").values_list("speaker", "text")
    return [(roles[speaker], text) for speaker, text in rows]


def test_each_role_speaks_its_passages_and_the_proof_balances(
    api: APIClient, operator: User
) -> None:
    book = store(operator)
    assert change(api, book, casting=CAST).status_code == 200

    answer = api.post(path_of(book, "/start"))

    assert answer.status_code == 202, answer.json()
    job = RenderJob.objects.get()
    assert spoken(job) == [
        ("narrator", "The Gate"),
        ("dialogue", "“Come here at once,”"),
        ("narrator", "said Ann to the old man."),
        ("narrator", "He went to the gate and waited for a long time."),
        ("fr", "Bonjour à tous mes amis de Paris."),
        ("Ben", "I came back alone."),
    ]
    body = [(one["role"], one["name"]) for one in answer.json()["voices"]]
    assert body == [("narrator", "Ada"), ("dialogue", "Bob"), ("fr", "Bob"), ("Ben", "Cy")]
    shown = api.get(f"/api/v1/jobs/{job.pk}").json()["voices"]
    assert [one["role"] for one in shown] == ["narrator", "dialogue", "fr", "Ben"]
    speak_all(job)
    assert proof_of(BookSource.objects.get())["is_complete"]


def test_dialogue_that_is_found_leaves_the_narrators_other_takes_as_they_are(
    operator: User,
) -> None:
    plain = start_book(store(operator))
    cast = start_book(store(operator, casting=CAST))

    seeds = dict(plain.segments.values_list("spoken_text", "seed"))
    narrated = cast.segments.filter(speaker=0)
    kept = [one for one in narrated if seeds.get(one.spoken_text) == one.seed]
    assert {one.spoken_text for one in kept} >= {"The Gate", PROSE[1].text}
    usual = DEFAULT_PAUSES
    pauses = list(cast.segments.order_by("index").values_list("pause_after_ms", flat=True))
    assert pauses == [usual.heading, usual.speaker, *[usual.paragraph] * 3, 0]


def test_plan_tells_who_could_speak_and_what_is_expected(api: APIClient, operator: User) -> None:
    book = store(operator)

    before = api.get(path_of(book, "/plan")).json()
    after = change(api, book, casting=CAST, plan_number=before["plan_number"]).json()
    late = change(api, book, casting=None, plan_number=1)

    assert (before["casting"], before["dialogue"], before["expected_finish"]) == ({}, None, None)
    assert [one["name"] for one in before["characters"]] == ["BEN"]
    assert any("language fr" in one for one in before["warnings"])
    assert before["expected_seconds"] == pytest.approx(before["totals"]["seconds"])
    assert after["casting"] == CAST
    assert after["characters"][0]["voice"] == "Cy"
    assert {one["language"]: one["voice"] for one in after["languages"]} == {"en": "", "fr": "Bob"}
    assert 0 < after["dialogue"]["share"] < 0.5
    assert after["plan_number"] == before["plan_number"] + 1
    assert (late.status_code, late.json()["code"]) == (409, "plan_changed")
    assert BookSource.objects.get().casting == CAST
    assert change(api, book, casting=None).json()["casting"] == {}


@pytest.mark.parametrize(
    ("casting", "code", "attr"),
    [
        ([], "invalid", "casting"),
        ({"dialog": "detect"}, "unknown_field", "casting.dialog"),
        ({"dialogue": "find"}, "invalid_choice", "casting.dialogue"),
        ({"dialogue": True}, "invalid_choice", "casting.dialogue"),
        ({"dialogue": "detect"}, "required", SPEAKER),
        ({"dialogue_voice": "Bob"}, "casting_incomplete", SPEAKER),
        ({"dialogue": "off", "dialogue_voice": "Bob"}, "casting_incomplete", SPEAKER),
        ({"dialogue": "detect", "dialogue_voice": 7}, "invalid", SPEAKER),
        ({"dialogue": "detect", "dialogue_voice": " "}, "blank", SPEAKER),
        ({"characters": {"BEN": "Nobody"}}, "voice_not_found", "casting.characters.BEN"),
        ({"characters": {"BEN": "Bob", "Ben.": "Cy"}}, "name_twice", "casting.characters.Ben."),
        ({"characters": {"12": "Bob"}}, "name_invalid", "casting.characters.12"),
        ({"characters": {"": "Bob"}}, "name_invalid", "casting.characters."),
        ({"characters": {"a|b": "Bob"}}, "name_invalid", "casting.characters.a|b"),
        ({"characters": {"Zoe": "Bob"}}, "character_unknown", "casting.characters.Zoe"),
        ({"characters": {f"n{n}": "Bob" for n in range(201)}}, "too_many", "casting.characters"),
        ({"characters": ["BEN"]}, "invalid", "casting.characters"),
        ({"languages": {"francais!": "Bob"}}, "language_invalid", "casting.languages.francais!"),
        ({"languages": {"": "Bob"}}, "language_invalid", "casting.languages."),
        ({"languages": {"fr": "Bob", "FR": "Cy"}}, "name_twice", "casting.languages.FR"),
        ({"languages": {"fr": "N\0"}}, "null_characters_not_allowed", "casting.languages.fr"),
        ({"languages": {"fr": None}}, "null", "casting.languages.fr"),
    ],
    ids=str,
)
def test_casting_that_says_nothing_clear_is_refused_and_changes_nothing(
    api: APIClient, operator: User, casting: Any, code: str, attr: str
) -> None:
    book = store(operator)

    answer = change(api, book, casting=casting)

    body = answer.json()
    assert answer.status_code in (400, 404), body
    found = [(one["code"], one["attr"]) for one in body.get("errors", [])]
    assert (code, attr) in [*found, (body["code"], body.get("attr"))], body
    assert BookSource.objects.get().casting == {}


def test_refused_voice_names_its_role(api: APIClient, operator: User) -> None:
    book = store(operator)
    for casting, words in (
        ({"characters": {"Ben": "Nobody"}}, "'Ben'"),
        ({"languages": {"fr": "Nobody"}}, "language fr"),
    ):
        assert words in change(api, book, casting=casting).json()["detail"], words


def test_casting_of_an_upload_is_checked_and_kept(api: APIClient) -> None:
    def send(casting: str) -> Any:
        form = {"file": SimpleUploadedFile("b.txt", b"Words."), "voice": "Ada", "casting": casting}
        return api.post(BOOKS, form, format="multipart")

    taken = send(json.dumps(CAST))
    refused = [send(one) for one in ('{"characters": {"X": "Nobody"}}', "{", "[1]", "null")]

    assert taken.status_code == 202, taken.json()
    assert taken.json()["casting"] == CAST
    assert [one.status_code for one in refused] == [404, 400, 400, 400]
    assert BookSource.objects.count() == 1


@pytest.mark.parametrize(
    ("casting", "code", "attr"),
    [
        ({"languages": {"fr": "Slow"}}, "voice_not_ready", "casting.languages.fr"),
        ({"characters": {"BEN": "Gone"}}, "voice_not_found", "casting.characters.BEN"),
        ({"characters": {"Zoe": "Bob"}}, "character_unknown", "casting.characters.Zoe"),
    ],
    ids=str,
)
def test_voices_that_are_gone_or_not_ready_stop_the_start_by_their_role(
    operator: User, casting: dict[str, Any], code: str, attr: str
) -> None:
    make_voice("Slow", ready=False, shared=True)

    error = refusal_of(store(operator, casting=casting))

    assert (error.code, error.attr) == (code, attr)
    assert not RenderJob.objects.exists()


def test_tags_name_characters_and_numbers(operator: User) -> None:
    blocks = (
        block("<|speaker:Ann|>I was here before you came."),
        block("<|speaker:1|>And I was not, as you know."),
        block("<|speaker:0|>So they said."),
    )
    options = {"voices": {"0": "Ada", "1": "Bob"}, "format": "wav", "priority": "bulk", "seed": 0}
    book = store(operator, blocks, options=options, casting={"characters": {"ann": "Cy"}})

    job = start_book(book)

    roles = [(role, text) for role, text in spoken(job)[1:]]
    assert roles == [
        ("ann", "I was here before you came."),
        ("", "And I was not, as you know."),
        ("narrator", "So they said."),
    ]


def test_tag_without_a_voice_and_chapter_of_tags_alone_stop_the_start(operator: User) -> None:
    for tag in ("Ann", "7"):
        text = f"<|speaker:{tag}|>I was here before you came."
        error = refusal_of(store(operator, (block(text),)))
        assert error.code == "speaker_unknown", tag
        assert tag in str(error)
    assert refusal_of(store_book(operator, [("", "<|speaker:0|>")])).code == "chapter_empty"


def test_rate_and_finish_are_those_that_were_measured(api: APIClient, operator: User) -> None:
    books = [start_book(store(operator)) for _ in range(2)]
    now = timezone.now()
    for book in books:
        speak_all(book, seconds=20.0)
        book.started_at = now - dt.timedelta(seconds=20)
        book.save()
    segments = list(Segment.objects.filter(job__in=books).order_by("pk"))
    chars = sum(len(one.spoken_text) for one in segments)
    spoken = 0
    for segment in segments:  # at a steady pace, for only that says something
        spoken += len(segment.spoken_text)
        at = now - dt.timedelta(seconds=20 * (1 - spoken / chars))
        Segment.objects.filter(pk=segment.pk).update(finished_at=at)

    plan = api.get(path_of(store(operator), "/plan")).json()

    assert plan["is_rate_measured"]
    rate = chars / (20.0 * len(segments))
    assert plan["chars_per_second"] == pytest.approx(rate, abs=0.01)
    assert plan["expected_seconds"] == pytest.approx(plan["totals"]["characters"] / rate, rel=0.01)
    assert plan["expected_render_seconds"] > 0
    finish = dt.datetime.fromisoformat(plan["expected_finish"])
    assert finish > now
