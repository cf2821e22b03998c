"""A small classifier with everything a checkpoint has to carry: dropout, momentum, a scheduler, a running average."""

import torch

STEPS_IN_DATA = 8


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(12, 16),
        torch.nn.BatchNorm1d(16),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(16, 4),
    )


def batch(step):
    generator = torch.Generator().manual_seed(1000 + step % STEPS_IN_DATA)
    features = torch.randn(10, 12, generator=generator)
    labels = torch.randint(0, 4, (10,), generator=generator)
    return features, labels


def loss(model, batch):
    features, labels = batch
    logits = model(features)
    return torch.nn.functional.cross_entropy(logits, labels), {"logits": logits}


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
