from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from report_summaries import cell, images_for, render, summary

from leakscope.errors import BadInputError

HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(1)>'</style></script>&amp;\u2028{{7*7}}\ud800"


class Page(HTMLParser):
    """Collects elements, their attributes, and the text of script and style."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.text: list[str] = []
        self._open = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag if tag in self.raw else ""
        if self._open:
            self.raw[tag].append("")

    def handle_endtag(self, tag):
        self._open = ""

    def handle_data(self, data):
        if self._open:
            self.raw[self._open][-1] += data
        else:
            self.text.append(data)

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.elements)


def poisoned(value: Any, *, keep: tuple[str, ...] = ()) -> Any:
    """The same structure with every string, and every key of a free mapping, replaced."""
    if isinstance(value, dict):
        return {key: item if key in keep else poisoned(item, keep=keep) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, keep=keep) for item in value]
    return HOSTILE if isinstance(value, str) else value


def test_the_page_holds_every_section_in_order():
    page = Page(render(summary(), None, show_images=False))
    sections = [attrs["id"] for tag, attrs in page.elements if tag == "section"]
    assert sections == [
        *("verdict", "advice", "gallery", "matrix", "cells", "curves"),
        *("success", "dpia", "scenario", "not-tested", "reproduce", "glossary"),
    ]


def test_figures_of_the_verdict_are_shown():
    content = summary()
    page = render(content, None, show_images=False)
    worst = max(max(c["scores"]["psnr"]) for c in content["cells"] if c["defence"] == "none")
    assert f"{worst:.1f} dB" in page
    assert "refused, diverged" in page
    assert "knows it" in page


def test_a_verdict_in_the_summary_is_shown_as_it_is():
    content = summary()
    content["verdict"] = {"grade": "B", "status": "within", "headline": "All quiet", "sentences": ["One.", "Two."]}
    page = render(content, None, show_images=False)
    assert "All quiet" in page
    assert 'aria-label="Grade B"' in page


def test_hostile_text_in_every_string_stays_text():
    content = summary()
    content["verdict"] = {"grade": "F", "status": "leak", "headline": "h", "sentences": ["s"]}
    plain = Page(render(content, None, show_images=False))
    bad = poisoned(content, keep=("status", "key", "defence"))
    bad["config"] = {HOSTILE: [HOSTILE]}
    bad["environment"], bad["code"], bad["scenarios"] = {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE}, {HOSTILE: {}}
    for index, item in enumerate(bad["cells"]):
        # Some cells also end and are defended in hostile ways, the others keep every code path alive.
        if index % 5 == 0:
            item["status"] = item["defence"] = item["error"] = HOSTILE
            item["notes"] = [HOSTILE]
    page = Page(render(bad, None, show_images=False))
    assert page.count("script") == plain.count("script") == 2
    assert page.count("style") == 1
    assert page.count("img") == page.count("iframe") == page.count("object") == 0
    assert not [attrs for _, attrs in page.elements if any(name.startswith("on") for name in attrs)]
    assert "<script>alert(1)" in "".join(page.text)
    assert "{{7*7}}" in "".join(page.text)


def test_hostile_names_beside_images_stay_text():
    content = summary(seeds=1)
    for item in content["cells"]:
        item["attack"] = item["model"] = HOSTILE
    page = Page(render(content, images_for(content), show_images=True))
    assert page.count("img") == 0
    assert page.count("script") == 2


def test_the_embedded_numbers_are_inert_and_complete():
    content = summary()
    content["title"] = HOSTILE
    content["cells"][0]["scores"]["psnr"][0] = math.inf
    content["cells"][0]["loss"] = math.nan
    data = Page(render(content, None, show_images=False)).raw["script"][0]
    assert not set("<>&\u2028\u2029") & set(data)
    read = json.loads(data, parse_constant=pytest.fail)
    assert len(read["cells"]) == len(content["cells"])
    assert read["cells"][0]["scores"]["psnr"][0] == "inf"
    assert read["cells"][0]["loss"] is None


def test_policy_allows_exactly_the_inline_style_and_script():
    page = Page(render(summary(), None, show_images=False))
    policy = next(attrs["content"] for tag, attrs in page.elements if attrs.get("http-equiv"))
    assert policy is not None
    for text in (page.raw["style"][0], page.raw["script"][1]):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    # The policy forbids style attributes, so none may be needed.
    assert not [attrs for _, attrs in page.elements if "style" in attrs]


def test_nothing_points_outside_the_page():
    content = summary(seeds=1)
    page = Page(render(content, images_for(content), show_images=True))
    links = [attrs[name] for _, attrs in page.elements for name in ("href", "src") if attrs.get(name)]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)


def test_script_is_small():
    page = Page(render(summary(), None, show_images=False))
    assert len(page.raw["script"][1].encode()) < 10_000


def test_without_permission_no_pixel_is_in_the_file():
    content = summary()
    page = render(content, images_for(content), show_images=False)
    assert "data:image" not in page
    assert Page(page).count("image") == 0
    assert "Images are hidden" in page


def test_images_are_shown_worst_first_and_originals_once():
    content = summary(seeds=1, victims=2)
    images = images_for(content)
    truth = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1)
    images = {key: (truth, torch.rand(2, 3, 8, 8, generator=draw)) for key in images}
    page = render(content, images, show_images=True)
    shown = [float(value) for value in re.findall(r'<p class="card-h">.*?<b>([\d.]+) dB', page)]
    levels = re.findall(r'<p class="card-h"><span class="chip g-(.)', page)
    assert levels == sorted(levels, reverse=True)
    assert shown[0] == max(shown)
    # Two originals, and one reconstruction for each card.
    assert Page(page).count("image") == 2 + len(shown)


@pytest.mark.parametrize(("side", "at_least"), [(32, 500), (64, 180), pytest.param(300, 10, marks=pytest.mark.slow)])
def test_five_hundred_images_stay_below_five_megabytes(side, at_least):
    content = summary(seeds=1, victims=500)
    content["cells"] = content["cells"][:1]
    page = render(content, images_for(content, side=side), show_images=True)
    cards = page.count('<li class="card">')
    left = re.search(r"(\d+) were left out", page)
    assert len(page.encode()) <= 5_000_000
    assert cards >= at_least
    assert cards + (int(left.group(1)) if left else 0) == 500


def test_long_hostile_names_do_not_burst_the_gallery():
    content = summary(seeds=1, victims=500)
    content["cells"] = content["cells"][:1]
    content["cells"][0] |= {"attack": '"' * 2_000, "model": "é" * 2_000, "data": "<" * 2_000}
    page = render(content, images_for(content, side=8), show_images=True)
    assert len(page.encode()) <= 5_000_000
    assert page.count('<li class="card">') > 50


def test_thousands_of_cells_stay_below_five_megabytes():
    long = "x" * 3_000
    cells = [cell(f"attack {i % 100}", f"defence {i % 50}", seed=i, psnr=[12.0], notes=[long]) for i in range(3_000)]
    content = summary(seeds=1) | {"cells": cells}
    page = render(content, None, show_images=False)
    assert len(page.encode()) <= 5_000_000
    assert "2000 more are in summary.json" in page


def test_other_than_pictures_are_counted_not_drawn():
    content = summary(seeds=1, victims=1)
    content["cells"] = content["cells"][:1]
    key = content["cells"][0]["key"]
    page = render(content, {key: (torch.rand(1, 20), torch.rand(1, 20))}, show_images=True)
    assert "1 example without stored pictures" in page


@pytest.mark.parametrize("cells", [[], [cell(status="oom")], [cell(defence="ckks", status="sealed")]])
def test_runs_without_evidence_still_render(cells):
    content = summary(seeds=1) | {"cells": cells, "defences": []}
    page = render(content, {}, show_images=True)
    assert "Inconclusive" in page


def test_a_smallest_summary_renders():
    page = render(
        {"schema": 1, "title": "t", "leakscope": "0", "cells": [cell()], "threshold_psnr": 18}, None, show_images=False
    )
    assert "near copies" in page


def test_local_training_and_several_settings_make_several_matrices():
    local = {"lr": 0.01, "steps": 4, "batch_size": 2}
    content = summary(seeds=1) | {"cells": [cell(), cell(local=local), cell(data="cifar100")]}
    page = render(content, None, show_images=False)
    assert page.count('<figure class="matrix">') == 3
    assert "4 local steps of 2, rate 0.01" in page


def test_local_training_is_told_with_all_that_is_not_usual():
    epochs = {"lr": 0.01, "epochs": 1, "batch_size": 2, "optimiser": "adam", "weight_decay": 0.1, "shuffle": True}
    page = render(summary(seeds=1) | {"cells": [cell(local=epochs)], "verdict": None}, None, show_images=False)
    assert "1 local epoch of 2, rate 0.01, adam, weight decay 0.1, shuffle" in page
    assert "one update of 1 local epoch," in page


def test_a_metric_nobody_knows_is_kept_and_harmless():
    new = cell()
    new["scores"]["identification"] = [0.5]
    content = summary(seeds=1) | {"cells": [new]}
    data = Page(render(content, None, show_images=False)).raw["script"][0]
    assert json.loads(data)["cells"][0]["scores"]["identification"] == [0.5]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema": 2}, "schema"),
        ({"cells": [{"key": "ab"}]}, r"cells\.0"),
        ({"cells": [{name: value for name, value in cell().items() if name != "scenario"}]}, r"cells\.0\.scenario"),
        ({"cells": [cell(scores={"psnr": ["high"]})]}, r"cells\.0\.scores\.psnr"),
        ({"cells": [cell(local={"lr": 0, "steps": 1, "batch_size": 1})]}, r"cells\.0\.local: .*lr > 0"),
        ({"threshold_psnr": "high"}, "threshold_psnr"),
        ({"title": None}, "title"),
    ],
)
def test_a_summary_that_does_not_fit_is_refused_by_name(change, field):
    with pytest.raises(BadInputError, match=field):
        render(summary(seeds=1) | change, None, show_images=False)


def test_the_same_summary_gives_the_same_page():
    content = summary()
    assert render(content, None, show_images=False) == render(content, None, show_images=False)
