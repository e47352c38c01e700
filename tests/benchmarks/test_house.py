from __future__ import annotations

from graphlib import CycleError
from pathlib import Path

import grimp
import pytest


@pytest.fixture
def house(load):
    return load("house")


@pytest.fixture
def small(house):
    """An attack that needs one file of the method, one of vocabulary, and the compiler."""
    return house.House(
        {
            "leakscope": "",
            "leakscope.types": "",
            "leakscope.attacks": "",
            "leakscope.attacks.one": "from leakscope.matching import engine\nfrom leakscope.types import Batch\n",
            "leakscope.matching": "from leakscope.attacks import one\n",
            "leakscope.matching.engine": "def run():\n    import leakscope.fastgrad.plan\n",
            "leakscope.fastgrad.plan": "import typing\nif typing.TYPE_CHECKING:\n    import leakscope.types\n",
        }
    )


def test_the_page_in_the_documentation_is_up_to_date(house):
    drawn = house.page(house.load(str(house.ROOT)).parts())
    assert house.GRAPH.read_text(encoding="utf-8") == drawn, "imports changed; run: make house"


def test_imports_are_those_that_the_import_linter_sees(house):
    graph = grimp.build_graph("leakscope", exclude_type_checking_imports=True, cache_dir=None)
    imports = house.load(str(house.ROOT)).imports
    assert set(imports) == graph.modules
    assert {module: found for module in imports if (found := graph.find_modules_directly_imported_by(module))} == {
        module: found for module, found in imports.items() if found
    }


def test_reading_an_attack_stops_at_vocabulary_and_at_the_compiler(small):
    assert small.to_read("leakscope.attacks.one") == ["leakscope.attacks.one", "leakscope.matching.engine"]
    assert small.imports["leakscope.fastgrad.plan"] == set()


def test_a_name_that_a_package_passes_on_is_read_where_it_is_defined(house):
    sources = {
        "leakscope.attacks.one": "from leakscope.matching.distances import Cosine\n",
        "leakscope.matching.distances": (
            "from leakscope.matching.distances.far import Far\nfrom leakscope.matching.distances.near import Cosine\n"
        ),
        "leakscope.matching.distances.far": "",
        "leakscope.matching.distances.near": "",
    }
    found = house.House(sources)
    assert found.to_read("leakscope.attacks.one") == ["leakscope.attacks.one", "leakscope.matching.distances.near"]
    assert found.imports["leakscope.attacks.one"] == {"leakscope.matching.distances"}


def test_figures(house, small):
    found = house.figures(small)
    assert (found["files"], found["lines"], found["median file"]) == (7, 8, 1)
    assert (found["median function"], found["files under 50 lines"], found["files over 250 lines"]) == (2, 7, 0)
    # The engine, the compiler, the attack and the types.
    assert found["modules with one importer"] == 4


def test_a_tree_and_a_revision_are_read_alike(house, tmp_path):
    source = tmp_path / "src" / "leakscope" / "attacks" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text("x = 1\n")
    assert house.load(str(tmp_path)).sources == {"leakscope.attacks": "x = 1\n"}
    with pytest.raises(SystemExit, match="a git revision, got 'no-such-revision'"):
        house.load("no-such-revision")


def test_arrows_that_a_longer_way_replaces_are_left_out(load):
    graph = load("import_graph")
    parts = {"top": {"middle", "low"}, "middle": {"low"}, "low": set(), "alone": {"low"}}
    assert graph.reduce(parts, ["low", "middle", "alone", "top"]) == {
        "low": [], "middle": ["low"], "alone": ["low"], "top": ["middle"],
    }  # fmt: skip
    drawn = graph.page(parts)
    assert drawn == graph.page(dict(reversed(parts.items())))
    assert "| `top` | `low`, `middle` |" in drawn
    assert drawn.count("<path") == 3


def test_a_circle_is_refused(load):
    with pytest.raises(CycleError):
        load("import_graph").page({"a": {"b"}, "b": {"a"}})


def test_the_documentation_shows_the_page(house):
    assert "explanation/import-graph.md" in (Path(house.ROOT) / "mkdocs.yml").read_text()
