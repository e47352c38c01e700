"""Tokens read off an embedding: networks as BERT and GPT-2 are built, in plain torch."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch import Tensor, nn

from leakscope.audits.audit import audit
from leakscope.client import share
from leakscope.errors import UnsuitableError
from leakscope.metrics import score
from leakscope.observation import observe
from leakscope.registry import ATTACKS, get_attack
from leakscope.types import Batch, LocalTraining, Reconstruction, SharedUpdate, Status

WORDS, WIDTH, LENGTH, CLASSES = 120, 48, 10, 4


def _encoder(*, first: bool) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True, norm_first=first)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


class TinyBert(nn.Module):
    """Words, positions and segments are embedded, and the first place is classified."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = nn.Embedding(WORDS, WIDTH, padding_idx=0), nn.Embedding(LENGTH, WIDTH)
        self.segment, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH)
        self.encoder, self.head = _encoder(first=False), nn.Linear(WIDTH, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        places = self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.encoder(self.norm(self.word(ids) + places + self.segment(torch.zeros_like(ids))))[:, 0])


class TinyGpt(nn.Module):
    """The next word follows from the last place; the output layer is the embedding, `tied`."""

    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.encoder, self.norm = _encoder(first=True), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.norm(self.encoder(hidden, mask=mask))[:, -1])


def _model(kind: type[nn.Module], **options: bool) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(**options).eval()


def _texts(count: int, *, seed: int = 1) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(1, WORDS, (count, LENGTH), generator=draw)
    return Batch(ids, torch.randint(0, CLASSES, (count,), generator=draw))


STEPS = {
    "gradient": None,
    "sgd": LocalTraining(lr=0.05, steps=3, batch_size=1),
    "adam": LocalTraining(lr=0.01, steps=2, batch_size=2, optimiser="adam"),
    "decay": LocalTraining(lr=0.05, steps=2, batch_size=2, weight_decay=0.01),
}


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("count", [1, 3])
def test_an_encoder_gives_away_every_token_and_no_other(steps, count):
    model, texts = _model(TinyBert), _texts(count)
    update = share(model, texts, local=STEPS[steps], seed=0)
    found = get_attack("embedding-tokens").reconstruct(observe(model, update, scenario="C", truth=texts))
    assert found.tokens is not None
    assert found.tokens.tolist() == texts.inputs.unique().tolist()
    assert found.status is Status.OK


@pytest.mark.parametrize("count", [1, 3])
def test_a_tied_output_layer_is_told_apart(count):
    model, texts = _model(TinyGpt), _texts(count)
    update = share(model, texts, seed=0)
    assert isinstance(update, SharedUpdate)
    assert bool((update.tensors["wte.weight"] != 0).any(1).all())
    found = get_attack("embedding-tokens").reconstruct(observe(model, update, scenario="C", truth=texts))
    assert found.tokens is not None
    assert found.tokens.tolist() == texts.inputs.unique().tolist()
    # The label is a token as well, with a long row: it must not be taken for one that was put in.
    assert not bool(torch.isin(texts.targets, texts.inputs).any())


def test_a_tied_output_layer_that_fills_the_space_is_refused():
    model, texts = _model(TinyGpt), _texts(3)
    update = share(model, texts, local=STEPS["adam"], seed=0)
    with pytest.raises(UnsuitableError, match=r"is the output layer as well.*cannot be told"):
        get_attack("embedding-tokens").reconstruct(observe(model, update, scenario="C", truth=texts))


def test_an_audit_scores_recall_precision_labels_and_a_blind_guess():
    model, texts = _model(TinyBert), _texts(2)
    result = audit(model, texts, "embedding-tokens")
    assert result.scores is not None
    assert result.scores["token_recall"].tolist() == [1.0, 1.0]
    assert result.scores["token_precision"].tolist() == [1.0, 1.0]
    assert result.scores.label_correct.tolist() == [True, True]
    different = len(texts.inputs.unique())
    assert result.baselines["random tokens"].tolist() == pytest.approx([different / WORDS] * 2)
    assert any("neither their order" in note for note in result.notes)


def test_scores_count_what_is_missing_and_what_is_too_much():
    texts = Batch(torch.tensor([[1, 2, 3, 4], [5, 5, 5, 6]]), torch.tensor([0, 0]))
    listed = torch.full((2, 4), -1)
    found = Reconstruction(
        listed, torch.tensor([0, 1]), 0.0, Status.OK, tokens=torch.tensor([1, 2, 5, 9]), vocabulary=10
    )
    scores = score(found, texts)
    assert scores["token_recall"].tolist() == [0.5, 0.5]
    assert scores["token_precision"].tolist() == [0.75, 0.75]
    assert scores.label_correct.tolist() == [True, False]


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "embedding-tokens"])
def test_every_other_attack_refuses_tokens_and_names_this_one(name):
    model, texts = _model(TinyBert), _texts(1)
    seen = observe(model, share(model, texts, seed=0), scenario="A", truth=texts)
    options = {"prior": "smooth"} if name in ("gias", "ggl") else {}
    with pytest.raises(UnsuitableError, match=r"whole numbers \(tokens\).*embedding-tokens"):
        get_attack(name, **options).reconstruct(seen)


def test_pictures_and_a_missing_embedding_are_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    batch = Batch(torch.rand(1, 3, 2, 2), torch.tensor([1]))
    with pytest.raises(UnsuitableError, match="whole-number inputs"):
        audit(model, batch, "embedding-tokens")
    model, texts = _model(TinyBert), _texts(1)
    update = share(model, texts, seed=0)
    assert isinstance(update, SharedUpdate)
    kept = SharedUpdate("gradient", {"head.bias": update.tensors["head.bias"]}, 1)
    with pytest.raises(UnsuitableError, match="not part of the update"):
        get_attack("embedding-tokens").reconstruct(observe(model, kept, scenario="C", truth=texts))


def test_noise_leaves_only_rows_that_stand_out():
    model, texts = _model(TinyBert), _texts(2)
    few = audit(model, texts, "embedding-tokens", defence="gaussian-noise:sigma=1e-5")
    many = audit(model, texts, "embedding-tokens", defence="gaussian-noise:sigma=10")
    assert few.scores is not None
    assert many.scores is not None
    assert float(few.scores["token_recall"].min()) > 0.8
    assert float(few.scores["token_precision"].min()) > 0.9
    assert float(many.scores["token_recall"].max()) < 0.3


def test_the_contract_of_a_closed_form_on_tokens():
    model, texts = _model(TinyBert), _texts(2)
    seen = observe(model, share(model, texts, seed=0), scenario="A", truth=texts)
    attack = get_attack("embedding-tokens")
    before = {name: value.clone() for name, value in seen.model.state_dict().items()}
    first, second = attack.reconstruct(seen, seed=5), attack.reconstruct(seen, seed=6)
    assert first.tokens is not None
    assert second.tokens is not None
    assert torch.equal(first.tokens, second.tokens)
    assert attack.evaluate(seen, first) == first.loss
    assert first.loss < 1e-6
    assert first.targets is not None
    assert torch.equal(first.targets, texts.targets)
    assert all(torch.equal(before[name], value) for name, value in seen.model.state_dict().items())
    assert attack.with_effort(attack.effort) == attack
    assert pickle.loads(pickle.dumps(attack)) == attack
