"""An inference job: no optimizer, and outputs in a nest of everything that an interface may return."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class Request:
    features: torch.Tensor
    scale: float
    mask: dict


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    best: torch.Tensor
    count: int


def model():
    return torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 4)
    )


def batch(step):
    generator = torch.Generator().manual_seed(step)
    features = torch.randn(3 + step % 2, 6, generator=generator)
    return Request(features, 0.5 + step, {"keep": (torch.ones(6), [True, None])})


def forward(model, batch):
    logits = model(batch.features * batch.mask["keep"][0]) * batch.scale
    return {"answer": Answer(logits, logits.argmax(-1), len(logits)), "pair": (logits.softmax(-1), [0.25])}
