"""Pictures of a report: the page at two widths, and what a printer makes of it.

    python benchmarks/screenshots.py runs/first-audit --out pictures
    python benchmarks/screenshots.py runs/first-audit --docs

For every width the whole page and its first screen are written as PNG, for the print view a PDF. `--docs` writes the
first screen, light and dark, over the pictures of the documentation. Needs selenium, and Debian's chromium and
chromium-driver.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
# Seconds; the usual 30 pass quickly beside other work on a machine with two cores.
PATIENCE = 120
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900"),
]
# Width and height of the first screen: a laptop, a telephone.
SCREENS = {1280: 900, 390: 844}
# Beyond this many pixels a picture is hard to open; what is below is cut off.
TALLEST = 16_000
IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


@contextmanager
def open_browser(profile: Path) -> Iterator[webdriver.Chrome]:
    """A headless chromium that asks nobody for anything, with `profile` as its folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        driver.set_script_timeout(PATIENCE)
        driver.set_page_load_timeout(PATIENCE)
        # Off the browser's own start tab, whose parts would otherwise go on loading beside the page.
        driver.get("about:blank")
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def show(browser: webdriver.Chrome, file: Path) -> None:
    """Load the page and wait until it is there: on a busy machine the driver may still be at the page before."""
    browser.get(file.as_uri())
    script = "return document.readyState === 'complete' && document.URL === arguments[0]"
    WebDriverWait(browser, PATIENCE).until(lambda page: page.execute_script(script, file.as_uri()))


def narrow(browser: webdriver.Chrome, width: int, height: int = 800) -> None:
    """Give the page a width and a height, whatever the window has."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def photograph(browser: webdriver.Chrome, *, width: int, whole: bool, theme: str = "light") -> bytes:
    """The page as PNG: its first screen, or all of it."""
    narrow(browser, width, SCREENS[width])
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]; scrollTo(0, 0)", theme)
    height = browser.execute_script("return document.documentElement.scrollHeight") if whole else SCREENS[width]
    clip = {"x": 0, "y": 0, "width": width, "height": min(height, TALLEST), "scale": 1}
    found = browser.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": whole})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return base64.b64decode(found["data"])


def print_page(browser: webdriver.Chrome) -> bytes:
    """The page as a printer gets it."""
    found = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    return base64.b64decode(found["data"])


def write_pictures(page: Path, folder: Path) -> list[Path]:
    """All pictures of one page, written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with open_browser(Path(tempfile.mkdtemp())) as browser:
        show(browser, page)
        made = {"report-print.pdf": print_page(browser)}
        for width in SCREENS:
            made[f"report-{width}.png"] = photograph(browser, width=width, whole=False)
            made[f"report-{width}-whole.png"] = photograph(browser, width=width, whole=True)
    return [_write(folder / name, content) for name, content in made.items()]


def write_docs(page: Path) -> list[Path]:
    """The pictures of the documentation: the first screen of a report, light and dark."""
    with open_browser(Path(tempfile.mkdtemp())) as browser:
        show(browser, page)
        made = {theme: photograph(browser, width=1280, whole=False, theme=theme) for theme in ("light", "dark")}
    return [_write(IMAGES / f"report-{theme}.png", content) for theme, content in made.items()]


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def main() -> int:
    """Parse the command line; 1 where the folder holds no report."""
    parser = argparse.ArgumentParser(description="Take pictures of a report.")
    parser.add_argument("run", type=Path, help="folder of a run, with report.html")
    parser.add_argument("--out", type=Path, default=Path("screenshots"), help="folder for the pictures")
    parser.add_argument("--docs", action="store_true", help="replace the pictures of the documentation instead")
    options = parser.parse_args()
    page = (options.run / "report.html").resolve()
    if not page.is_file():
        print(f"no report at {page}; expected the folder of a run, made by `leakscope audit --out …`")
        return 1
    for path in write_docs(page) if options.docs else write_pictures(page, options.out):
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
