"""Every option of every command with values that nobody means: wrong usage or a bad file, never an internal error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
import report_summaries
import typer

import leakscope as ls
from leakscope import audits
from leakscope.cli import app
from leakscope.errors import LeakscopeError
from leakscope.files import write_tensors

Command = Callable[..., tuple[int, str, str]]

_FEW = ("", "9" * 30, "x" * 5000)
_MORE = (
    "a\0b",
    "nan",
    "-1",
    "0",
    "9" * 5000,
    "1e300",
    "\u202e\x1b[31mä€😀",
    "[",
    ":",
    "os:getcwd",
    "/dev/zero",
    "1,999999999,999999999",
)
# What each command needs besides; what is tested replaces its own entry.
_USUAL: dict[str, dict[str, str]] = {
    "audit": {"--dry-run": "", "--data": "digits", "--model": "mlp", "--attack": "fc-inversion", "--out": "out"},
    "attack": {
        "update": "u.safetensors",
        "--model": "mlp",
        "--input-shape": "1,8,8",
        "--attack": "inverting-gradients:steps=1",
        "--out": "out",
    },
    "inspect": {"weights": "w.safetensors", "--model": "mlp", "--input-shape": "1,8,8", "--out": "out"},
    "profile": {"--model": "mlp", "--data": "digits", "--attack": "fc-inversion", "--views": "only"},
    "compare": {"before": "summary.json", "after": "summary.json"},
    "report": {"directory": "nowhere"},
    "search": {
        "--data": "digits",
        "--model": "mlp",
        "--candidates": "1",
        "--images": "1",
        "--epochs": "0",
        "--workers": "1",
        "--no-noise": "",
        "--out": "out",
    },
    "train": {
        "--data": "digits",
        "--model": "mlp",
        "--examples": "8",
        "--test-examples": "4",
        "--clients": "2",
        "--rounds": "1",
        "--out": "out",
    },
    "prior train": {"--data": "digits", "--limit": "4", "--epochs": "1", "--out": "new.safetensors"},
    "prior show": {"prior": "p.safetensors", "--out": "out"},
}


def _walk(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from _walk(inner, (*path, name))
        return
    for parameter in command.params:
        if isinstance(parameter, click.Argument) or (isinstance(parameter, click.Option) and not parameter.is_flag):
            yield " ".join(path), parameter


_OPTIONS = list(_walk(typer.main.get_command(app)))
_EACH = pytest.mark.parametrize(
    ("path", "parameter"), _OPTIONS, ids=[f"{path} {parameter.name}" for path, parameter in _OPTIONS]
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = ls.models.build("mlp", in_channels=1, image_size=8)
    Path("summary.json").write_text(json.dumps(report_summaries.summary(seeds=1)))
    write_tensors("w.safetensors", model.state_dict())
    ls.save_update("u.safetensors", ls.share(model, ls.data.load("digits", indices=[0])))

    def only_plan(config: audits.Config, *, show_images: bool | None = None, **_: object) -> None:
        """Sample runs would start a process for every value."""
        audits.make_plan(config, show_images=show_images)
        raise LeakscopeError("planned")

    monkeypatch.setattr(audits, "price_campaign", only_plan)


def _words(path: str, parameter: click.Parameter, value: str) -> list[str]:
    tested = (parameter.name or "") if isinstance(parameter, click.Argument) else max(parameter.opts, key=len)
    # In the place of its own entry: of two arguments the first stays the first.
    usual = {**_USUAL.get(path, {}), tested: value}
    options = [
        f"{name}={said}" if said or name == tested else name for name, said in usual.items() if name.startswith("--")
    ]
    arguments = [said for name, said in usual.items() if not name.startswith("--")]
    return [*path.split(), *options, "--", *arguments]


def _check(command: Command, path: str, parameter: click.Parameter, values: tuple[str, ...]) -> None:
    for value in values:
        code, out, err = command(*_words(path, parameter, value))
        # Never 1: none of these is a leak above a gate.
        assert code in (0, 2, 3, 4), (value[:40], code, err[:400])
        assert "Traceback" not in out + err, value[:40]


@_EACH
def test_values_that_nobody_means(command: Command, path: str, parameter: click.Parameter) -> None:
    _check(command, path, parameter, _FEW)


@pytest.mark.slow
@_EACH
def test_more_values_that_nobody_means(command: Command, path: str, parameter: click.Parameter) -> None:
    _check(command, path, parameter, _MORE)


def test_what_is_given_besides_is_enough_for_the_two_runs_of_a_comparison(command: Command) -> None:
    code, out, err = command("compare", *_USUAL["compare"].values())
    assert (code, err) == (0, "")
    assert "NOT WORSE" in out
    # Else only a missing argument is tested.
    code, _out, err = command(*_words("compare", next(p for path, p in _OPTIONS if path == "compare"), "x" * 50))
    assert code == 4
    assert "x" * 50 in err


def test_the_walk_finds_the_options() -> None:
    found = {f"{path} {parameter.name}" for path, parameter in _OPTIONS}
    assert {"audit model", "attack update", "attack classes", "prior show count", "report directory"} <= found
    assert len(found) > 40


@pytest.mark.parametrize("words", [("attack", "u.safetensors", "--model", "mlp"), ("profile", "--model", "mlp")])
def test_no_classes_are_not_ten(command: Command, words: tuple[str, ...]) -> None:
    own = ("--input-shape", "1,8,8") if words[0] == "attack" else ("--data", "digits")
    code, _out, err = command(*words, *own, "--classes", "0")
    assert code == 2
    assert "num_classes must be a whole number ≥ 1, got 0" in err


def test_a_budget_is_an_option_and_ends_with_the_command(command: Command) -> None:
    words = ("attack", "u.safetensors", "--model", "mlp", "--input-shape", "1,8,8", "--attack", "idlg:steps=1")
    code, _out, err = command(*words, "--budget-mb", "0.001")
    assert code in (2, 4)
    assert "budget" in err
    assert command(*words)[0] in (0, 3)
    code, _out, err = command(*words, "--budget-mb", "-3")
    assert (code, "--budget-mb must be a number of megabytes above 0" in err) == (2, True)
