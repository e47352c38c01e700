"""Residual networks with stored statistics are audited with the strongest attack measured on them."""

from __future__ import annotations

import pytest

from leakscope.audits import Config, load_config, parse_config
from leakscope.cli.audit import _settings
from leakscope.registry import attack_from_spec

PLAIN = ("fc-inversion", "inverting-gradients")
STRONGER = (*PLAIN, "agic:schedule=held")


@pytest.mark.parametrize(
    ("settings", "attacks"),
    [
        ({}, PLAIN),
        ({"models": ["mlp", "convnet"]}, PLAIN),
        ({"models": ["resnet20-4"]}, STRONGER),
        ({"models": ("mlp", "resnet18")}, STRONGER),
        # With batch statistics the weights of the layers change little.
        ({"models": ["resnet20-4"], "mode": "train"}, PLAIN),
        # Whoever names attacks gets those.
        ({"models": ["resnet20-4"], "attacks": ["idlg"]}, ("idlg",)),
        ({"models": ["resnet20-4"], "attacks": list(PLAIN)}, PLAIN),
    ],
)
def test_the_default_attacks_depend_on_the_network(settings, attacks):
    assert parse_config(settings).attacks == attacks


def test_what_is_written_down_is_what_is_run_again():
    config = parse_config({"models": ["resnet20-4"]})
    assert parse_config(config.model_dump()) == config
    assert Config(models=("resnet20-4",)).attacks == STRONGER


def test_a_network_from_the_command_line_counts_over_a_file(tmp_path):
    file = tmp_path / "audit.yaml"
    file.write_text("victims: 2\n")
    assert load_config(file).attacks == PLAIN
    assert _settings(file, {"models": ["resnet20-4"]}).attacks == STRONGER
    assert _settings(file, {"models": ["mlp"]}).attacks == PLAIN
    assert _settings(file, {"models": ["mlp"]}).victims == 2


def test_the_stronger_attack_is_one_that_exists():
    attack = attack_from_spec(STRONGER[-1])
    assert (attack.name, attack.effort.steps) == ("agic", 1_000)
