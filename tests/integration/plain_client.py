"""A client that has never heard of leakscope: plain PyTorch, one gradient, saved with numpy."""

import sys

import numpy as np
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.Sigmoid(), nn.Linear(48, 10))


if __name__ == "__main__":
    folder, image = sys.argv[1], np.load(sys.argv[2])
    net = build()
    loss = nn.functional.cross_entropy(net(torch.tensor(image)[None]), torch.tensor([7]))
    grads = torch.autograd.grad(loss, list(net.parameters()))
    names = [name for name, _ in net.named_parameters()]
    np.savez(f"{folder}/gradient.npz", **{name: g.numpy() for name, g in zip(names, grads, strict=True)})
    torch.save(net.state_dict(), f"{folder}/net.pt")
