"""The page in a real browser: quiet, offline, and usable with mouse and keyboard."""

from __future__ import annotations

import json
import struct

import pytest
from report_summaries import cell, images_for, render, summary, verdict

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from screenshots import CHROMIUM, DRIVER, PATIENCE, narrow, open_browser, print_page, show, write_pictures  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

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
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def page(browser, page_file):
    browser.get_log("performance")
    browser.get_log("browser")
    show(browser, page_file)
    return browser


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

    def is_dark_again(_page: object) -> bool:
        page.refresh()
        return background() == dark

    # The browser writes what it remembers when it has the time: on a busy machine a reload may come before that.
    WebDriverWait(page, PATIENCE).until(is_dark_again)
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


def many_defences():
    """More attacks, defences and settings than fit a screen or a sheet of paper."""
    names = ["none", *(f"gaussian-noise:sigma=0.0{number}" for number in range(1, 24))]
    content = summary(seeds=1)
    content["cells"] = [
        cell(attack, name, psnr=[20.0], adaptive=knows, data=data, baselines={"nearest public picture": [14.0]})
        for data in ("faces", "digits")
        for attack in ("inverting-gradients:steps=150", "dlg")
        for name in names
        for knows in ((False, True) if name != "none" else (False,))
    ] + [cell("dlg", psnr=[15.0], data=f"client-{number}.safetensors") for number in range(20)]
    content["defences"] = []
    return judged(content)


SIZES = {
    "one cell": one_cell,
    "example audit": example_audit,
    "long names": long_names,
    "many defences": many_defences,
}


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


@pytest.mark.parametrize("name", SIZES)
def test_no_sideways_scrolling_of_the_page(browser, sized, name):
    show(browser, sized[name])
    # Every folded part may be opened by a reader.
    browser.execute_script("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    try:
        for width in (390, 360, 768, 1280):
            narrow(browser, width)
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width, width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


FIGURES = """
const worst = [...document.querySelectorAll("dl.keys div")].find((box) => box.textContent.startsWith("worst"));
const text = (selector) => document.querySelector(selector)?.textContent ?? "";
const card = [...document.querySelectorAll("ol.cards li")].find((item) => item.textContent.includes("no defence"));
const line = (lines, start) => [...lines].find((one) => one.textContent.startsWith(start)).textContent;
const entries = "table.grid tbody td:nth-of-type(1) .entry";
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
  keyGain: line(document.querySelectorAll("dl.keys div"), "its gain"),
  cardGain: line(card.querySelectorAll("dl div"), "gain").slice(4),
  cardNull: line(card.querySelectorAll("dl div"), "best null").slice(9),
  rowNull: rows[0].cells[5].textContent.trim(),
  rowGain: rows[0].cells[6].textContent.trim() + " dB",
  matrixGain: [...document.querySelectorAll(entries + " .gain")].map((one) => one.textContent),
  rowGrade: rows[0].cells[0].textContent.trim(),
  matrix: [...document.querySelectorAll(entries + " b")].map((one) => one.textContent),
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
    gain, (null, name_of_null) = found["rowGain"], found["rowNull"].split(" ", 1)
    assert gain == found["cardGain"]
    assert f"gain {gain}" in found["matrixGain"]
    assert found["cardNull"] == f"{null} dB, {name_of_null}"
    assert found["keyGain"] == f"its gain{gain}over {null} dB, the best null: {name_of_null}"
    assert float(gain.removesuffix(" dB")) == pytest.approx(float(worst.removesuffix(" dB")) - float(null), abs=0.11)
    assert found["ring"] == found["cardGrade"] == found["rowGrade"]
    if name != "one cell":
        assert f"worst {worst}" in found["gauge"]


def test_paper_shows_every_matrix_and_no_sideways_rest(browser, sized):
    show(browser, sized["example audit"])
    folded = "return [...document.querySelectorAll('details.more table.grid')].map((t) => t.checkVisibility())"
    narrow(browser, 1000)
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


def test_paper_holds_every_attack_and_defence_within_its_width(browser, sized):
    """Twelve settings, forty attacks and twenty defences were the most."""
    show(browser, sized["many defences"])
    # A4 in landscape without its margins, in CSS pixels.
    narrow(browser, 1032)
    try:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        widths = "return [...document.querySelectorAll('table.grid')].map((t) => t.getBoundingClientRect().width)"
        found = browser.execute_script(widths)
        assert len(found) == 2 * 5 + 20
        assert max(found) <= 1032
        assert browser.execute_script("return document.getElementById('table').getBoundingClientRect().width") <= 1032
        entries = "return [...document.querySelectorAll('table.grid .entry')].filter((e) => e.clientHeight > 20).length"
        assert browser.execute_script(entries) == 2 * 2 * 47 + 20
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_pictures_of_a_report_are_taken_by_one_call(sized, tmp_path):
    made = {path.name: path.read_bytes() for path in write_pictures(sized["one cell"], tmp_path / "pictures")}
    assert made.pop("report-print.pdf").startswith(b"%PDF")
    sizes = {name: struct.unpack(">II", content[16:24]) for name, content in made.items()}
    assert sizes["report-1280.png"] == (1280, 900)
    assert sizes["report-390.png"] == (390, 844)
    assert sizes["report-1280-whole.png"][1] > 2_000
    assert sizes["report-390-whole.png"][1] > sizes["report-1280-whole.png"][1]


def test_the_printed_file_has_pages(browser, sized):
    show(browser, sized["example audit"])
    content = print_page(browser)
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") >= 6


def test_prints_light_and_shows_the_rules(page):
    if page.execute_script("return document.documentElement.dataset.theme") != "dark":
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
