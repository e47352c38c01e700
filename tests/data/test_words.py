from __future__ import annotations

import numpy as np
import pytest
import torch

from leakscope import data
from leakscope.data import RenderedWords, decode_texts, encode_texts
from leakscope.data.common_words import COMMON_WORDS
from leakscope.data.glyphs import TYPEFACES, draw_glyph, write_word
from leakscope.data.word_texts import CHARACTERS, is_held_out
from leakscope.data.words import numbers_at
from leakscope.errors import UsageError

STYLES = ["plain", "scene"]


def texts_of(words: RenderedWords, count: int) -> list[str]:
    return decode_texts(words.targets(range(count)))


@pytest.mark.parametrize("style", STYLES)
def test_a_word_depends_on_seed_and_index_alone(style: str) -> None:
    words = RenderedWords(style)
    together = words.batch([3, 10**12, 7])
    for row, index in enumerate((3, 10**12, 7)):
        alone = words.batch([index])
        assert torch.equal(alone.inputs[0], together.inputs[row])
        assert torch.equal(alone.targets[0], together.targets[row])
    other = RenderedWords(style, seed=1).batch([3, 7])
    assert not torch.equal(other.targets, together.targets[[0, 2]])
    assert not torch.equal(other.inputs, together.inputs[[0, 2]])


def test_texts_are_the_same_on_every_machine() -> None:
    """Whole-number arithmetic only: no font and no library has a part in what a word says."""
    assert texts_of(RenderedWords("plain"), 4) == PINNED_PLAIN
    assert texts_of(RenderedWords("scene", held_out=True), 4) == PINNED_SCENE


PINNED_PLAIN = ["RLZ", "FARM", "QG3AHT37Y", "REGULAR"]
PINNED_SCENE = ["GAEPIH", "REACH", "NOTE", "VVI"]


@pytest.mark.parametrize("style", STYLES)
def test_held_out_texts_never_occur_in_training_whatever_the_seed(style: str) -> None:
    training = {text for seed in (0, 5) for text in texts_of(RenderedWords(style, seed=seed), 20_000)}
    held_out = texts_of(RenderedWords(style, held_out=True, seed=9), 20_000)
    assert not training & set(held_out)
    codes = encode_texts(held_out, length=9).numpy() - 1
    assert bool(is_held_out(codes).all())


def test_texts_have_every_length_and_every_character_and_a_third_are_words() -> None:
    for held_out in (False, True):
        texts = texts_of(RenderedWords("plain", held_out=held_out), 20_000)
        assert {len(text) for text in texts} == set(range(3, 10))
        assert set("".join(texts)) == set(CHARACTERS)
        common = sum(text.lower() in COMMON_WORDS for text in texts) / len(texts)
        assert common == pytest.approx(0.35, abs=0.02)
        assert sum(text.isdigit() for text in texts) / len(texts) == pytest.approx(0.1, abs=0.01)
        # No character of random letters is rarer than the others.
        letters = "".join(text for text in texts if text.isalpha() and text.lower() not in COMMON_WORDS)
        shares = [letters.count(one) / len(letters) for one in CHARACTERS[10:]]
        assert max(shares) < 1.25 / 26
        assert min(shares) > 0.75 / 26


def test_training_words_are_almost_all_different() -> None:
    texts = texts_of(RenderedWords("plain"), 20_000)
    assert len({text for text in texts if text.lower() not in COMMON_WORDS}) > 11_000


def test_numbers_are_uniform_and_independent_of_their_neighbours() -> None:
    found = numbers_at(3, range(4_000), count=8)
    assert found.min() >= 0
    assert found.max() < 1
    assert found.mean(0) == pytest.approx(np.full(8, 0.5), abs=0.03)
    assert found.var(0) == pytest.approx(np.full(8, 1 / 12), abs=0.006)
    flat = np.corrcoef(np.concatenate([found[:-1], found[1:]], axis=1).T)
    assert np.abs(flat - np.eye(16)).max() < 0.07
    with pytest.raises(UsageError, match="≥ 0, got -1"):
        numbers_at(3, [2, -1], count=2)


def test_the_styles_are_clearly_different_and_their_text_can_be_seen() -> None:
    plain, scene = (RenderedWords(style).batch(range(100)).inputs for style in STYLES)
    assert plain.shape == scene.shape == (100, 3, 32, 100)
    assert torch.equal(plain[:, 0], plain[:, 1])
    assert not torch.equal(scene[:, 0], scene[:, 1])
    # Plain paper has the same tone along its edges; photographs do not.
    edges = [pictures[:, :, 0].std((1, 2)).median() for pictures in (plain, scene)]
    assert float(edges[0]) < 0.5 * float(edges[1])
    for pictures in (plain, scene):
        grey = pictures.mean(1).flatten(1)
        contrast = grey.quantile(0.97, 1) - grey.quantile(0.03, 1)
        assert float(contrast.min()) > 0.15
        assert float(contrast.median()) > 0.35


def test_every_typeface_has_every_character_and_tells_it_from_the_others() -> None:
    for typeface in TYPEFACES:
        drawn = {character: draw_glyph(typeface, character).tobytes() for character in CHARACTERS}
        assert len(set(drawn.values())) == len(CHARACTERS)
        assert all(draw_glyph(typeface, one.lower()).max() > 200 for one in CHARACTERS)
    assert len({draw_glyph(typeface, "A").tobytes() for typeface in TYPEFACES}) == len(TYPEFACES)
    narrow, wide = (write_word("ABC", "regular", spacing=spacing) for spacing in (0, 5))
    assert wide.shape[1] == narrow.shape[1] + 10
    assert narrow.max(0)[0] > 0
    assert narrow.max(0)[-1] > 0


def test_targets_and_texts_say_the_same() -> None:
    texts = ["A1Z", "0", "ZEBRA99"]
    targets = encode_texts(texts)
    assert targets.shape == (3, 7)
    assert targets[0].tolist() == [11, 2, 36, 0, 0, 0, 0]
    assert decode_texts(targets) == texts


@pytest.mark.parametrize("style", STYLES)
def test_named_sets_are_the_beginning_of_the_stream(style: str) -> None:
    name = f"words-{style}"
    facts = data.info(name)
    assert (facts.num_classes, facts.channels, facts.image_size) == (37, 3, (32, 100))
    facts.task.check_targets(data.load(name, indices=range(50)).targets, facts.num_classes)
    for split, held_out in (("train", False), ("test", True)):
        batch, own = data.load(name, split=split, indices=[5, 2]), RenderedWords(style, held_out=held_out).batch([5, 2])
        assert torch.equal(batch.inputs, own.inputs)
        assert torch.equal(batch.targets, own.targets)
    with pytest.raises(UsageError, match="0 … 1999"):
        data.load(name, indices=[2_000])
    assert data.load(name, indices=[0], size=(16, 50)).inputs.shape == (1, 3, 16, 50)


def test_an_unknown_style_is_named() -> None:
    with pytest.raises(UsageError, match=r"unknown style of words 'plian'. Did you mean 'plain'"):
        RenderedWords("plian")
