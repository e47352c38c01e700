"""The page in a real browser: quiet, offline, and usable with mouse and keyboard."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest
from report_summaries import cell, images_for, render, summary, verdict

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
PATIENCE = 120
FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900"),
]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM.exists() and DRIVER.exists()),
        reason="chromium or chromedriver is absent; install Debian's chromium and chromium-driver",
    ),
]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    content = summary(seeds=1, victims=3)
    images = images_for(content)
    for item in content["cells"]:
        # Read aloud only, at the far right of a wide table: it must not widen the page.
        item["notes"] = ["closed form on 'fc1'"]
        if item["status"] != "ok":
            item["scores"] = {}
    content["title"] = '<img src="https://leak.example/x.png" onerror="document.title=1"> & Söhne'
    found = verdict(content["cells"], 18.0, defences=content["defences"], self_check=content["self_check"])
    content["verdict"] = found.model_dump()
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(content, images, show_images=True), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    profile = tmp_path_factory.mktemp("profile")
    for flag in [*FLAGS, f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    # The usual 30 s pass quickly beside other tests on a machine with two cores.
    driver.set_script_timeout(PATIENCE)
    driver.set_page_load_timeout(PATIENCE)
    # Off the browser's own start tab, whose parts would otherwise go on loading beside the page.
    driver.get("about:blank")
    yield driver
    driver.quit()
    shutil.rmtree(profile, ignore_errors=True)


@pytest.fixture
def page(browser, page_file):
    browser.get_log("performance")
    browser.get_log("browser")
    show(browser, page_file)
    return browser


def show(browser, file: Path) -> None:
    """Load the page and wait until it is there: on a busy machine the driver may still be at the page before."""
    browser.get(file.as_uri())
    script = "return document.readyState === 'complete' && document.URL === arguments[0]"
    WebDriverWait(browser, PATIENCE).until(lambda page: page.execute_script(script, file.as_uri()))


def requested(page) -> list[str]:
    """What the page and its frames asked for; the browser's own documents are all at chrome:// or chrome-untrusted://."""
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [event["request"]["url"] for event in sent if not event["documentURL"].startswith("chrome")]


def column(page, index: int) -> list[str]:
    script = "return [...document.querySelectorAll('#table tbody tr')].map((r) => r.cells[arguments[0]].textContent)"
    return [text.strip() for text in page.execute_script(script, index)]


def test_quiet_and_offline(page):
    urls = requested(page)
    assert urls
    assert [url for url in urls if not url.startswith(("file://", "data:"))] == []
    assert page.get_log("browser") == []
    assert page.title.startswith("<img")


def test_a_page_that_asks_for_something_is_noticed(page, tmp_path):
    wanted = ["http://127.0.0.1:9/picture.png", "http://127.0.0.1:9/frame.html"]
    loud = tmp_path / "loud.html"
    loud.write_text(f'<img src="{wanted[0]}"><iframe src="{wanted[1]}"></iframe>')
    show(page, loud)
    seen: set[str] = set()

    def all_asked(_: object) -> bool:
        # The driver hands over what it has seen so far; the frame may be asked for after the page is there.
        seen.update(requested(page))
        return set(wanted) <= seen

    WebDriverWait(page, PATIENCE).until(all_asked, message=f"saw {seen}")


def test_every_picture_is_decoded(page):
    bad = page.execute_async_script(
        """const done = arguments[0];
        Promise.all([...document.querySelectorAll("defs image")].map((node) => {
          const image = new Image();
          image.src = node.getAttribute("href");
          return image.decode().then(() => image.naturalWidth === Number(node.getAttribute("width")), () => false);
        })).then((flags) => done([flags.length, flags.filter((flag) => !flag).length]));"""
    )
    assert bad == [114, 0]


def test_slider_moves_the_clip_by_keyboard(page):
    box = page.find_element(By.CSS_SELECTOR, ".compare")
    slider = box.find_element(By.CSS_SELECTOR, "input[type=range]")
    upper = box.find_element(By.CSS_SELECTOR, ".over")
    before = upper.value_of_css_property("clip-path")
    slider.send_keys(*[Keys.ARROW_RIGHT] * 10)
    assert slider.get_property("value") == "60"
    assert "60%" in upper.value_of_css_property("clip-path")
    assert upper.value_of_css_property("clip-path") != before


