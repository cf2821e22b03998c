"""Reads the clock: no two runs of it are the same."""

import time

import torch


def model():
    return torch.nn.Linear(3, 2)


def batch(step):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(step))


def loss(model, batch):
    return model(batch).square().mean() * (1 + time.time() % 1)


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
