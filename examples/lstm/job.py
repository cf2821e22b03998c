"""A character LSTM with a hidden state that is carried from batch to batch, as a plain PyTorch job.

The text is cut into parallel streams; batch k continues where batch k - 1 stopped, and so does the hidden state, which lives in the
model's buffers and is detached between batches (truncated back-propagation). Gradients are clipped, and an exponential moving average
of the weights is kept beside the model. ``python job.py`` trains it for 200 steps on the CPU.
"""

import functools
import pathlib

import torch
from torch import nn

STREAMS, LENGTH, WIDTH, LAYERS = 8, 32, 64, 2
VOCABULARY = 128
DECAY = 0.99
clip = 0.5


@functools.cache
def streams():
    """[STREAMS, n] characters: n consecutive ones in each row."""
    folder = pathlib.Path(functools.__file__).parent
    source = (folder / "argparse.py").read_text(encoding="utf-8")
    ids = torch.tensor([min(ord(c), VOCABULARY - 1) for c in source], dtype=torch.int64)
    return ids[: len(ids) // STREAMS * STREAMS].view(STREAMS, -1)


def average_of(parameter):
    return "average_" + parameter.replace(".", "_")


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        for name in ("hidden", "cell"):
            self.register_buffer(name, torch.zeros(LAYERS, STREAMS, WIDTH))
        for name, p in list(self.named_parameters()):  # buffers go with the model: to its device, into its checkpoint
            self.register_buffer(average_of(name), p.detach().clone())

    def forward(self, ids):
        y, (hidden, cell) = self.lstm(self.embedding(ids), (self.hidden, self.cell))
        self.hidden, self.cell = hidden.detach(), cell.detach()
        return self.head(y)


def model():
    return CharLSTM()


def batch(step):
    per_epoch = (streams().size(1) - 1) // LENGTH
    start = step % per_epoch * LENGTH
    window = streams()[:, start : start + LENGTH + 1]
    return window[:, :-1], window[:, 1:]


def loss(model, batch):
    ids, targets = batch
    logits = model(ids)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()), {"logits": logits}


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=3e-3)


@torch.no_grad()
def after_update(model, step):
    for name, p in model.named_parameters():
        model.get_buffer(average_of(name)).lerp_(p, 1 - DECAY)


def main(steps=200):
    torch.manual_seed(0)
    net = model()
    opt = optimizer(net)
    for step in range(steps):
        opt.zero_grad()
        value, _ = loss(net, batch(step))
        value.backward()
        nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
        after_update(net, step)
        if (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {value.item():.4f}")


if __name__ == "__main__":
    main()
