"""A book is dropped, planned, started, watched, proved and fetched in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

from tests.browser import pages
from tests.browser.conftest import Site

LIST = "/admin/synth/booksource/"
BOOK = """---
title: The Small Book
author: Nobody
---

# The Garden

The old gate was open again.

It was raining.

* * *

The rain stopped.

# The River

Water ran under the bridge all night.

# The Return

She came back with the first snow.

# The Rest

Nobody spoke for a while.
"""
SECOND = BOOK.replace("The Small Book", "Its Sequel").replace("gate", "door")
_DROP_SEVERAL = """
const [target, files] = arguments;
const transfer = new DataTransfer();
for (const [name, content] of files) transfer.items.add(new File([content], name));
for (const kind of ["dragenter", "dragover", "drop"])
  target.dispatchEvent(
    new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer: transfer}));
"""
_DRAG_ROW = """
const [from, to] = arguments;
const dataTransfer = new DataTransfer();
const tell = (target, kind) =>
  target.dispatchEvent(new DragEvent(kind, {bubbles: true, cancelable: true, dataTransfer}));
tell(from.querySelector("[draggable]"), "dragstart");
tell(to, "dragover");
tell(to, "drop");
tell(from, "dragend");
"""
_FETCH = """
const [url, done] = arguments;
fetch(url).then(async (answer) => done([answer.status, (await answer.arrayBuffer()).byteLength]));
"""


@pytest.fixture(scope="module")
def voice(site: Site) -> str:
    site.make_voice("Narrator")
    site.make_voice("Guest")
    return "Narrator"


def upload(site: Site, text: str = BOOK, name: str = "small.md", **fields: str) -> str:
    """Upload a book over the API, wait until it is planned, and return its id."""
    answer = site.api.post("/books", data=fields, files={"file": (name, text.encode())})
    answer.raise_for_status()
    book: str = answer.json()["id"]
    site.wait_for(f"/books/{book}", "planned")
    return book


def render(site: Site, voice: str) -> str:
    book = upload(site, voice=voice, format="mp3")
    site.api.post(f"/books/{book}/start").raise_for_status()
    site.wait_for(f"/books/{book}", "succeeded")
    return book


def titles(site: Site, book: str) -> list[str]:
    chapters = site.api.get(f"/books/{book}/plan").json()["chapters"]
    body = [one for one in chapters if one["title"] != "Metadata"]  # the book's first lines
    return [one["title"] if one["included"] else f"({one['title']})" for one in body]


def open_plan(browser: webdriver.Chrome, site: Site, book: str) -> None:
    browser.get(f"{site.url}{LIST}{book}/plan/")
    pages.wait_for(browser, "[data-chapter]")


def row(browser: webdriver.Chrome, title: str) -> WebElement:
    def find(driver: webdriver.Chrome) -> WebElement | None:
        for one in driver.find_elements(By.CSS_SELECTOR, "[data-chapter]"):
            field = one.find_element(By.CSS_SELECTOR, '[data-key="title"]')
            if field.get_attribute("value") == title:
                return one
        return None

    return pages.patient(browser).until(find)  # type: ignore[return-value]


def control(browser: webdriver.Chrome, title: str, key: str) -> WebElement:
    return row(browser, title).find_element(By.CSS_SELECTOR, f'[data-key="{key}"]')


def said(browser: webdriver.Chrome, text: str) -> None:
    pages.wait_words(browser, "[data-state]", text)


def test_a_dropped_book_is_planned_started_watched_proved_and_fetched(
    admin: webdriver.Chrome, site: Site, voice: str, tmp_path: Path
) -> None:
    file = tmp_path / "small.md"
    file.write_text(BOOK, encoding="utf-8")
    admin.get(f"{site.url}{LIST}add/")
    pages.drop_file(admin, "[data-drop]", file, "text/markdown")
    Select(admin.find_element(By.NAME, "voice")).select_by_visible_text(voice)
    Select(admin.find_element(By.NAME, "format")).select_by_visible_text("mp3")
    assert "small.md" in pages.wait_for(admin, ".tts-upload").text
    pages.picture(admin, "book-new")
    admin.find_element(By.CSS_SELECTOR, "[data-book-upload] [type=submit]").click()

    pages.wait_text(admin, "[data-whole] [data-badge]", "planned")
    assert "The Small Book" in pages.text_of(admin, ".tts-book-title")
    admin.find_element(By.CSS_SELECTOR, '[data-action="start"]').click()
    pages.wait_text(admin, "[data-whole] [data-badge]", "succeeded")

    player = pages.wait_for(admin, "[data-whole-player]")
    assert pages.wait_for(admin, "canvas[data-peaks]")
    assert len(admin.find_elements(By.CSS_SELECTOR, "tr[data-chapter]")) == 4
    pages.picture(admin, "book")
    status, size = admin.execute_async_script(_FETCH, player.get_attribute("src"))
    assert status == 200 and size > 5_000
    book = admin.find_element(By.CSS_SELECTOR, "[data-whole]").get_attribute("data-book")
    admin.find_element(By.LINK_TEXT, "Proof").click()
    assert "complete" in pages.wait_for(admin, "[aria-label=Result]").text
    pages.picture(admin, "book-proof")
    proof = admin.find_element(By.LINK_TEXT, "Download as JSON").get_attribute("href") or ""
    assert proof.endswith(f"/api/v1/books/{book}/proof")
    assert admin.execute_async_script(_FETCH, proof)[0] == 200
    assert pages.console_errors(admin) == []


def test_list_moves_by_itself_and_offers_the_file(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    book = upload(site, voice=voice, format="mp3")
    admin.get(f"{site.url}{LIST}")
    with pages.same_page(admin):
        pages.wait_for(admin, f'input[name="_selected_action"][value="{book}"]')
        site.api.post(f"/books/{book}/start").raise_for_status()
        pages.wait_text(admin, f'[data-book="{book}"] [data-badge]', "succeeded")
        assert pages.wait_for(admin, f'[data-live="book-{book}-file"] a')
    pages.picture(admin, "books")


def test_plan_is_edited_and_each_change_is_saved(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    book = upload(site, voice=voice)
    open_plan(admin, site, book)
    assert titles(site, book) == ["The Garden", "The River", "The Return", "The Rest"]

    control(admin, "The Rest", "include").click()
    said(admin, "left out")
    title = control(admin, "The River", "title")
    title.send_keys(Keys.CONTROL, "a", Keys.NULL, "The Brook", Keys.TAB)
    said(admin, "The Brook")
    choice = control(admin, "The Return", "voice")
    admin.execute_script("arguments[0].focus()", choice)  # the voices come when they are needed
    Select(choice).select_by_visible_text("Guest")
    said(admin, "another voice")
    control(admin, "The Return", "up").click()
    said(admin, "Moved up")
    assert titles(site, book) == ["The Garden", "The Return", "The Brook", "(The Rest)"]
    plan = site.api.get(f"/books/{book}/plan").json()
    assert [one["title"] for one in plan["chapters"] if one["voice"]] == ["The Return"]

    control(admin, "The Brook", "merge").click()
    said(admin, "Merged")
    control(admin, "The Garden", "blocks").click()
    pages.wait_for(admin, ".tts-blocks li")
    assert "The rain stopped." in pages.text_of(admin, ".tts-blocks")
    pages.picture(admin, "book-plan")
    admin.find_element(
        By.CSS_SELECTOR, 'button[aria-label="Begin a chapter at: The rain stopped."]'
    ).click()
    said(admin, "split")

    assert titles(site, book) == ["The Garden", "The Garden (2)", "The Return", "(The Rest)"]
    admin.find_element(By.CSS_SELECTOR, "[data-undo]").click()
    said(admin, "was undone")
    assert titles(site, book) == ["The Garden", "The Return", "(The Rest)"]
    assert pages.console_errors(admin) == []


def test_chapters_are_moved_by_keyboard_with_the_focus_and_dragged(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    book = upload(site, voice=voice)
    open_plan(admin, site, book)
    for _ in range(120):
        admin.switch_to.active_element.send_keys(Keys.TAB)
        if admin.switch_to.active_element.get_attribute("aria-label") == "Move The Garden down":
            break

    admin.switch_to.active_element.send_keys(Keys.ENTER)
    said(admin, "Moved down")

    assert titles(site, book)[:2] == ["The River", "The Garden"]
    focused = admin.switch_to.active_element
    assert focused.get_attribute("aria-label") == "Move The Garden down"
    focused.send_keys(Keys.ENTER)
    pages.patient(admin).until(
        lambda _: titles(site, book)[:3] == ["The River", "The Return", "The Garden"]
    )
    admin.execute_script(_DRAG_ROW, row(admin, "The Garden"), row(admin, "The River"))
    pages.patient(admin).until(
        lambda _: titles(site, book)[:3] == ["The Garden", "The River", "The Return"]
    )


def test_a_plan_that_somebody_else_changed_is_shown_anew(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    book = upload(site, voice=voice)
    open_plan(admin, site, book)
    first = site.api.get(f"/books/{book}/plan").json()["chapters"][0]["id"]
    edit = {"edit": "rename", "chapter": first, "title": "By Somebody Else"}
    site.api.patch(f"/books/{book}/plan", json={"edits": [edit]}).raise_for_status()

    control(admin, "The Rest", "include").click()
    said(admin, "changed the plan meanwhile")

    assert control(admin, "By Somebody Else", "title")
    assert control(admin, "The Rest", "include").is_selected()
    assert "(The Rest)" not in titles(site, book)


def test_refusals_are_shown_at_their_files(admin: webdriver.Chrome, site: Site, voice: str) -> None:
    admin.get(f"{site.url}{LIST}add/")
    target = pages.wait_for(admin, "[data-drop]")
    admin.execute_script(_DROP_SEVERAL, target, [["empty.md", ""], ["fine.md", BOOK]])

    files = admin.find_elements(By.CSS_SELECTOR, ".tts-upload")
    assert "The file is empty." in files[0].text and "The file is empty." not in files[1].text
    select = admin.find_element(By.NAME, "voice")
    admin.execute_script("arguments[0].append(new Option('gone', 'Gone', true, true))", select)
    admin.find_element(By.CSS_SELECTOR, "[data-book-upload] [type=submit]").click()

    pages.patient(admin).until(lambda _: "no voice with this id or name" in files[1].text)
    assert "0 of 2 books" in pages.text_of(admin, "[data-state]")


def test_several_books_at_once_become_a_batch(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    admin.get(f"{site.url}{LIST}add/")
    target = pages.wait_for(admin, "[data-drop]")
    admin.execute_script(_DROP_SEVERAL, target, [["one.md", BOOK], ["two.md", SECOND]])
    Select(admin.find_element(By.NAME, "voice")).select_by_visible_text(voice)
    Select(admin.find_element(By.NAME, "start")).select_by_value("true")
    pages.wait_for(admin, "[name=batch_name]").send_keys("Both")
    Select(admin.find_element(By.NAME, "sample")).select_by_value("hold")
    admin.find_element(By.CSS_SELECTOR, "[data-book-upload] [type=submit]").click()

    pages.wait_for(admin, "#tts-batch")
    approve = '#tts-batch button[data-action="approve"].tts-primary'
    assert pages.wait_for(admin, approve) and pages.wait_for(admin, "#tts-batch [data-listen]")
    pages.picture(admin, "book-batch")
    admin.find_element(By.CSS_SELECTOR, approve).click()
    batch = admin.current_url.split("/")[-3]
    site.wait_for(f"/book-batches/{batch}", "ended")
    pages.wait_words(admin, "#tts-batch", "Report as JSON")
    assert "2 succeeded" in pages.text_of(admin, "#tts-batch")
    assert pages.console_errors(admin) == []


def test_a_further_file_is_asked_for(admin: webdriver.Chrome, site: Site, voice: str) -> None:
    book = render(site, voice)
    admin.get(f"{site.url}{LIST}{book}/change/")
    Select(pages.wait_for(admin, "[data-book-files] [name=kind]")).select_by_value("srt")
    assert not admin.find_element(By.CSS_SELECTOR, '[data-option="bit_rate"]').is_displayed()
    admin.find_element(By.CSS_SELECTOR, "[data-book-files] [type=submit]").click()
    link = pages.wait_for(admin, "[data-book-files] td a")
    assert admin.execute_async_script(_FETCH, link.get_attribute("href"))[0] == 200


def test_what_is_said_of_a_book_is_changed(admin: webdriver.Chrome, site: Site, voice: str) -> None:
    book = upload(site, voice=voice)
    admin.get(f"{site.url}{LIST}{book}/change/")
    admin.execute_script("document.querySelector('details.tts-panel').open = true")
    pages.wait_for(admin, "[data-book-metadata] [name=title]").send_keys("Another Name")
    admin.find_element(By.CSS_SELECTOR, "[data-book-metadata] [name=authors]").send_keys("A\nB")
    admin.find_element(By.CSS_SELECTOR, "[data-book-metadata] [type=submit]").click()
    pages.wait_text(admin, ".tts-book-title", "Another Name")
    assert site.api.get(f"/books/{book}/metadata").json()["set"]["authors"] == ["A", "B"]


# A choice of voices is as wide as the longest name, and no page may be.
_MAKE_LONG_NAME = """
from tests.factories import make_voice
make_voice("A narrator whose name goes on for longer than any telephone is wide, and on")
"""


@pytest.fixture(scope="module")
def places(site: Site, voice: str) -> dict[str, str]:
    """The books and the batch that pages are looked at with."""
    done = render(site, voice)
    site.run(_MAKE_LONG_NAME)
    answer = site.api.post(
        "/book-batches",
        json={"name": "Looked at", "entries": [{"file": "a.md"}], "defaults": {"voice": voice}},
    )
    answer.raise_for_status()
    return {"done": done, "planned": upload(site, voice=voice), "batch": answer.json()["id"]}


PAGES = {
    "list": LIST,
    "new": f"{LIST}add/",
    "page": f"{LIST}{{done}}/change/",
    "planned": f"{LIST}{{planned}}/change/",
    "plan": f"{LIST}{{planned}}/plan/",
    "started-plan": f"{LIST}{{done}}/plan/",
    "proof": f"{LIST}{{done}}/proof/",
    "batches": "/admin/synth/bookbatch/",
    "batch": "/admin/synth/bookbatch/{batch}/change/",
}


@pytest.mark.parametrize("name", PAGES)
def test_page_of_books_is_accessible_in_light_and_dark_and_on_a_phone(
    admin: webdriver.Chrome, site: Site, places: dict[str, str], name: str
) -> None:
    admin.get(site.url + PAGES[name].format(**places))
    pages.wait_for(admin, "[data-chapter]" if "plan" in name and name != "planned" else "#main")
    pages.assert_fit_for_all(admin, site.url, f"books-{name}")


_FAILED_BOOKS = """
from django.contrib.auth.models import User
from tests.factories import make_book, make_job, make_voice
owner, voice = User.objects.get(username="operator"), make_voice()
titles = ("The Extraordinary Circumstances of Extraterritorial Administration",
          "On the Origin of Species by Means of Natural Selection, or the Preservation of "
          "Favoured Races in the Struggle for Life")