def test_slider_follows_the_mouse(page):
    slider = page.find_element(By.CSS_SELECTOR, ".compare input")
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", slider)
    webdriver.ActionChains(page).move_to_element_with_offset(slider, 70, 0).click().perform()
    assert int(slider.get_property("value")) > 70


def test_sorting_by_click(page):
    worst = 4
    button = page.find_elements(By.CSS_SELECTOR, "#table thead button")[worst]
    shown = column(page, worst)
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", button)
    button.click()
    head = page.find_elements(By.CSS_SELECTOR, "#table thead th")[worst]
    assert head.get_attribute("aria-sort") == "descending"
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    numbers = [float(text) for text in column(page, worst) if text != "–"]
    assert numbers == sorted(numbers)
    # Cells without a figure stay last whichever way is up.
    assert column(page, worst)[-2:] == ["–", "–"]
    assert sorted(shown) == sorted(column(page, worst))


def test_sorting_by_keyboard(page):
    button = page.find_elements(By.CSS_SELECTOR, "#table thead button")[1]
    page.execute_script("arguments[0].focus()", button)
    webdriver.ActionChains(page).send_keys(Keys.ENTER).perform()
    assert column(page, 1) == sorted(column(page, 1))
    webdriver.ActionChains(page).send_keys(Keys.SPACE).perform()
    assert column(page, 1) == sorted(column(page, 1), reverse=True)


def test_filter_hides_other_lines(page):
    page.find_element(By.ID, "filter").send_keys("dlg prune")
    visible = [row for row in page.find_elements(By.CSS_SELECTOR, "#table tbody tr") if row.is_displayed()]
    assert len(visible) == 2
    assert all("dlg" in row.text and "prune" in row.text for row in visible)
    assert page.find_element(By.ID, "shown").text == "2 lines"


def test_dark_toggle_changes_and_is_remembered(page):
    def background() -> str:
        return page.execute_script("return getComputedStyle(document.body).backgroundColor")

    page.execute_script("localStorage.clear()")
    page.refresh()
    light = background()
    button = page.find_element(By.ID, "theme")
    button.click()
    dark = background()
    assert dark != light
    assert button.get_attribute("aria-pressed") == "true"
    page.refresh()
    assert background() == dark
    page.find_element(By.ID, "theme").click()
    assert background() == light


def test_focus_is_visible(page):
    webdriver.ActionChains(page).send_keys(Keys.TAB).perform()
    focused = page.switch_to.active_element
    assert focused.get_attribute("class") == "skip"
    assert focused.value_of_css_property("outline-style") == "solid"


def judged(content):
    found = verdict(
        content["cells"], content["threshold_psnr"], defences=content["defences"], self_check=content["self_check"]
    )
    return content | {"verdict": found.model_dump()}


def one_cell():
    return judged(summary(seeds=1) | {"cells": [cell(psnr=[31.0])], "defences": []})


def example_audit():
    """As large as `make audit`: two networks on two data sets, with notes, fits and failures."""
    content = summary(seeds=1, victims=3)
    content["cells"] = [
        {**item, "model": model, "data": data, "key": f"{number:032x}"}
        for number, (model, data, item) in enumerate(
            (model, data, item)
            for model in ("mlp", "lenet5")
            for data in ("sample-photos", "faces")
            for item in content["cells"]
        )
    ]
    for item in content["cells"]:
        item["notes"] = ["structured, differences: agrees with double backward on the first step"]
        item["fits"] = [{"explained": 1 - 6e-11, "unrelated": 1 - 1e-7, "diagnosis": ""}]
    content["cells"][3] |= {"status": "unexplained"}
    content["cells"][3]["fits"] = [{"explained": 0.3, "unrelated": 0.4, "diagnosis": "Adam explains 97 % of it " * 8}]
    return judged(content)


def long_names():
    """Many cells, and names without a single place to break."""
    content = summary(seeds=3, victims=1)
    long = "clip:norm=1.0+gaussian-noise:sigma=0.0512345+" * 4
    for item in content["cells"]:
        item["model"] = "package.module_with_a_long_name:function_of_the_user" * 2
        item["data"] = "data_" * 30
        item["defence"] = item["defence"] if item["defence"] == "none" else long + item["defence"].replace(" ", "")
        item["notes"] = ["x" * 400]
    content["defences"] = [
        row | {"name": row["name"] if row["name"] == "none" else long + row["name"].replace(" ", "")}
        for row in content["defences"]
    ]
    content["title"] = "T" * 200
    content["command"] = "leakscope audit " + "a" * 500
    return judged(content)


