"""A generative adversarial network on scikit-learn's digits, as a job that gives its whole step.

Two networks and two optimizers do not fit the plain form: ``state()`` names the parts, ``step(state, batch)`` does everything and
returns the figures to watch. The generator's noise is drawn inside the step; an average of the generator's weights is a bare tensor.
``python job.py`` trains it for five epochs on the CPU.
"""

import functools

import torch
from torch import nn

BATCH_SIZE, NOISE, STEPS_PER_EPOCH = 64, 16, 28
DECAY = 0.99


@functools.cache
def images():
    from sklearn.datasets import load_digits

    return torch.tensor(load_digits().images, dtype=torch.float32).unsqueeze(1) / 8.0 - 1.0


def state():
    generator = nn.Sequential(
        nn.Linear(NOISE, 32 * 2 * 2),
        nn.Unflatten(1, (32, 2, 2)),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, stride=2, padding=1),
        nn.Tanh(),
    )
    discriminator = nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, stride=2, padding=1),
        nn.BatchNorm2d(32),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 1),
    )
    return {
        "generator": generator,
        "discriminator": discriminator,
        "average": torch.cat([p.detach().flatten() for p in generator.parameters()]),
        "generator_optimizer": torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
        "discriminator_optimizer": torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999)),
    }


def batch(step):
    epoch, position = divmod(step, STEPS_PER_EPOCH)
    order = torch.randperm(len(images()), generator=torch.Generator().manual_seed(epoch))
    return images()[order[position * BATCH_SIZE : (position + 1) * BATCH_SIZE]]


def step(state, batch):
    generator, discriminator = state["generator"], state["discriminator"]
    real, fake = torch.ones(len(batch), 1, device=batch.device), torch.zeros(len(batch), 1, device=batch.device)
    criterion = nn.functional.binary_cross_entropy_with_logits
    made = generator(torch.randn(len(batch), NOISE, device=batch.device))

    state["discriminator_optimizer"].zero_grad()
    discriminator_loss = criterion(discriminator(batch), real) + criterion(discriminator(made.detach()), fake)
    discriminator_loss.backward()
    state["discriminator_optimizer"].step()

    state["generator_optimizer"].zero_grad()
    generator_loss = criterion(discriminator(made), real)
    generator_loss.backward()
    state["generator_optimizer"].step()

    weights = torch.cat([p.detach().flatten() for p in generator.parameters()])
    state["average"].lerp_(weights, 1 - DECAY)
    return {
        "loss": discriminator_loss + generator_loss,
        "discriminator": discriminator_loss,
        "generator": generator_loss,
    }


def main(epochs=5):
    torch.manual_seed(0)
    parts = state()
    for number in range(epochs * STEPS_PER_EPOCH):
        figures = step(parts, batch(number))
        if (number + 1) % STEPS_PER_EPOCH == 0:
            print(", ".join(f"{name} {value.item():.4f}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
