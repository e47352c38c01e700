"""Networks that predict a token at every place, as GPT-2 is trained: scores [n, length, words], targets [n, length]."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import leakscope as ls
from leakscope.errors import BadInputError, UnsuitableError
from leakscope.metrics import score
from leakscope.networks import usual_task
from leakscope.tasks import Classification, NextToken
from leakscope.types import Batch, LocalTraining, Reconstruction, SharedUpdate, Status

WORDS, WIDTH, LENGTH = 120, 48, 10


class TinyGpt(nn.Module):
    """The next word at every place; the output layer is the embedding, `tied`."""

    def __init__(self, *, tied: bool) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder, self.norm = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.wte.weight

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        return self.head(self.norm(self.encoder(hidden, mask=mask)))


def _gpt(*, tied: bool = True) -> TinyGpt:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return TinyGpt(tied=tied).eval()


def _texts(count: int) -> Batch:
    ids = torch.randint(1, WORDS, (count, LENGTH + 1), generator=torch.Generator().manual_seed(count))
    return Batch(ids[:, :-1].clone(), ids[:, 1:].clone())


SGD = LocalTraining(lr=0.05, steps=3, batch_size=1)
ADAM = LocalTraining(lr=0.01, steps=2, batch_size=2, optimiser="adam")


@pytest.mark.parametrize("local", [None, SGD, ADAM], ids=["gradient", "sgd", "adam"])
@pytest.mark.parametrize("count", [1, 3])
def test_every_token_and_no_other_is_read_off_an_embedding_of_its_own(local, count):
    model, texts = _gpt(tied=False), _texts(count)
    update = ls.share(model, texts, local=local, seed=0)
    found = ls.get_attack("embedding-tokens").reconstruct(ls.observe(model, update, scenario="C", truth=texts))
    assert found.tokens is not None
    assert found.tokens.tolist() == texts.inputs.unique().tolist()
    assert found.status is Status.OK


@pytest.mark.parametrize("count", [1, 3])
def test_a_tied_output_layer_is_told_apart_at_every_place_too(count):
    texts = _texts(count)
    result = ls.audit(_gpt(), texts, "embedding-tokens")
    assert result.scores is not None
    assert result.scores["token_recall"].tolist() == [1.0] * count
    assert result.scores["token_precision"].tolist() == [1.0] * count
    # The last word of a text was predicted and never put in.
    assert float(result.scores["target_recall"].min()) < 1
    assert any("labels are the tokens to be predicted" in note for note in result.notes)
    assert "100 % of the tokens" in repr(result)


@pytest.mark.parametrize(("count", "local"), [(8, None), (1, SGD), (3, SGD)], ids=["many-places", "one-text", "steps"])
def test_where_both_sides_cannot_be_told_apart_words_of_the_texts_stand_out(count, local):
    texts = _texts(count)
    result = ls.audit(_gpt(), texts, "embedding-tokens", local=local)
    assert result.scores is not None
    assert float(result.scores["token_recall"].min()) == 1
    assert float(result.scores["target_recall"].min()) == 1
    assert float(result.scores["token_precision"].min()) > 0.9


def test_a_tied_layer_after_adam_is_refused_by_name():
    with pytest.raises(UnsuitableError, match=r"is the output layer as well.*cannot be told"):
        ls.audit(_gpt(), _texts(1), "embedding-tokens", local=ADAM)


@pytest.mark.parametrize("scenario", ["A", "B", "C", "D", "E"])
def test_every_scenario_works_and_says_what_labels_are(scenario):
    model, texts = _gpt(tied=False), _texts(2)
    update = ls.share(model, texts, seed=0)
    granted = scenario in "AB"
    seen = ls.observe(
        model, update, scenario=scenario, input_shape=(LENGTH,), targets=texts.targets if granted else None
    )
    assert isinstance(seen.task, NextToken)
    found = ls.get_attack("embedding-tokens").reconstruct(seen)
    assert found.tokens is not None
    assert found.tokens.tolist() == texts.inputs.unique().tolist()
    assert (found.targets is not None) == granted
    said = "grants are tokens of the texts themselves" if granted else "labels are the tokens to be predicted"
    assert any(said in note for note in found.notes)


def test_the_update_is_the_gradient_of_the_mean_over_all_places():
    model, texts = _gpt(tied=False), _texts(2)
    update = ls.share(model, texts, seed=0)
    assert isinstance(update, SharedUpdate)
    loss = functional.cross_entropy(model(texts.inputs).transpose(1, 2), texts.targets)
    expected = torch.autograd.grad(loss, [model.wte.weight])[0]
    assert torch.allclose(update.tensors["wte.weight"], expected, atol=1e-7)


def test_a_loss_of_ones_own_works_as_well():
    def loss(scores: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(scores.transpose(1, 2), targets)

    result = ls.audit(_gpt(), _texts(1), "embedding-tokens", loss=loss)
    assert result.scores is not None
    assert float(result.scores["token_recall"].min()) == 1


def test_targets_that_are_the_inputs_are_shifted_where_that_is_said():
    texts = _texts(2)
    same = Batch(texts.inputs, texts.inputs)
    result = ls.audit(_gpt(tied=False), same, "embedding-tokens", task=NextToken(shift=True))
    assert result.scores is not None
    # Nothing is predicted from the last word, so its row stays zero.
    assert result.scores["target_recall"].tolist() == pytest.approx([0.9, 0.9])
    assert result.scores["token_precision"].tolist() == [1.0, 1.0]
    task = NextToken(shift=True)
    scores = torch.randn(2, LENGTH, WORDS, generator=torch.Generator().manual_seed(0))
    expected = functional.cross_entropy(scores[:, :-1].transpose(1, 2), texts.inputs[:, 1:])
    assert torch.allclose(task.loss(scores, texts.inputs), expected)


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (torch.zeros(2, dtype=torch.long), "one for every place"),
        (torch.zeros(2, LENGTH), "int64 tokens"),
        (torch.zeros(2, LENGTH - 1, dtype=torch.long), "one target for every place"),
        (torch.full((2, LENGTH), WORDS), "tokens from 0 to 119"),
        (torch.full((2, LENGTH), -100), "none that counts"),
    ],
    ids=["one-a-text", "floats", "too-few", "out-of-range", "all-ignored"],
)
def test_targets_that_do_not_fit_end_in_one_error(targets, said):
    with pytest.raises(BadInputError, match=said):
        ls.audit(_gpt(), Batch(_texts(2).inputs, targets), "embedding-tokens")


def test_every_other_attack_refuses_and_names_this_one():
    with pytest.raises(UnsuitableError, match=r"whole numbers \(tokens\).*embedding-tokens"):
        ls.audit(_gpt(), _texts(1), "inverting-gradients")


def test_places_that_do_not_count_are_no_targets():
    truth = Batch(torch.tensor([[1, 2, 3]]), torch.tensor([[-100, 7, 9]]))
    found = Reconstruction(
        torch.full((1, 3), -1), None, 0.0, Status.OK, tokens=torch.tensor([1, 2, 7, 11]), vocabulary=20
    )
    scores = score(found, truth)
    assert scores["target_recall"].tolist() == [0.5]
    assert scores["token_precision"].tolist() == [0.75]
    assert scores["token_recall"].tolist() == pytest.approx([2 / 3])
    assert scores.label_correct.tolist() == [False]
    task, logits = NextToken(), torch.zeros(1, 3, 20)
    logits[0, 1, 7], logits[0, 2, 9] = 9.0, 9.0
    assert task.count_correct(logits, truth.targets) == 1
    logits[0, 1, 7] = -9.0
    assert task.count_correct(logits, truth.targets) == 0
    assert task.decode(logits).shape == (1, 3)


def test_other_networks_are_still_taken_for_classifiers():
    assert usual_task(_gpt(), (LENGTH,)) == NextToken()
    pooled = nn.Sequential(nn.EmbeddingBag(WORDS, 8), nn.Linear(8, 3))
    words = nn.Sequential(nn.Embedding(WORDS, 8), nn.Flatten(), nn.Linear(8 * LENGTH, 3))
    pictures = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    assert all(isinstance(usual_task(model, (LENGTH,)), Classification) for model in (pooled, words))
    assert isinstance(usual_task(pictures, (3, 2, 2)), Classification)
