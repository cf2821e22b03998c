"""A convolutional network on scikit-learn's images of handwritten digits, as a plain PyTorch job.

Plain functions, no import of tpupilot: this is what a pilot needs of a job. ``python job.py`` trains it for three epochs on the
CPU. The data ships with scikit-learn: 1,797 images of 8x8 pixels.
"""

import functools

import torch
from torch import nn

BATCH_SIZE = 64
STEPS_PER_EPOCH = 28  # the last incomplete batch is left out, as DataLoader(drop_last=True) does


@functools.cache
def data():
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    return images, torch.tensor(digits.target, dtype=torch.int64)


def model():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 2 * 2, 10),
    )


def batch(step):
    images, labels = data()
    epoch, position = divmod(step, STEPS_PER_EPOCH)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(epoch))
    chosen = order[position * BATCH_SIZE : (position + 1) * BATCH_SIZE]
    return images[chosen], labels[chosen]


def loss(model, batch):
    images, labels = batch
    logits = model(images)
    return nn.functional.cross_entropy(logits, labels), {"logits": logits}


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


def scheduler(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10 * STEPS_PER_EPOCH)


def main(epochs=3):
    torch.manual_seed(0)
    net = model()
    opt = optimizer(net)
    schedule = scheduler(opt)
    for step in range(epochs * STEPS_PER_EPOCH):
        opt.zero_grad()
        value, _ = loss(net, batch(step))
        value.backward()
        opt.step()
        schedule.step()
        if (step + 1) % STEPS_PER_EPOCH == 0:
            print(f"epoch {step // STEPS_PER_EPOCH}: loss {value.item():.4f}")


if __name__ == "__main__":
    main()
