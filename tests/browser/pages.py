"""Look at pages in a browser: accessibility, console, requests, width, screenshots."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_core_python
import numpy as np
from PIL import Image
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.workers.commands import PATIENCE_SECONDS

PHONE = (390, 844)
NUM_COLOURS = 64  # of a picture for the documents
EMPTY_ROWS = 120  # a longer run of equal rows is cut
KEPT_ROWS = 40
_AXE = Path(axe_core_python.__file__).parent / "axe.min.js"
_DARKEN = """
const root = document.documentElement;
// Unfold asks for the scheme once, when a page is loaded. Colours that fade are not looked at.
if (root.hasAttribute("x-data")) root.classList.toggle("dark", arguments[0]);
for (const one of document.getAnimations()) if (one instanceof CSSTransition) one.finish();
"""
_LOOK = """
const done = arguments[arguments.length - 1];
const rules = {runOnly: ["wcag2a", "wcag2aa"], resultTypes: ["violations"]};
axe.run(rules).then((found) => done(found.violations.map(
  (one) => `${one.id} (${one.impact}): ${one.nodes.map((node) => node.html).join(" | ")}`)));
"""
_BROKEN_WORDS = """
const broken = [];
for (const cell of document.querySelectorAll("#result_list tbody :is(td, th)")) {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    for (const word of texts.currentNode.data.matchAll(/[^\\s-]+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      const seen = [...range.getClientRects()].filter((box) => box.width);
      if (new Set(seen.map((box) => Math.round(box.top))).size > 1) broken.push(word[0]);
    }
  }
}
return broken;
"""
_CUT = """
const list = document.querySelector("#result_list");
const right = Math.min(innerWidth, list.closest(".tts-list-frame")
  .getBoundingClientRect().right);
return [...list.querySelectorAll("tbody :is(a, button, span, progress)")].filter(
  (one) => one.getBoundingClientRect().right > right + 1).map((one) => one.outerHTML);
"""
_SCROLLED = """
const frame = document.querySelector("#result_list").closest(".tts-list-frame");
return frame.scrollWidth - frame.clientWidth;
"""
_DROP = """
const [target, name, type, content] = arguments;
const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], name, {type}));
for (const kind of ["dragenter", "dragover", "drop"])
  target.dispatchEvent(new DragEvent(kind, {bubbles: true, dataTransfer: transfer}));
"""


def patient(browser: webdriver.Chrome) -> WebDriverWait[webdriver.Chrome]:
    """Return a wait to which an element that a page has just replaced is one to look for again."""
    return WebDriverWait(
        browser, PATIENCE_SECONDS, ignored_exceptions=[StaleElementReferenceException]
    )


def wait_for(browser: webdriver.Chrome, selector: str) -> WebElement:
    """Return the first element of a CSS selector, once it is there and seen."""
    return patient(browser).until(
        lambda driver: (
            next(
                (
                    one
                    for one in driver.find_elements(By.CSS_SELECTOR, selector)
                    if one.is_displayed()
                ),
                None,
            )
            or False
        )
    )


def text_of(browser: webdriver.Chrome, selector: str) -> str:
    return patient(browser).until(
        lambda it: [it.find_element(By.CSS_SELECTOR, selector).text]  # an empty text as well
    )[0]


def wait_text(browser: webdriver.Chrome, selector: str, *texts: str) -> None:
    """Wait until the page itself shows one of these texts in an element."""
    patient(browser).until(lambda _: text_of(browser, selector) in texts)


def wait_words(browser: webdriver.Chrome, selector: str, words: str) -> None:
    """Wait until the page itself shows an element with these words in it."""
    patient(browser).until(lambda _: words in text_of(browser, selector))


def wait_count(browser: webdriver.Chrome, selector: str, number: int) -> None:
    patient(browser).until(lambda it: len(it.find_elements(By.CSS_SELECTOR, selector)) == number)


def wait_hidden(browser: webdriver.Chrome, selector: str) -> None:
    def is_hidden(driver: webdriver.Chrome) -> bool:
        found = driver.find_elements(By.CSS_SELECTOR, selector)
        return not any(one.is_displayed() for one in found)

    patient(browser).until(is_hidden)


@contextlib.contextmanager
def same_page(browser: webdriver.Chrome) -> Iterator[None]:
    """Hold a page to updating itself: nothing is loaded anew until the block ends."""
    browser.execute_script("window.stays = true")
    yield
    assert browser.execute_script("return window.stays") is True


def log_out(browser: webdriver.Chrome) -> None:
    """Forget every log-in; WebDriver's own way forgets only those of the page that is open."""
    browser.execute_cdp_cmd("Network.clearBrowserCookies", {})


