"""A whole-step job with every kind of part, and data from an iterator that knows its position."""

import torch
from torch import nn


class Stream:
    """Endless batches; remembers how many it gave."""

    def __init__(self):
        self.given = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.given += 1
        generator = torch.Generator().manual_seed(self.given)
        return {"x": torch.randn(8, 6, generator=generator), "y": torch.randint(0, 3, (8,), generator=generator)}

    def state_dict(self):
        return {"given": self.given}

    def load_state_dict(self, state):
        self.given = state["given"]


def data():
    return Stream()


def state():
    encoder, head = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2)), nn.Linear(8, 3)
    temperature = torch.ones((), requires_grad=True)
    optimizer = torch.optim.Adagrad(
        [*encoder.parameters(), temperature], lr=0.1
    )  # its sums exist before the first step
    head_optimizer = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
    return {
        "encoder": encoder,
        "head": head,
        "temperature": temperature,
        "optimizer": optimizer,
        "head_optimizer": head_optimizer,
        "schedule": torch.optim.lr_scheduler.MultiStepLR(head_optimizer, milestones=[3, 6]),  # a Counter in its state
        "sampler": torch.Generator().manual_seed(5),
    }


def step(state, batch):
    for name in ("optimizer", "head_optimizer"):
        state[name].zero_grad()
    scale = 1 + torch.rand((), generator=state["sampler"]).item() / 10
    logits = state["head"](state["encoder"](batch["x"])) / state["temperature"]
    loss = nn.functional.cross_entropy(logits, batch["y"]) * scale
    loss.backward()
    for name in ("optimizer", "head_optimizer"):
        state[name].step()
    state["schedule"].step()
    return {"loss": loss, "scale": scale}
