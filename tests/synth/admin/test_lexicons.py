"""Lexicons in the admin: entries, files, the preview, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from synth.models import Lexicon
from tests.factories import make_lexicon, make_staff, make_user
from tests.synth.admin.pages import delete, page_of, read

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

LIST = reverse("admin:synth_lexicon_changelist")
ADD = reverse("admin:synth_lexicon_add")


@pytest.fixture
def operator(job_services: None) -> User:
    """One of the staff, who may edit lexicons."""
    return make_staff(username="editor", about="lexicon")


def fields(*entries: dict[str, Any], initial: int = 0, **changed: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": "House", "scope": "global", "voice": "", "language": "", "enabled": "on",
        "entries-TOTAL_FORMS": len(entries), "entries-INITIAL_FORMS": initial,
        "entries-MIN_NUM_FORMS": 0, "entries-MAX_NUM_FORMS": 1000,
    }  # fmt: skip
    for number, entry in enumerate(entries):
        whole = {"index": "", "find": "", "say": "", "kind": "word", "language": ""} | entry
        whole.setdefault("enabled", "on")
        values |= {f"entries-{number}-{name}": value for name, value in whole.items()}
    return values | changed


def test_lexicon_with_entries_is_made_and_changed(browser: Client, operator: User) -> None:
    answer = browser.post(ADD, fields({"find": "data", "say": "dayta"}, {"find": "b", "say": "c"}))

    assert answer.status_code == 302, answer.content.decode()
    lexicon = Lexicon.objects.get()
    assert (lexicon.owner, lexicon.name, lexicon.scope) == (operator, "House", "global")
    first, second = lexicon.entries.all()
    assert [(e.find, e.index) for e in (first, second)] == [("data", 0), ("b", 1)]
    changed = fields(
        {"id": first.pk, "lexicon": lexicon.pk, "index": 0, "find": "data", "say": "dahta"},
        {"id": second.pk, "lexicon": lexicon.pk, "index": 1, "find": "b", "say": "c",
         "DELETE": "on"},
        initial=2, language="EN-us",
    )  # fmt: skip

    assert browser.post(page_of(lexicon), changed).status_code == 302
    lexicon.refresh_from_db()
    assert lexicon.language == "en-US"
    assert [(e.find, e.say) for e in lexicon.entries.all()] == [("data", "dahta")]


def test_what_cannot_be_used_is_said_beside_its_field(browser: Client) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"entries-0-find": "(a+)+$", "entries-0-kind": "regex"}, "in too many ways"),
        ({"entries-0-find": "(", "entries-0-kind": "regex"}, "at character 2"),
        ({"entries-0-find": "a*", "entries-0-kind": "regex"}, "matches an empty text"),
        ({"entries-0-language": "not a tag"}, "language tag"),
        ({"language": "not a tag"}, "language tag"),
        ({"scope": "voice"}, "Choose a voice"),
    ]
    for changed, sentence in refused:
        answer = browser.post(ADD, fields({"find": "a", "say": "b"}, **changed))
        assert answer.status_code == 200, changed
        assert sentence in answer.content.decode(), changed
    assert not Lexicon.objects.exists()


def test_entries_over_the_limit_and_a_name_that_is_taken_are_refused(
    browser: Client, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.lexicons.store.MAX_LEXICON_ENTRIES", 1)
    answer = browser.post(ADD, fields({"find": "a"}, {"find": "b"}), follow=True)
    assert "1 are allowed" in answer.content.decode()
    assert not Lexicon.objects.exists()
    make_lexicon(operator, name="house")
    assert "Another lexicon has this name" in browser.post(ADD, fields()).content.decode()


def test_users_see_their_own_and_everybodys_and_change_and_delete_their_own(
    browser: Client, operator: User
) -> None:
    own, all_of_us = make_lexicon(operator, name="Own"), make_lexicon(None, name="Everyone")
    secret = make_lexicon(make_user(), name="Secret")

    page = read(browser, LIST)

    assert [name in page for name in ("Own", "Everyone", "Secret")] == [True, True, False]
    statuses = [browser.get(page_of(one)).status_code for one in (own, all_of_us, secret)]
    assert statuses == [200, 200, 302]
    assert browser.post(page_of(all_of_us), fields(name="Mine now")).status_code == 403
    for name, more in (("preview", ()), ("export", ("csv",))):
        assert browser.get(page_of(secret, name, *more)).status_code == 404
    assert browser.post(page_of(secret, "import"), {}).status_code == 404
    assert browser.post(page_of(all_of_us, "import"), {}).status_code == 403

    chosen = {"action": "delete_selected", "_selected_action": [own.pk, all_of_us.pk]}
    assert browser.post(LIST, chosen | {"post": "yes"}).status_code == 403
    delete(browser, own)
    assert set(Lexicon.objects.all()) == {all_of_us, secret}


def test_preview_marks_what_would_change(browser: Client, operator: User) -> None:
    path = page_of(make_lexicon(operator, ("data", "<b>dayta</b>")), "preview")

    text = "All of the data is here.\n\nNothing else is there."
    page = browser.post(path, {"text": text}).content.decode()

    assert "1 of 2 segments would change" in page
    assert '<mark title="&lt;b&gt;dayta&lt;/b&gt;">data</mark>' in page
    assert "<b>dayta" not in page
    assert "nothing to speak" in browser.post(path, {"text": "..."}).content.decode()


def test_file_is_imported_and_exported_and_bad_lines_change_nothing(
    browser: Client, operator: User
) -> None:
    lexicon = make_lexicon(operator, ("data", "dayta"))

    def load(content: bytes, mode: str) -> str:
        sent = {"file": SimpleUploadedFile("a.csv", content), "mode": mode}
        return browser.post(page_of(lexicon, "import"), sent, follow=True).content.decode()

    assert "Imported 1 entry." in load(b"find,say\nGIF,jif\n", "append")
    for form, shown in (("csv", "GIF,jif,word"), ("pls", "<alias>jif</alias>")):
        assert shown in read(browser, page_of(lexicon, "export", form))
    assert browser.get(page_of(lexicon, "export", "exe")).status_code == 404

    page = load(b"find,say,kind\na,b,word\n(,x,regex\n", "replace")
    assert "Line 3, find: The pattern is not valid" in page
    assert [entry.find for entry in lexicon.entries.all()] == ["data", "GIF"]
