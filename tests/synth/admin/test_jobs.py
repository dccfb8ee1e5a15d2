"""Jobs in the admin: a text is queued, a job is seen, cancelled, retried, deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from synth.models import RenderJob
from tests.factories import (
    logged_in,
    make_ended_job,
    make_job,
    make_lexicon,
    make_staff,
    make_user,
    make_version,
    make_voice,
    make_worker,
)
from tests.synth.admin.pages import act, delete, page_of, read
from tests.voices.clips import clip_bytes
from voices.models import Voice

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

LIST = reverse("admin:synth_renderjob_changelist")
ADD = reverse("admin:synth_renderjob_add")


def fields(voice: Voice | None = None, **changed: Any) -> dict[str, Any]:
    values = {
        "text": "The first sentence of it. The second sentence of it.",
        "voice": str((voice or make_voice()).pk),
        "format": "mp3",
        "priority": "10",
        "seed": "7",
    }
    return values | dict.fromkeys(("temperature", "top_p", "top_k"), "") | changed


def submit(browser: Client, sent: dict[str, Any]) -> RenderJob:
    """Send the form and return the job that it made."""
    response = browser.post(ADD, sent)
    assert response.status_code == 302, response.content.decode()
    return RenderJob.objects.get()


def clip(content: bytes | None = None, name: str = "clip.wav") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, clip_bytes(seconds=3.5) if content is None else content)


def test_text_is_queued_by_the_form_as_by_the_api(
    browser: Client, operator: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    voice = make_voice()

    job = submit(browser, fields(voice, top_k="5"))

    assert (job.owner, job.format, job.priority, job.seed) == (operator, "mp3", 10, 7)
    assert (job.temperature, job.top_k) == (0.7, 5)
    assert (job.sample_rate, job.bit_rate, job.loudness, job.speed) == (None, None, None, 1.0)
    assert (job.deadline_at, job.retention_seconds, job.normalise) == (None, None, False)
    assert job.segments_total == job.segments.count() == 2
    assert job.voices.get().version.voice == voice
    assert len(sent_tasks("render_segments")) == 1


def test_options_of_the_form_are_those_of_the_api(browser: Client, operator: User) -> None:
    ada, bob = make_voice("Ada"), make_voice("Bob")
    make_lexicon(operator, name="House", scope="named")
    before = timezone.now()
    options = {
        "text": "Hello, this is me. <|speaker:12|>And this is me as well.",
        "speakers": "\r\n 12 = bob \r\n3: Ada\r\n",
        "language": "pt-br",
        "normalise": "on",
        "sample_rate": "24000",
        "bit_rate": "64000",
        "loudness": "-16.5",
        "speed": "1.25",
        "deadline_minutes": "30",
        "retention_seconds": "0",
        "pauses": "sentence = 400\r\n\r\n paragraph: 900 ms\r\n",
        "lexicons": " House \r\n",
        "lexicon": "first = second\r\n[regex, case] a(b)=c = \\1\r\n[laugh] = ha\r\n"
        "[language de] of = von",
        "max_retakes": "0",
        "webhook": "https://hooks.example/in",
    }

    job = submit(browser, fields(ada, **options))

    assert (job.language, job.normalise, job.speed) == ("pt-BR", True, 1.25)
    assert (job.sample_rate, job.bit_rate, job.loudness) == (24000, 64000, -16.5)
    assert (job.retention_seconds, job.max_retakes) == (0, 0)
    assert job.deadline_at is not None
    assert 1800 <= (job.deadline_at - before).total_seconds() < 1900
    pinned = {row.speaker: row.version.voice for row in job.voices.select_related("version__voice")}
    assert pinned == {0: ada, 3: ada, 12: bob}
    assert job.pauses == {"sentence": 400, "paragraph": 900}
    assert (job.lexicons, job.webhook_url) == (["House"], "https://hooks.example/in")
    names = ("find", "say", "kind", "case_sensitive", "language")
    assert [tuple(entry[name] for name in names) for entry in job.lexicon] == [
        ("first", "second", "word", False, ""),
        ("a(b)=c", "\\1", "regex", True, ""),
        ("[laugh]", "ha", "word", False, ""),
        ("of", "von", "word", False, "de"),
    ]
    shown = read(browser, page_of(job))
    for said in ("sentence 400 ms", "lexicons House", "lexicon entries 4", "further takes 0"):
        assert said in shown


def test_form_asks_to_listen_as_the_api_does(browser: Client) -> None:
    assert submit(browser, fields(live="on")).live_requested_at is not None


def test_clip_takes_the_place_of_a_voice(browser: Client) -> None:
    options = {"reference_audio": clip(), "reference_text": "What is said.", "voice": ""}
    job = submit(browser, fields(make_voice("Ada"), speakers="1 = Ada") | options)
    pinned = {row.speaker: row.version for row in job.voices.all()}
    assert pinned[0].voice is None
    assert pinned[0].clips.get().transcript == "What is said."
    assert str(pinned[1].voice) == "Ada"


@pytest.mark.parametrize(
    ("content", "changed", "sentence"),
    [
        (None, {}, "either a voice or a reference"),
        (b"no audio at all", {"voice": ""}, "not an audio file"),
    ],
    ids=["beside a voice", "no clip"],
)
def test_clip_that_cannot_be_used_is_refused(
    browser: Client, content: bytes | None, changed: dict[str, str], sentence: str
) -> None:
    sent = fields(reference_audio=clip(content), reference_text="Words.") | changed
    assert sentence in browser.post(ADD, sent).content.decode()
    assert not RenderJob.objects.exists()


def clip_rows(*rows: tuple[str, bytes | None, str]) -> dict[str, Any]:
    """Return what a browser sends of rows of number, clip, words; a row without a file is empty."""
    sent: dict[str, Any] = {}
    for index, (number, content, text) in enumerate(rows):
        sent |= {f"speaker_clips-{index}-number": number, f"speaker_clips-{index}-text": text}
        if content is not None:
            sent[f"speaker_clips-{index}-audio"] = clip(content, f"clip{index}.wav")
    return sent


def test_every_speaker_may_have_a_clip_of_its_own_or_a_voice(browser: Client) -> None:
    rows = clip_rows(
        ("4", clip_bytes(seconds=4), "What the fourth says."),
        ("", None, "  "),
        ("2", clip_bytes(seconds=4.5), "What the second says."),
    )
    options = {
        "text": "One.<|speaker:1|>Two.<|speaker:2|>Three.<|speaker:4|>Four.",
        "voice": "",
        "reference_audio": clip(),
        "reference_text": "What the first says.",
        "speakers": "1 = Ada",
    }

    job = submit(browser, fields(make_voice("Ada")) | options | rows)

    pinned = {row.speaker: row.version for row in job.voices.all()}
    said = {n: one.clips.get().transcript for n, one in pinned.items() if one.voice is None}
    assert said == {n: f"What the {name} says." for n, name in
                    ((0, "first"), (2, "second"), (4, "fourth"))}  # fmt: skip
    assert str(pinned[1].voice) == "Ada"


def test_job_without_speaker_0_needs_no_voice_for_it(browser: Client) -> None:
    sent = fields() | {"voice": ""} | clip_rows(("3", clip_bytes(), "A"))
    refused = browser.post(ADD, sent).content.decode()
    assert "belong to speaker 0, but this job has voices only for speaker" in refused

    rows = clip_rows(("3", clip_bytes(seconds=3.5), "Words."))
    job = submit(browser, fields() | {"voice": "", "text": "<|speaker:3|>Hello there."} | rows)
    assert job.voices.get().speaker == 3


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        ([("1", b"", "Words.")], "clip_empty"),
        ([("1", b"no audio at all", "Words.")], "clip_not_audio"),
        ([("1", clip_bytes(), "")], "transcript_required"),
        ([("1", clip_bytes(), "A" * 5001)], "transcript_too_long"),
        ([("1", clip_bytes(), "A\ufffd")], "transcript_not_text"),
        ([("1", None, "Words.")], "clip_required"),
        ([("", clip_bytes(), "Words.")], "speaker_invalid"),
        ([("0", clip_bytes(), "Words.")], "speaker_invalid"),
        ([("9999", clip_bytes(), "Words.")], "speaker_invalid"),
        ([("1", clip_bytes(), "Words."), ("1", clip_bytes(), "Others.")], "speaker_invalid"),
        ([("7", clip_bytes(), "Words.")], "voice_ambiguous"),
    ],
)
def test_bad_row_is_refused_as_by_the_api_and_its_words_stay(
    browser: Client, rows: list[tuple[str, bytes | None, str]], code: str
) -> None:
    make_voice("Bob")
    response = browser.post(ADD, fields(speakers="7 = Bob") | clip_rows(*rows))
    form = response.context["adminform"].form
    answer = form.errors.get_json_data()
    assert [error["code"] for field in answer.values() for error in field] == [code]
    assert set(answer) == {"speakers" if code == "voice_ambiguous" else "speaker_clips"}
    assert rows[-1][2] in response.content.decode()
    assert not RenderJob.objects.exists()


BAD = {
    "language": [("english", "language tag")],
    "sample_rate": [("44101", "valid choice")],
    "bit_rate": [("100000", "does not support 100000 bits"),
                 ("5", "greater than or equal to 6000")],
    "loudness": [("0", "less than or equal to -6")],
    "speed": [("5", "less than or equal to 4")],
    "deadline_minutes": [("0", "greater than or equal to 1")],
    "retention_seconds": [("5", "valid choice")],
    "speakers": [("Bob", "such as 1 = Bob"), ("0 = Bob", "such as 1 = Bob"),
                 ("1 = Bob\n1 = Ada", "such as 1 = Bob"),
                 ("1 = Nobody", "no voice with this id or name")],
    "pauses": [("sentence", "such as sentence = 400"),
               ("sentence = 400\nsentence = 500", "each pause once"),
               ("yawn = 400", "no such pause"), ("sentence = 10001", "up to 10000")],
    "lexicons": [("Nobody", "no lexicon with the id or name")],
    "lexicon": [("Nguyen", "such as Nguyen = Win"), (" = Win", "such as Nguyen = Win"),
                ("[regex] (a = b", "pattern"), ("[regex, word] a = b", "in brackets is unknown"),
                ("[language english] a = b", "language tag"), ("a\0 = b", "Null characters")],
    "max_retakes": [("9", "less than or equal to 8")],
    "history": [("3", "less than or equal to 2"), ("1", "at most 0")],
    "webhook": [("ftp://hooks.example/in", "http"), ("http://127.0.0.1/in", "public")],
    "reference_text": [("Words.", "Choose the clip")],
    "text": [("", "required"), ("...", "nothing to speak"), ("<|speaker:4|>Hello.", "speaker:4")],
    "voice": [("", "required"), ("7b6b1de4-6f2c-4a3c-9e0a-111111111111", "valid choice")],
    "format": [("ogg", "valid choice")],
    "seed": [("-1", "greater than or equal to 0")],
    "temperature": [("2", "less than 2"), ("nan", "Enter a number")],
    "top_p": [("0", "up to 1")],
    "top_k": [("65", "less than or equal to 64")],
}  # fmt: skip


@pytest.mark.parametrize("field", BAD)
def test_bad_field_is_named_and_what_was_typed_stays(browser: Client, field: str) -> None:
    sent = fields()
    for value, sentence in BAD[field]:
        response = browser.post(ADD, sent | {field: value})
        assert response.status_code == 200, value
        assert sentence in response.content.decode(), value
        assert "first sentence" in response.content.decode() or field == "text"
    assert not RenderJob.objects.exists()


def test_form_offers_ready_voices_alone_and_names_one_that_stops_being_ready(
    browser: Client,
) -> None:
    voice = make_voice("Ready One")
    make_voice("Slow One", ready=False)
    make_voice("Gone One", deleted_at=timezone.now())

    page = read(browser, ADD)
    make_version(voice, status="failed", error_message="Only silence.")

    assert [f"{name} One" in page for name in ("Ready", "Slow", "Gone")] == [True, False, False]
    assert "Only silence." in browser.post(ADD, fields(voice)).content.decode()
    assert not RenderJob.objects.exists()


def test_list_shows_state_progress_voice_and_a_player_for_what_is_done_at_a_constant_cost(
    browser: Client, operator: User, django_assert_max_num_queries: Any
) -> None:
    done = make_ended_job(operator, voice=make_voice("Ada"))
    make_job(version=make_version(), segments=4, segments_done=1, status="running")
    for _ in range(6):
        make_job(owner=operator)

    with django_assert_max_num_queries(12):
        page = read(browser, LIST)

    assert page.count("data-listen=") == 1
    assert "<audio" not in page  # one player for all rows, which the script has
    listen = f'data-listen="{reverse("job-audio", args=[done.pk])}"'
    for shown in (listen, 'value="0.250"', 'value="1.000"', "Ada", "own clip"):
        assert shown in page


def test_page_of_a_job_shows_segments_and_errors_and_a_download(
    browser: Client, operator: User
) -> None:
    job = make_ended_job(operator, status="partial", error_code="segments_failed")
    RenderJob.objects.update(error_message="1 of 2 segments has no audio.")
    job.segments.update(error_code="prompt_too_long", error_message="Too long.", attempts=3)
    page = read(browser, page_of(job))
    for shown in (
        "1 of 2 segments has no audio.",
        "prompt_too_long: Too long.",
        f'download="speech-{str(job.pk)[:8]}.wav"',
        "Sentence number 0.",
    ):
        assert shown in page


def test_page_of_a_long_job_is_paged_shows_no_markup_and_edits_nothing(
    browser: Client, operator: User
) -> None:
    job = make_job(owner=operator, segments=60, text="<script>alert(1)</script> said she.")
    first, second = read(browser, page_of(job)), read(browser, page_of(job), {"segments-page": 2})
    ends = ("Sentence number 49.", "Sentence number 50.")
    assert [[end in page for end in ends] for page in (first, second)] == [
        [True, False],
        [False, True],
    ]
    assert "<script>alert(1)" not in first + read(browser, LIST)
    assert browser.post(page_of(job), fields(text="Another text.")).status_code == 403
    job.refresh_from_db()
    assert job.text.endswith("said she.")


def test_chosen_jobs_are_cancelled_and_retried(browser: Client, operator: User) -> None:
    job, done = make_job(owner=operator), make_ended_job(operator)

    assert "1 job: cancelled." in act(browser, "cancel_chosen", job, done)
    job.refresh_from_db()
    assert job.status == "cancelled"
    page = act(browser, "retry_chosen", job, done)
    assert "1 job: queued again." in page
    assert "There is nothing to retry" in page
    job.refresh_from_db()
    assert job.status == "queued"


@pytest.mark.parametrize(
    ("status", "segment", "offered"),
    [
        ("queued", "queued", "cancel"),
        ("running", "claimed", "cancel"),
        ("succeeded", "done", None),
        ("partial", "failed", "retry"),
        ("failed", "failed", "retry"),
        ("voice gone", "failed", None),
        ("cancelled", "cancelled", "retry"),
    ],
)
def test_page_of_a_job_offers_what_can_be_done_and_nothing_else(
    browser: Client, operator: User, status: str, segment: str, offered: str | None
) -> None:
    job = make_job(owner=operator, status="failed" if status == "voice gone" else status)
    job.segments.update(status=segment)
    if status == "voice gone":
        Voice.objects.update(deleted_at=timezone.now())

    page = read(browser, page_of(job))

    buttons = {name for name in ("cancel", "retry") if f'data-action="{name}"' in page}
    assert buttons == ({offered} if offered else set())
    assert ">Cancel<" not in page  # beside "Cancel the job" nobody knows what it does
    if offered is not None:
        url = reverse(f"job-{offered}", args=[job.pk])
        assert f'data-url="{url}"' in page
        assert browser.post(url, {}, content_type="application/json").status_code in (200, 202)
        job.refresh_from_db()
        assert job.cancel_requested or job.status == "queued"


def test_deleted_job_takes_its_file_with_it(
    browser: Client, operator: User, stored_objects: Callable[[], list[str]]
) -> None:
    first, second = make_ended_job(operator), make_ended_job(operator)
    browser.post(page_of(first, "delete"), {"post": "yes"})
    delete(browser, second)
    assert not RenderJob.objects.exists()
    assert stored_objects() == []


def test_staff_without_the_permission_neither_cancels_nor_sees_others_jobs() -> None:
    staff = make_staff("view_renderjob", "view_voice")
    browser = logged_in(staff)
    own, other = make_job(owner=staff), make_job(owner=make_user())

    page = read(browser, LIST)

    assert (str(own.pk)[:8] in page, str(other.pk)[:8] in page) == (True, False)
    assert browser.get(page_of(other)).status_code == 302
    act(browser, "cancel_chosen", own)
    assert 'data-action="cancel"' not in read(browser, page_of(own))
    own.refresh_from_db()
    assert own.status == "queued"
    assert browser.get(ADD).status_code == 403


def test_workers_are_shown_and_not_edited(browser: Client) -> None:
    worker = make_worker(detail="warm")
    page = read(browser, reverse("admin:synth_workerstatus_changelist"))
    assert "gpu-1" in page and "warm" in page
    assert browser.get(page_of(worker)).status_code == 200
    assert browser.get(reverse("admin:synth_workerstatus_add")).status_code == 403


@pytest.mark.parametrize(
    ("done", "words"), [(1, "1 of 2 segments · estimating the time left"),
                        (2, "2 of 2 segments · making the file")],
)  # fmt: skip
def test_job_that_runs_says_what_is_done_now(
    browser: Client, operator: User, done: int, words: str
) -> None:
    job = make_job(owner=operator, segments=2, status="running", started_at=timezone.now())
    RenderJob.objects.filter(pk=job.pk).update(segments_done=done)
    assert words in re.sub(r"\s+", " ", read(browser, page_of(job)))