SIZES = {"one cell": one_cell, "example audit": example_audit, "long names": long_names}


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    """One file per size of report."""
    folder = tmp_path_factory.mktemp("sizes")
    files = {}
    for name, make in SIZES.items():
        content = make()
        files[name] = folder / f"{name.replace(' ', '-')}.html"
        files[name].write_text(render(content, images_for(content, side=8), show_images=True), encoding="utf-8")
    return files


def narrowed(page, width: int):
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


@pytest.mark.parametrize("name", SIZES)
def test_no_sideways_scrolling_of_the_page(browser, sized, name):
    show(browser, sized[name])
    # Every folded part may be opened by a reader.
    browser.execute_script("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    try:
        for width in (390, 360, 768, 1280):
            narrowed(browser, width)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


FIGURES = """
const worst = [...document.querySelectorAll("dl.keys div")].find((box) => box.textContent.startsWith("worst"));
const text = (selector) => document.querySelector(selector)?.textContent ?? "";
const card = [...document.querySelectorAll("ol.cards li")].find((item) => item.textContent.includes("no defence"));
const rows = [...document.querySelectorAll("#table tbody tr")].filter((row) => row.cells[2].textContent === "none");
return {
  gate: text("p.gate"),
  sentence: text("ul.sentences li"),
  key: worst.querySelector("dd").textContent,
  gauge: text("ul.gauges li:first-child"),
  card: card.querySelector(".card-h b").textContent,
  cardGrade: card.querySelector(".card-h .chip").textContent,
  ring: text(".ring.big text").trim(),
  row: rows[0].cells[4].textContent.trim() + " dB",
  rowGrade: rows[0].cells[0].textContent.trim(),
  matrix: [...document.querySelectorAll("table.grid tbody td:nth-of-type(1) .entry b")].map((b) => b.textContent),
};
"""


@pytest.mark.parametrize("name", ["one cell", "example audit"])
def test_the_worst_example_has_the_same_figures_everywhere(browser, sized, name):
    show(browser, sized[name])
    found = browser.execute_script(FIGURES)
    worst = found["key"]
    assert worst.endswith(" dB")
    assert worst in found["gate"]
    assert f"reached {worst}," in found["sentence"]
    assert found["card"] == found["row"] == worst
    assert worst in found["matrix"]
    assert found["ring"] == found["cardGrade"] == found["rowGrade"]
    if name != "one cell":
        assert f"worst {worst}" in found["gauge"]


def test_paper_shows_every_matrix_and_no_sideways_rest(browser, sized):
    show(browser, sized["example audit"])
    folded = "return [...document.querySelectorAll('details.more table.grid')].map((t) => t.checkVisibility())"
    narrowed(browser, 1000)
    try:
        assert browser.execute_script("return document.querySelectorAll('table.grid').length") == 4
        assert browser.execute_script(folded) == [False] * 3, "folded on the screen"
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        heights = "return [...document.querySelectorAll('table.grid')].map((t) => t.getBoundingClientRect().height)"
        assert all(height > 100 for height in browser.execute_script(heights)), "unfolded by the style alone"
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script(folded) == [True] * 3
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(folded) == [False] * 3


def test_the_printed_file_has_pages(browser, sized):
    show(browser, sized["example audit"])
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True, "printBackground": True})
    content = base64.b64decode(printed["data"])
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") >= 6


def test_prints_light_and_shows_the_rules(page):
    page.find_element(By.ID, "theme").click()
    assert page.execute_script("return document.documentElement.dataset.theme") == "dark"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        ink = page.execute_script("return getComputedStyle(document.body).color")
        page.execute_script("dispatchEvent(new Event('beforeprint'))")
        rules = page.find_element(By.CSS_SELECTOR, "details.rules")
        assert ink == "rgb(23, 32, 46)"
        assert rules.get_property("open")
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        page.execute_script("localStorage.clear()")
