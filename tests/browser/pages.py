"""Look at pages in a browser: accessibility, console, requests, width, screenshots."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import axe_core_python
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.browser.small_png import small_png

PATIENCE_SECONDS = 60
PHONE = (390, 844)
_AXE = Path(axe_core_python.__file__).parent / "axe.min.js"
_LOOK = """
const done = arguments[arguments.length - 1];
axe.run({runOnly: ["wcag2a", "wcag2aa"]}).then((found) => done(found.violations.map(
  (one) => `${one.id} (${one.impact}): ${one.nodes.map((node) => node.html).join(" | ")}`)));
"""
_DROP = """
const [target, name, type, content] = arguments;
const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
const transfer = new DataTransfer();
transfer.items.add(new File([bytes], name, {type}));
for (const kind of ["dragenter", "dragover", "drop"])
  target.dispatchEvent(new DragEvent(kind, {bubbles: true, dataTransfer: transfer}));
"""


def wait_for(browser: webdriver.Chrome, selector: str) -> WebElement:
    """Return the first element of a CSS selector, once it is there and seen."""
    return WebDriverWait(browser, PATIENCE_SECONDS).until(
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


def drop_file(browser: webdriver.Chrome, selector: str, path: Path, media_type: str) -> None:
    """Drop a file on an element as a person does with the mouse."""
    target = browser.find_element(By.CSS_SELECTOR, selector)
    content = base64.b64encode(path.read_bytes()).decode()
    browser.execute_script(_DROP, target, path.name, media_type, content)


def violations(browser: webdriver.Chrome) -> list[str]:
    """Return what axe finds against WCAG 2 A and AA on the page."""
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
    """Let the system prefer dark or light colours."""
    value = "dark" if is_dark else "light"
    features = [{"name": "prefers-color-scheme", "value": value}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def set_phone(browser: webdriver.Chrome) -> None:
    """Give the window the width of a phone."""
    width, height = PHONE
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def overflow(browser: webdriver.Chrome) -> int:
    """Return by how many pixels the page is wider than the window."""
    found: int = browser.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return found


def picture(browser: webdriver.Chrome, name: str) -> None:
    """Keep a screenshot for the documents where TTS_TEST_PICTURES names a folder."""
    folder = os.environ.get("TTS_TEST_PICTURES")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{name}.png").write_bytes(small_png(browser.get_screenshot_as_png()))
