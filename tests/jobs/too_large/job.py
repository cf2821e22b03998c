"""Asks the device, and no CPU, for more than any machine has: 16 TiB at step 2."""

import torch


def model():
    return torch.nn.Linear(6, 3)


def batch(step):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(step)), torch.tensor(step)


def loss(model, batch):
    features, step = batch
    loss = model(features).square().mean()
    if features.device.type == "tpu" and step.item() == 2:
        loss = loss + torch.zeros(1 << 42, device=features.device).sum()
    return loss


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
