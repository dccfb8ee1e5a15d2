"""Every page of the admin: light, dark and narrow, nobody else asked, nothing inaccessible."""

from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser import pages
from tests.browser.conftest import Site

PAGES = {
    "overview": "/admin/",
    "voices": "/admin/voices/voice/",
    "voice": "/admin/voices/voice/{voice}/change/",
    "voice-names": "/admin/voices/voicealias/",
    "new-voice": "/admin/voices/voice/add/",
    "jobs": "/admin/synth/renderjob/",
    "job": "/admin/synth/renderjob/{job}/change/",
    "new-job": "/admin/synth/renderjob/add/",
    "batches": "/admin/synth/textbatch/",
    "review": "/admin/synth/segment/",
    "lexicons": "/admin/synth/lexicon/",
    "new-lexicon": "/admin/synth/lexicon/add/",
    "workers": "/admin/synth/workerstatus/",
    "new-batch": "/admin/synth/textbatch/add/",
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
    "about": "/about",
}


@pytest.fixture(scope="module")
def places(site: Site) -> dict[str, str]:
    voice = site.make_voice("Looked at")
    job = site.submit("A short text. And more.", voice)
    site.wait_for(f"/jobs/{job}", "succeeded")
    user: str = site.api.get("/users").json()["results"][0]["id"]
    worker: str = site.api.get("/overview").json()["workers"][0]["name"]
    return {"voice": voice, "job": job, "user": user, "worker": worker}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_accessible_in_light_and_dark_and_on_a_phone(
    admin: webdriver.Chrome, site: Site, places: dict[str, str], name: str
) -> None:
    admin.get(site.url + PAGES[name].format(**places))
    pages.wait_for(admin, "body")
    pages.assert_fit_for_all(admin, site.url, name)


def test_the_page_of_the_api_has_its_groups_in_order_summaries_and_a_dark_mode(
    admin: webdriver.Chrome, site: Site
) -> None:
    """Its markup is Swagger UI's, which axe finds faults with; it is no page of the admin."""
    pages.console_errors(admin), pages.requested_urls(admin)
    pages.set_dark(admin, True)
    admin.get(f"{site.url}/api/v1/docs")
    pages.wait_for(admin, ".opblock")

    def texts(selector: str) -> list[str]:
        return [one.text for one in admin.find_elements(By.CSS_SELECTOR, selector)]

    groups = admin.find_elements(By.CSS_SELECTOR, "h3.opblock-tag")
    names = [one.get_attribute("data-tag") for one in groups]
    summaries = texts(".opblock-summary-description")
    back = "return getComputedStyle(document.body).backgroundColor"
    assert names[:4] == ["voices", "transcripts", "jobs", "preview"]
    assert "List voices, newest first" in summaries and all(summaries)
    assert admin.execute_script(back) == "rgb(28, 32, 34)"
    assert pages.console_errors(admin) == []
    asked = pages.requested_urls(admin)
    assert [url for url in asked if not url.startswith(site.url)] == []
    pages.picture(admin, "docs-dark")
    pages.set_dark(admin, False)
    pages.patient(admin).until(lambda it: it.execute_script(back) == "rgb(250, 250, 250)")
    pages.picture(admin, "docs")
    pages.set_phone(admin)
    pages.picture(admin, "docs-phone")


def test_a_voice_is_opened_by_keyboard_alone(
    admin: webdriver.Chrome, site: Site, places: dict[str, str]
) -> None:
    admin.get(f"{site.url}/admin/voices/voice/")
    pages.wait_for(admin, "#result_list")

    for _ in range(80):
        admin.switch_to.active_element.send_keys(Keys.TAB)
        focused = admin.switch_to.active_element
        if focused.text == "Looked at":
            break
    focused.send_keys(Keys.ENTER)

    assert pages.wait_for(admin, "[name=name]").get_attribute("value") == "Looked at"
    assert admin.find_elements(By.CSS_SELECTOR, "[data-try-it] button")


# A button says "Copied" for a moment, which a look from time to time may miss.
_NOTE_TEXTS = """
const button = arguments[0];
window.said = [];
new MutationObserver(() => window.said.push(button.textContent)).observe(
  button, {childList: true, characterData: true, subtree: true});
"""


@pytest.mark.parametrize("write", [["clipboardSanitizedWrite"], []], ids=["granted", "refused"])
def test_new_key_is_copied_by_its_button(
    admin: webdriver.Chrome, site: Site, write: list[str]
) -> None:
    permissions = {"origin": site.url, "permissions": ["clipboardReadWrite", *write]}
    admin.execute_cdp_cmd("Browser.grantPermissions", permissions)
    admin.get(f"{site.url}/admin/synth/apikey/add/")
    pages.wait_for(admin, "[name=name]").send_keys("phone", Keys.ENTER)

    button = pages.wait_for(admin, "[data-copy]")
    key = admin.find_element(By.CSS_SELECTOR, "code").text
    assert len(key) > 20 and button.text == "Copy the key"
    admin.execute_script(_NOTE_TEXTS, button)
    button.click()
    pages.patient(admin).until(lambda it: it.execute_script("return window.said.length"))

    assert admin.execute_script("return window.said[0]") == "Copied"
    read = "navigator.clipboard.readText().then(arguments[arguments.length - 1])"
    assert admin.execute_async_script(read) == key
    assert site.api.get("/voices", headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert pages.console_errors(admin) == []
