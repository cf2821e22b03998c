"""Hugging Face's Qwen3, built from its config class and reduced in width and depth, on the bytes of Python's own source.

Nothing is downloaded: the weights are new, and the model is the library's unchanged code (grouped-query attention, RMS norm of queries
and keys, rotary positions, SwiGLU, tied embeddings). ``python job.py`` trains it for 100 steps on the CPU.
"""

import functools
import pathlib

import torch

LENGTH, BATCH_SIZE = 64, 4
clip = 1.0


@functools.cache
def source():
    return torch.frombuffer(bytearray(pathlib.Path(functools.__file__).read_bytes()), dtype=torch.uint8).long()


def model():
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=256, hidden_size=128, intermediate_size=384, num_hidden_layers=2, num_attention_heads=8,
        num_key_value_heads=4, head_dim=32, max_position_embeddings=LENGTH, tie_word_embeddings=True, use_cache=False,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(len(source()) - LENGTH, (BATCH_SIZE, 1), generator=generator)
    ids = source()[starts + torch.arange(LENGTH)]
    return {"input_ids": ids, "labels": ids}


def loss(model, batch):
    output = model(**batch)
    return output.loss, {"logits": output.logits}


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.1)


def scheduler(optimizer):
    from transformers import get_cosine_schedule_with_warmup

    return get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=5, num_training_steps=100)


def tokens(batch):
    return batch["input_ids"].numel()


def main(steps=100):
    torch.manual_seed(0)
    net = model()
    opt = optimizer(net)
    schedule = scheduler(opt)
    for step in range(steps):
        opt.zero_grad()
        value, _ = loss(net, batch(step))
        value.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        opt.step()
        schedule.step()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1}: loss {value.item():.4f}")


if __name__ == "__main__":
    main()
