"""A job with a checkpoint format of its own: a folder of one torch.save file a part, and a line of JSON."""

import json
import pathlib

import torch


def model():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 2))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(5, 6, generator=generator), torch.randint(0, 2, (5,), generator=generator)


def loss(model, batch):
    features, labels = batch
    return torch.nn.functional.cross_entropy(model(features), labels)


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=3)


def checkpoint(state, path):
    folder = pathlib.Path(path)
    folder.mkdir()
    for name in ("model", "optimizer", "scheduler"):
        torch.save(state[name].state_dict(), folder / f"{name}.pt")
    torch.save(state["rng"], folder / "rng.pt")
    (folder / "position.json").write_text(json.dumps(state["data"]))


def restore(path):
    folder = pathlib.Path(path)
    names = ("model", "optimizer", "scheduler", "rng")
    found = {name: torch.load(folder / f"{name}.pt", map_location="cpu", weights_only=True) for name in names}
    return {**found, "data": json.loads((folder / "position.json").read_text())}
