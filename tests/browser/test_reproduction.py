"""The page of a reproduction in a real browser: nothing is fetched, nothing runs, nothing is wider than the window."""

from __future__ import annotations

from pathlib import Path

import pytest

from leakscope.reproduction.find import find_recipes
from leakscope.reproduction.page import render_page
from leakscope.reproduction.run import run_here

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from screenshots import CHROMIUM, DRIVER, narrow, open_browser, show  # noqa: E402

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and DRIVER.exists()),
        reason="chromium or chromedriver is absent; install Debian's chromium and chromium-driver",
    ),
]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproductions")
    found = {}
    for name, recipe in find_recipes(ROOT).items():
        if name in ("agic/table-1", "thesis/figure-4-2"):
            found[name] = folder / f"{name.replace('/', '-')}.html"
            found[name].write_text(render_page(run_here(recipe, "smoke")), encoding="utf-8")
    return found


def test_no_sideways_scrolling_and_no_complaint(pages, tmp_path):
    with open_browser(tmp_path) as browser:
        for page in pages.values():
            browser.get_log("browser")
            show(browser, page)
            assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
            for width in (390, 360, 768, 1280):
                narrow(browser, width)
                assert browser.execute_script("return document.documentElement.scrollWidth") <= width, (page, width)
            browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
