"""The report in a real Chromium: mouse, keyboard, phone, dark; the decoder in JavaScript; and no request leaves the page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.report.browser import complaints, requests
from tests.report.made import NASTY, splits, stored_set
from tinyset.condensed import CondensedSet, load
from tinyset.report.explorer import find_nearest
from tinyset.report.gather import Subject, gather
from tinyset.report.page import page

PIXELS = """const c = arguments[0], d = c.getContext("2d").getImageData(0, 0, c.width, c.height); return [...d.data]"""
Open = Callable[[Path], None]


@pytest.fixture
def open_page(browser: webdriver.Chrome) -> Open:
    def go(path: Path) -> None:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        requests(browser), complaints(browser)
        browser.get(path.as_uri())
        WebDriverWait(browser, 20).until(lambda d: d.find_elements(By.CSS_SELECTOR, "[role=gridcell]"))

    return go


@pytest.fixture
def report(run_folder: Path, tmp_path: Path, open_page: Open) -> CondensedSet:
    """The page of the run, opened, with thumbnails of real images."""
    subjects, _ = gather([str(run_folder)])
    near = find_nearest(subjects[0].condensed, splits().train)
    (tmp_path / "report.html").write_text(page(subjects, (), [near], with_real=True), encoding="utf-8")
    open_page(tmp_path / "report.html")
    return subjects[0].condensed


def part(browser: webdriver.Chrome, name: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, f'[data-part="{name}"]')


def pixels(browser: webdriver.Chrome, canvas: WebElement, shape: tuple[int, int, int]) -> np.ndarray:
    flat: Any = browser.execute_script(PIXELS, canvas)
    return np.array(flat).reshape(*shape[1:], 4)[..., :3].transpose(2, 0, 1)


def expected(image: torch.Tensor) -> np.ndarray:
    return (image * 255).round().numpy()


def state(browser: webdriver.Chrome) -> dict[str, Any]:
    found: dict[str, Any] = browser.execute_script("return explorer.state")
    return found


def test_nothing_is_asked_of_any_network(browser: webdriver.Chrome, report: CondensedSet) -> None:
    for tab in browser.find_elements(By.CSS_SELECTOR, "[role=tab]"):
        tab.click()
    for chip in browser.find_elements(By.CSS_SELECTOR, "[role=radio]"):
        chip.click()
    asked = requests(browser)
    assert asked and all(url.startswith(("file:", "data:")) for url in asked)
    blocked = browser.execute_async_script(
        "const done = arguments[0]; fetch('https://example.org/').then(() => done('sent'), () => done('refused'))"
    )
    assert blocked == "refused" and any("Content Security Policy" in text for text in complaints(browser))


def test_a_class_named_script_is_text(browser: webdriver.Chrome, report: CondensedSet) -> None:
    assert browser.title == "stripes – tinyset report"
    chips = browser.find_elements(By.CSS_SELECTOR, "[role=radio] span")
    assert [chip.text for chip in chips] == list(NASTY)
    assert NASTY[0] in part(browser, "where").text and NASTY[0] in browser.find_element(By.TAG_NAME, "main").text
    assert complaints(browser) == []


def test_every_picture_is_what_the_library_decodes(browser: webdriver.Chrome, report: CondensedSet) -> None:
    decoders = report.config.spec["decoders"]
    browser.find_elements(By.CSS_SELECTOR, "[role=radio]")[1].click()
    images = report.images(class_=1)
    cells = browser.find_elements(By.CSS_SELECTOR, "[role=gridcell]")
    assert len(cells) == len(images)
    for i, cell in enumerate(cells):
        shown = pixels(browser, cell.find_element(By.TAG_NAME, "canvas"), report.image_shape)
        assert np.abs(shown - expected(images[i])).max() <= 1
        code, decoder = divmod(i, decoders)
        assert cell.get_attribute("aria-label") == f"code {code}, decoder {decoder}"


def test_mouse(browser: webdriver.Chrome, report: CondensedSet) -> None:
    decoders = report.config.spec["decoders"]
    cell = browser.find_element(By.CSS_SELECTOR, '[role=gridcell][data-row="2"][data-column="1"]')
    cell.click()
    assert cell.get_attribute("aria-selected") == "true"
    big = part(browser, "big")
    image = report.images(class_=0)[2 * decoders + 1]
    assert np.abs(pixels(browser, big, report.image_shape) - expected(image)).max() <= 1
    assert part(browser, "where").text == f"Class {NASTY[0]}: code 2, decoder 1"
    browser.find_element(By.ID, "tab-column-held").click()
    frames = part(browser, "codes").find_elements(By.TAG_NAME, "button")
    assert len(frames) == report.config.spec["codes_per_class"][0]
    frames[1].click()
    assert state(browser)["row"] == 1 and frames[1].get_attribute("aria-pressed") == "true"
    browser.find_element(By.ID, "tab-row-held").click()
    frames = part(browser, "decoders").find_elements(By.TAG_NAME, "button")
    assert len(frames) == decoders
    frames[2].click()
    assert (state(browser)["row"], state(browser)["column"]) == (1, 2)


def test_keyboard_alone(browser: webdriver.Chrome, report: CondensedSet) -> None:
    def press(*keys: str) -> None:
        for key in keys:
            browser.switch_to.active_element.send_keys(key)

    browser.execute_script("document.querySelector('[role=radio]').focus()")
    press(Keys.ARROW_RIGHT)
    assert state(browser)["class_"] == 1
    assert browser.switch_to.active_element.get_attribute("aria-checked") == "true"
    browser.execute_script("document.querySelector('[role=gridcell][tabindex=\"0\"]').focus()")
    press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_UP)
    assert (state(browser)["row"], state(browser)["column"]) == (1, 1)
    assert browser.switch_to.active_element.get_attribute("aria-label") == "code 1, decoder 1"
    press(Keys.END, Keys.ARROW_RIGHT)
    assert state(browser)["column"] == report.config.spec["decoders"] - 1
    press(Keys.PAGE_DOWN, Keys.PAGE_DOWN)
    assert state(browser)["class_"] == 0
    browser.execute_script("document.querySelector('[role=tab]').focus()")
    press(Keys.ARROW_LEFT)
    assert state(browser)["tab"] == "blend"
    part(browser, "row").send_keys(Keys.HOME)
    assert state(browser)["row"] == 0
    part(browser, "row").send_keys(Keys.ARROW_RIGHT)
    assert state(browser)["row"] == 1


def test_blending_two_codes(browser: webdriver.Chrome, report: CondensedSet) -> None:
    browser.find_element(By.ID, "tab-blend").click()
    browser.execute_script("explorer.go({row: 0, other: 2, share: 0.3, column: 1})")
    made: Any = report.parameterization
    code = 0.7 * made.codes[0] + 0.3 * made.codes[2]
    with torch.no_grad():
        image = made.decoders(code[None], torch.tensor([1]))[0]
    assert np.abs(pixels(browser, part(browser, "big"), report.image_shape) - expected(image)).max() <= 1
    assert "70 % code 0 + 30 % code 2, decoder 1" in part(browser, "where").text
    part(browser, "mixes").find_elements(By.TAG_NAME, "button")[10].click()
    assert state(browser)["share"] == 1
    assert (
        np.abs(pixels(browser, part(browser, "big"), report.image_shape) - expected(report.images(0)[2 * 3 + 1])).max()
        <= 1
    )


def test_walking_moves_and_stops(browser: webdriver.Chrome, report: CondensedSet) -> None:
    button = part(browser, "walk-column")
    button.click()
    WebDriverWait(browser, 10).until(lambda d: state(d)["column"] > 0)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert browser.execute_script("return explorer.timer") is None


def test_the_nearest_real_image(browser: webdriver.Chrome, report: CondensedSet) -> None:
    real = splits().train
    image = report.images(class_=0)[0]
    distance = ((real.images[real.by_class[0]].float() / 255 - image) ** 2).mean((1, 2, 3)).sqrt()
    said = part(browser, "real-text").text
    assert f"no. {int(real.by_class[0][distance.argmin()])}," in said and f"{float(distance.min()):.3f}" in said
    WebDriverWait(browser, 10).until(lambda d: part(d, "real-picture").size["width"] > 0)
    shown = pixels(browser, part(browser, "real-picture"), report.image_shape)
    assert np.array_equal(shown, real.images[real.by_class[0][distance.argmin()]].numpy())


def test_phone_and_dark(browser: webdriver.Chrome, report: CondensedSet) -> None:
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    small = browser.execute_script(
        "const all = [...document.querySelectorAll('button:not([hidden]), select')];"
        "return all.filter((b) => b.offsetParent && b.offsetHeight < 30).length"
    )
    assert small == 0, "a finger hits what is 30 pixels high"
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(colour)
    theme = browser.find_element(By.ID, "theme")
    theme.click(), theme.click()
    assert browser.execute_script(colour) != light and theme.text == "Theme: dark"
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    dark = browser.execute_script(colour)
    theme.click()
    assert browser.execute_script(colour) == dark
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_screen_reader_finds_names(browser: webdriver.Chrome, report: CondensedSet) -> None:
    """Every control and picture of the accessibility tree has a name."""
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "slider", "combobox", "radio", "tab", "image", "gridcell", "grid", "tabpanel", "img"}
    seen = [node for node in tree if node.get("role", {}).get("value") in roles and not node["ignored"]]
    assert len(seen) > 20
    assert [node for node in seen if not node.get("name", {}).get("value")] == []
    levels = [h.tag_name for h in browser.find_elements(By.CSS_SELECTOR, "h1, h2")]
    assert levels[0] == "h1" and levels.count("h1") == 1


def test_the_row_of_results_is_chosen(browser: webdriver.Chrome, report: CondensedSet) -> None:
    boxes = browser.find_elements(By.CSS_SELECTOR, '[data-for="rows"]')
    assert [box.is_displayed() for box in boxes] == [True] + [False] * (len(boxes) - 1)
    browser.find_element(By.ID, "rows").find_elements(By.TAG_NAME, "option")[1].click()
    assert [box.is_displayed() for box in boxes][:2] == [False, True]


@pytest.mark.parametrize("kind", ["pixels", "tiles"])
def test_sets_without_codes(kind: str, browser: webdriver.Chrome, tmp_path: Path, open_page: Open) -> None:
    condensed = load(stored_set(kind).save(tmp_path / "set"))
    (tmp_path / "report.html").write_text(page([Subject("stored", condensed)]), encoding="utf-8")
    open_page(tmp_path / "report.html")
    images = condensed.images(class_=0)
    cells = browser.find_elements(By.CSS_SELECTOR, "[role=gridcell]")
    assert len(cells) == len(images)
    for cell, image in zip(cells, images, strict=True):
        shown = pixels(browser, cell.find_element(By.TAG_NAME, "canvas"), condensed.image_shape)
        assert np.abs(shown - expected(image)).max() <= 1
    held = browser.find_element(By.ID, "tab-row-held")
    assert held.is_displayed() == (kind == "tiles")
    browser.find_element(By.ID, "tab-blend").click()
    browser.execute_script("explorer.go({row: 0, other: 1, share: 0.5})")
    per = len(images) // len(browser.find_elements(By.CSS_SELECTOR, '[data-part="other"] option'))
    half = (images[0] + images[per]) / 2
    assert np.abs(pixels(browser, part(browser, "big"), condensed.image_shape) - expected(half)).max() <= 1
    assert complaints(browser) == []
