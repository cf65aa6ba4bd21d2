"""A real Chromium, headless, driven through chromedriver; installed when absent, skipped with a reason where it cannot be."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
]


def install() -> str | None:
    """Why there is no browser, or None when there is one."""
    if shutil.which("chromium") and shutil.which("chromedriver"):
        return None
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return "chromium and chromedriver are not installed, and only root on Debian can install them here"
    try:
        quiet: dict[str, Any] = {"check": True, "capture_output": True, "timeout": 600}
        subprocess.run(["apt-get", "update"], **quiet)
        packages = ["chromium", "chromium-driver"]
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *packages], **quiet)
    except (subprocess.SubprocessError, OSError) as error:
        return f"the Debian packages chromium and chromium-driver cannot be installed ({type(error).__name__})"
    return None if shutil.which("chromium") and shutil.which("chromedriver") else "chromium was not installed"


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser with an empty profile of its own, and a log of every request it makes."""
    if reason := install():
        pytest.skip(reason)
    profile = tempfile.mkdtemp(prefix="tinyset-chromium-")
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for flag in [*FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    try:
        driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
    except WebDriverException as error:
        shutil.rmtree(profile, ignore_errors=True)
        pytest.skip(f"chromium does not start: {str(error).splitlines()[0]}")
    driver.set_window_size(1280, 900)
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def requests(driver: webdriver.Chrome) -> list[str]:
    """The addresses asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Errors and warnings of the page: exceptions, blocked content."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def screenshot(driver: webdriver.Chrome, path: Path) -> None:
    """The whole page."""
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "format": "png"})
    path.write_bytes(base64.b64decode(shot["data"]))
