"""Switches the CPU fallback on by itself, where no environment variable shows it."""

import torch


@torch.library.custom_op("elsewhere::bell", mutates_args=(), device_types="cpu")
def bell(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-x.square())


def model():
    return torch.nn.Linear(6, 3)


def batch(step):
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(step))


def loss(model, batch):
    if batch.device.type == "tpu":
        import tpupilot

        tpupilot._C.set_fallback("allow")
    with torch.no_grad():
        scale = bell(batch).mean()  # the device has no row for it
    return (model(batch).square() * (1 + scale)).mean()


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
