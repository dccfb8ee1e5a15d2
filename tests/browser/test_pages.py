"""Every page of the admin: light, dark and narrow, nobody else asked, nothing inaccessible."""

from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Site
from tests.browser.pages import (
    assert_fit_for_all,
    console_errors,
    requested_urls,
    wait_for,
)

PAGES = {
    "overview": "/admin/",
    "voices": "/admin/voices/voice/",
    "voice": "/admin/voices/voice/{voice}/change/",
    "new-voice": "/admin/voices/voice/add/",
    "jobs": "/admin/synth/renderjob/",
    "job": "/admin/synth/renderjob/{job}/change/",
    "new-job": "/admin/synth/renderjob/add/",
    "batches": "/admin/synth/batchjob/",
    "review": "/admin/synth/segment/",
    "lexicons": "/admin/synth/lexicon/",
    "new-lexicon": "/admin/synth/lexicon/add/",
    "workers": "/admin/synth/workerstatus/",
    "new-batch": "/admin/synth/batchjob/add/",
    "secret": "/admin/synth/webhooksecret/",
    "deliveries": "/admin/synth/webhookdelivery/",
    "endpoints": "/admin/synth/webhookendpoint/",
    "keys": "/admin/synth/apikey/",
    "new-key": "/admin/synth/apikey/add/",
    "users": "/admin/auth/user/",
    "user": "/admin/auth/user/{user}/change/",
    "new-user": "/admin/auth/user/add/",
    "groups": "/admin/auth/group/",
    "new-group": "/admin/auth/group/add/",
    "nothing-found": "/admin/synth/lexicon/?q=nothing",
    "delete-voice": "/admin/voices/voice/{voice}/delete/",
    "history": "/admin/voices/voice/{voice}/history/",
    "worker": "/admin/synth/workerstatus/{worker}/change/",
    "password": "/admin/password_change/",
    "licences": "/licences",
    "start": "/",
}


@pytest.fixture(scope="module")
def places(site: Site) -> dict[str, str]:
    """A voice and a finished job, for pages of one of them."""
    voice = site.make_voice("Looked at")
    answer = site.api.post("/jobs", json={"text": "A short text. And more.", "voice": voice})
    job: str = answer.json()["id"]
    assert site.api.get(f"/jobs/{job}?wait=30").json()["status"] == "succeeded"
    user: str = site.api.get("/users").json()["results"][0]["id"]
    worker: str = site.api.get("/overview").json()["workers"][0]["name"]
    return {"voice": voice, "job": job, "user": user, "worker": worker}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_accessible_in_light_and_dark_and_on_a_phone(
    admin: webdriver.Chrome, site: Site, places: dict[str, str], name: str
) -> None:
    admin.get(site.url + PAGES[name].format(**places))
    wait_for(admin, "body")

    assert_fit_for_all(admin, site.url, name)


def test_description_of_the_api_is_shown_without_asking_anybody_else(
    admin: webdriver.Chrome, site: Site
) -> None:
    """Its markup is Swagger UI's, which axe finds faults with; it is no page of the admin."""
    console_errors(admin), requested_urls(admin)

    admin.get(f"{site.url}/api/v1/docs")

    assert wait_for(admin, ".opblock")
    assert console_errors(admin) == []
    assert [url for url in requested_urls(admin) if not url.startswith(site.url)] == []


def test_a_voice_is_opened_by_keyboard_alone(
    admin: webdriver.Chrome, site: Site, places: dict[str, str]
) -> None:
    admin.get(f"{site.url}/admin/voices/voice/")
    wait_for(admin, "#result_list")

    for _ in range(80):
        admin.switch_to.active_element.send_keys(Keys.TAB)
        focused = admin.switch_to.active_element
        if focused.text == "Looked at":
            break
    focused.send_keys(Keys.ENTER)

    assert wait_for(admin, "[name=name]").get_attribute("value") == "Looked at"
    assert admin.find_elements(By.CSS_SELECTOR, "[data-try-it] button")
