"""The loss is NaN from the third step on."""

import torch


def model():
    return torch.nn.Linear(3, 2)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    features = torch.randn(4, 3, generator=generator)
    if step >= 2:
        features[0, 0] = float("nan")
    return features


def loss(model, batch):
    return model(batch).square().mean()


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