for title in titles * 8:  # so many that the page has a scroll bar, which takes room from the list
    job = make_job(segments=2, voice=voice, owner=owner, kind="book", status="failed",
        error_code="voice_deleted", error_message="The voice 'The old narrator' was deleted while "
        "the book was rendered. Submit the text with another one.")
    make_book(owner, job=job, title=title)
"""


@pytest.mark.parametrize("name", ["booksource", "renderjob"])
def test_rows_with_errors_break_no_word_and_cut_nothing(
    admin: webdriver.Chrome, site: Site, voice: str, name: str
) -> None:
    render(site, voice)
    broken = site.api.post("/books", files={"file": ("broken.epub", b"no zip at all")})
    site.wait_for(f"/books/{broken.json()['id']}", "failed")
    site.run(_FAILED_BOOKS)
    for set_width in (pages.set_desktop, pages.set_phone):
        set_width(admin)
        admin.get(f"{site.url}/admin/synth/{name}/")
        pages.wait_for(admin, "#result_list tbody tr")

        pages.assert_whole_list(admin)


SITE_PAGE = """<html lang="en"><head><title>The Bell</title></head><body>
<header><a href="/">My Site</a> Best stories of the whole week</header><h1>The Bell</h1>
<p>It rang in the night, and nobody was awake to hear it.</p>
<div hidden="">A hidden line of the author's.</div>
<footer>Write to us at any time</footer></body></html>"""


def test_what_is_left_out_is_shown_with_its_words_and_switched(
    admin: webdriver.Chrome, site: Site, voice: str
) -> None:
    book = upload(site, SITE_PAGE, "bell.html", voice=voice)
    open_plan(admin, site, book)
    group = pages.wait_for(admin, '[data-skipped] details[data-reason="site"]')
    assert "site" in group.text
    group.find_element(By.CSS_SELECTOR, "summary").click()
    assert "Write to us at any time" in group.text

    admin.find_element(By.CSS_SELECTOR, '[aria-label="Speak Write to us at any time"]').click()
    said(admin, "spoken")
    rows = site.api.get(f"/books/{book}/plan").json()["skipped"]
    assert [row["included"] for row in rows if row["text"].startswith("Write")] == [True]
    admin.find_element(By.CSS_SELECTOR, '[aria-label="Speak Write to us at any time"]').click()
    said(admin, "left out")
    admin.find_element(By.CSS_SELECTOR, '[data-reason="hidden"] summary').click()
    admin.find_element(By.CSS_SELECTOR, '[aria-label="Speak all of hidden"]').click()
    said(admin, "spoken")
    rows = site.api.get(f"/books/{book}/plan").json()["skipped"]
    assert {row["text"] for row in rows if row["included"]} == {"A hidden line of the author's."}

    control(admin, "The Bell", "blocks").click()
    spoken = pages.wait_for(admin, '.tts-blocks [aria-label^="Speak: It rang"]')
    assert spoken.is_selected()
    spoken.click()
    said(admin, "a text left out")
    again = pages.wait_for(admin, '.tts-blocks [aria-label^="Speak: It rang"]')
    assert not again.is_selected()
    assert pages.console_errors(admin) == []
