from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import leakscope
from leakscope import registry
from leakscope.attack import Attack
from leakscope.audits.audit import audit
from leakscope.defence import Defence
from leakscope.defences.chain import Chain
from leakscope.errors import UsageError
from leakscope.types import Status
from tiny import batch_of, dense


@pytest.mark.parametrize("name", registry.ATTACKS)
def test_an_attack_is_called_what_the_registry_calls_it(name):
    # These two search in a prior and say so without one.
    options = {"prior": "smooth"} if name in ("gias", "ggl") else {}
    attack = registry.get_attack(name, **options)
    assert isinstance(attack, Attack)
    assert attack.name == name
    assert registry.attack_from_spec(f"{name}:prior=smooth" if options else name) == attack
    assert attack.paper


@pytest.mark.parametrize("name", ["gias", "ggl"])
def test_an_attack_without_its_prior_says_how_to_get_one(name):
    with pytest.raises(UsageError, match="leakscope prior train"):
        registry.get_attack(name)


@pytest.mark.parametrize("name", registry.DEFENCES)
def test_a_defence_is_called_what_the_registry_calls_it(name):
    defence = registry.get_defence(name)
    assert isinstance(defence, Defence)
    assert defence.name == name
    assert registry.defence_from_spec(name) == defence


def test_unknown_names_and_options_suggest_the_nearest():
    with pytest.raises(UsageError, match=r"unknown attack 'inverting-gradient'\. Did you mean 'inverting-gradients'\?"):
        registry.get_attack("inverting-gradient")
    with pytest.raises(UsageError, match=r"unknown defence 'purne'\. Did you mean 'prune'\?"):
        registry.get_defence("purne")
    with pytest.raises(UsageError, match=r"'dlg' has no option 'step'\. Did you mean 'steps'\?"):
        registry.get_attack("dlg", step=3)
    with pytest.raises(UsageError, match=r"'zzz'\. Known: .*dlg"):
        registry.get_attack("zzz")
    with pytest.raises(UsageError, match=r"'chain' has no option 'part'"):
        registry.get_defence("chain", part=[])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("dlg", ("dlg", {})),
        ("prune:fraction=0.9", ("prune", {"fraction": 0.9})),
        (" dlg : steps=5, restarts = 2 ", ("dlg", {"steps": 5, "restarts": 2})),
        ("inverting-gradients:schedule=paper", ("inverting-gradients", {"schedule": "paper"})),
        ("gaussian-noise:sigma=1e-3", ("gaussian-noise", {"sigma": 1e-3})),
        ("agic:relu_modifier=false,signed=TRUE", ("agic", {"relu_modifier": False, "signed": True})),
        ("key-lock:activation=none", ("key-lock", {"activation": "none"})),
        ("x:a=True,b=None,c=-1", ("x", {"a": True, "b": None, "c": -1})),
    ],
)
def test_specs_are_read_as_names_with_literals(spec, expected):
    assert registry.parse_spec(spec) == expected


def test_a_spec_executes_nothing():
    _, options = registry.parse_spec("x:a=__import__('os').getcwd()")
    assert options == {"a": "__import__('os').getcwd()"}


def test_an_option_without_a_value_shows_the_form():
    with pytest.raises(UsageError, match=r"cannot read option 'steps' in 'dlg:steps'; write name:option=value"):
        registry.parse_spec("dlg:steps")


def test_specs_build_what_the_functions_build():
    assert registry.attack_from_spec("dlg:steps=7,restarts=2") == registry.get_attack("dlg", steps=7, restarts=2)
    assert registry.defence_from_spec("prune:fraction=0.5") == registry.get_defence("prune", fraction=0.5)
    assert registry.defence_from_spec("none") is None


def test_plus_chains_defences_in_order():
    chain = registry.defence_from_spec("clip:norm=1+gaussian-noise:sigma=0.01")
    assert isinstance(chain, Chain)
    assert chain.name == "clip+gaussian-noise"
    parts = ["clip:norm=1", registry.get_defence("gaussian-noise", sigma=0.01)]
    assert chain == registry.get_defence("chain", parts=parts)
    assert registry.get_defence("chain") == Chain(())


@pytest.mark.parametrize(
    "spec", ["dlg:steps=0", "dlg:steps=many", "adam-l2:restarts=0", "idlg:retries=-1", "dlg:steps=2.5"]
)
def test_options_that_cannot_run_are_refused_when_built(spec):
    with pytest.raises(UsageError, match="needs a whole number"):
        registry.attack_from_spec(spec)


@pytest.mark.parametrize(
    "spec",
    [
        "prune:fraction=1",
        "prune:fraction=-0.1",
        "prune:fraction=x",
        "clip:norm=0",
        "gaussian-noise:sigma=-1",
        "laplacian-noise:scale=inf",
        "gaussian-noise:sigma=x",
    ],
)
def test_impossible_defences_are_refused_when_built(spec):
    with pytest.raises(UsageError, match=spec.split(":")[0]):
        registry.defence_from_spec(spec)


def test_audit_takes_names_or_values():
    by_name = audit(dense(), batch_of([1]), "fc-inversion", defence="prune:fraction=0.5")
    value = audit(
        dense(), batch_of([1]), registry.get_attack("fc-inversion"), defence=registry.get_defence("prune", fraction=0.5)
    )
    assert by_name.status is Status.OK
    assert torch.equal(by_name.reconstruction, value.reconstruction)
    undefended = audit(dense(), batch_of([1]), "fc-inversion", defence="none")
    assert undefended.defence == "none"
    assert undefended.scores.psnr.min() > 100


def test_every_public_name_resolves():
    for name in leakscope.__all__:
        assert getattr(leakscope, name) is not None
    assert set(leakscope.__all__) <= set(dir(leakscope))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = leakscope.nonsense


@pytest.mark.parametrize(
    "before",
    [
        pytest.param("", marks=pytest.mark.slow),
        "import leakscope.audits.cell",
        pytest.param("import leakscope.audits, leakscope.cli", marks=pytest.mark.slow),
    ],
)
def test_audit_is_a_function_whatever_was_imported_before(before):
    code = f"{before}\nimport leakscope as ls\nassert callable(ls.audit), ls.audit\nprint(ls.audit.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "leakscope.audits.audit"


def test_importing_leakscope_does_not_wait_for_torch():
    code = "import sys, leakscope; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"
