"""The client: it trains on its own pictures and sends its weights back."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from leakscope.federated import flower  # leakscope
from quickstart.task import Net, evaluate, pictures, test_pictures, train

app = ClientApp(mods=[flower.partition_mod, flower.defence_mod("prune:fraction=0.9")])  # leakscope


@app.train()
def train_round(message: Message, context: Context) -> Message:
    """Train on the model that was handed out."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batch, told = pictures(int(context.node_config["partition-id"])), context.run_config
    loss = train(
        net,
        batch,
        epochs=int(told["local-epochs"]),
        lr=float(told["learning-rate"]),
        batch_size=int(told["batch-size"]),
    )
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(batch)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_round(message: Message, context: Context) -> Message:
    """Test the model that was handed out."""
    net = Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    batch = test_pictures()
    loss, accuracy = evaluate(net, batch)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(batch)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