def drop_file(browser: webdriver.Chrome, selector: str, path: Path, media_type: str) -> None:
    """Drop a file on an element as a person does with the mouse."""
    target = browser.find_element(By.CSS_SELECTOR, selector)
    content = base64.b64encode(path.read_bytes()).decode()
    browser.execute_script(_DROP, target, path.name, media_type, content)


def violations(browser: webdriver.Chrome) -> list[str]:
    """Return what axe finds against WCAG 2 A and AA on the page."""
    if browser.execute_script("return typeof axe === 'undefined'"):
        browser.execute_script(_AXE.read_text(encoding="utf-8"))
    found: list[str] = browser.execute_async_script(_LOOK)
    return found


def console_errors(browser: webdriver.Chrome) -> list[str]:
    """Return what the browser complained of since this was last asked, violated policies too."""
    log: Any = browser.get_log("browser")  # type: ignore[no-untyped-call]  # selenium's
    return [line["message"] for line in log if line["level"] in ("SEVERE", "WARNING")]


def requested_urls(browser: webdriver.Chrome) -> set[str]:
    """Return what pages asked for since this was last asked, data and blobs left out."""
    log: Any = browser.get_log("performance")  # type: ignore[no-untyped-call]  # selenium's
    events = [json.loads(line["message"])["message"] for line in log]
    urls = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    return {url for url in urls if not url.startswith(("data:", "blob:", "chrome:"))}


def set_dark(browser: webdriver.Chrome, is_dark: bool) -> None:
    """Let the system prefer dark or light colours, on the page that is there, too."""
    value = "dark" if is_dark else "light"
    features = [{"name": "prefers-color-scheme", "value": value}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.execute_script(_DARKEN, is_dark)


def set_phone(browser: webdriver.Chrome) -> None:
    width, height = PHONE
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def set_desktop(browser: webdriver.Chrome) -> None:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def assert_fit_for_all(browser: webdriver.Chrome, site_url: str, name: str) -> None:
    """Hold the page that is open to all: light, dark, on a phone, nobody else asked, no error.

    It is loaded once; `name` is that of its pictures.
    """
    assert "Server Error" not in browser.title and "Not Found" not in browser.page_source[:2000]
    for is_dark in (False, True):
        set_dark(browser, is_dark)
        assert violations(browser) == []
        picture(browser, f"{name}-dark" if is_dark else name)
    set_dark(browser, False)
    set_phone(browser)
    assert overflow(browser) <= 0
    assert violations(browser) == []
    picture(browser, f"{name}-phone")
    assert console_errors(browser) == []
    assert [url for url in requested_urls(browser) if not url.startswith(site_url)] == []


def assert_whole_list(browser: webdriver.Chrome) -> None:
    """Hold a list of the admin to whole words, all of it in its frame."""
    assert browser.execute_script(_BROKEN_WORDS) == []
    assert browser.execute_script(_CUT) == []
    assert scrolled(browser) <= 0


def scrolled(browser: webdriver.Chrome) -> int:
    """Return by how many pixels a list of the admin is wider than its frame."""
    found: int = browser.execute_script(_SCROLLED)
    return found


def overflow(browser: webdriver.Chrome) -> int:
    """Return by how many pixels the page is wider than the window."""
    found: int = browser.execute_script(
        # A phone's window grows with a page that is too wide; its screen does not.
        "const page = document.documentElement;"
        "return page.scrollWidth - (screen.width < 600 ? screen.width : page.clientWidth)"
    )
    return found


def picture(browser: webdriver.Chrome, name: str) -> None:
    """Keep a screenshot for the documents where TTS_TEST_PICTURES names a folder."""
    folder = os.environ.get("TTS_TEST_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(small_png(browser.get_screenshot_as_png()))


def small_png(content: bytes) -> bytes:
    """Return a PNG of the same picture with a palette, its longest run of equal rows cut."""
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    changes = np.flatnonzero((pixels[1:] != pixels[:-1]).any(axis=(1, 2))) + 1
    edges = np.concatenate(([0], changes, [len(pixels)]))
    longest = int(np.diff(edges).argmax())
    start, end = int(edges[longest]), int(edges[longest + 1])
    if end - start > EMPTY_ROWS:
        pixels = np.delete(pixels, slice(start + KEPT_ROWS, end), axis=0)
    small = io.BytesIO()
    with_palette = Image.fromarray(pixels).quantize(NUM_COLOURS, dither=Image.Dither.NONE)
    with_palette.save(small, "PNG", optimize=True)
    return small.getvalue()
