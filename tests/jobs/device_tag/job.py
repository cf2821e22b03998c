"""A running average whose state names the device it lived on: what it saves there loads nowhere else."""

import torch


class Average:
    def __init__(self, model):
        self.model = model
        self.values = [p.detach().clone() for p in model.parameters()]

    def update(self):
        self.values = [
            0.9 * a.to(p.device) + 0.1 * p.detach() for a, p in zip(self.values, self.model.parameters(), strict=True)
        ]

    def state_dict(self):
        return {"values": [v.tolist() for v in self.values], "device": str(self.values[0].device)}

    def load_state_dict(self, state):
        self.values = [torch.tensor(v, device=state["device"]) for v in state["values"]]


def state():
    model = torch.nn.Linear(6, 3)
    return {"model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "average": Average(model)}


def batch(step):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(step))


def step(state, batch):
    state["optimizer"].zero_grad()
    loss = state["model"](batch).square().mean()
    loss.backward()
    state["optimizer"].step()
    state["average"].update()
    return {"loss": loss}
