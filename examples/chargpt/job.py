"""A decoder-only transformer that learns the characters of Python's own standard library, as a plain PyTorch job.

Pre-norm blocks, causal attention, tied embeddings, dropout, AdamW with decay on matrices only, gradient clipping, warm-up. The text
comes with every Python. ``python job.py`` trains it for 200 steps on the CPU.
"""

import functools
import pathlib

import torch
from torch import nn

CONTEXT, WIDTH, HEADS, BLOCKS, BATCH_SIZE = 64, 128, 4, 2, 8
VOCABULARY = 128  # ASCII; any other character becomes 0
DROPOUT = 0.1
clip = 1.0


@functools.cache
def text():
    """The source of a few modules as one int64 tensor of characters."""
    folder = pathlib.Path(functools.__file__).parent
    source = "".join((folder / f"{name}.py").read_text(encoding="utf-8") for name in ("argparse", "typing", "tarfile"))
    return torch.tensor([c if c < VOCABULARY else 0 for c in map(ord, source)], dtype=torch.int64)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(DROPOUT)
        )

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        p = DROPOUT if self.training else 0.0
        y = nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + nn.functional.dropout(self.out(y.transpose(1, 2).reshape(n, t, -1)), p, self.training)
        return x + self.mlp(self.norm2(x))


class CharGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.dropout(self.tokens(ids) + self.positions(torch.arange(ids.size(1), device=ids.device)))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def model():
    return CharGPT()


def batch(step):
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(len(text()) - CONTEXT - 1, (BATCH_SIZE, 1), generator=generator)
    windows = text()[starts + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:]


def loss(model, batch):
    ids, targets = batch
    logits = model(ids)
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()), {"logits": logits}


def optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95))


def scheduler(optimizer):
    return torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=10)


def tokens(batch):
    return batch[0].numel()


def main(steps=200):
    torch.manual_seed(0)
    net = model()
    opt = optimizer(net)
    schedule = scheduler(opt)
    for step in range(steps):
        opt.zero_grad()
        value, _ = loss(net, batch(step))
        value.backward()
        nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
        schedule.step()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {value.item():.4f}")


if __name__ == "__main__":
    main()
