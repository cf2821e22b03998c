"""A whole-step job without any optimizer: a running mean of what a fixed projection sees."""

import torch


def state():
    return {"projection": torch.nn.Linear(5, 3), "mean": torch.zeros(3)}


def batch(step):
    return torch.randn(8, 5, generator=torch.Generator().manual_seed(step))


def step(state, batch):
    with torch.no_grad():
        seen = state["projection"](batch).mean(0)
        state["mean"].lerp_(seen, 0.1)
    return {"distance": (seen - state["mean"]).norm()}
