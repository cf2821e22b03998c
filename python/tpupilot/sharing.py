"""Device tensors stay in the process that made them: sending one through ``torch.multiprocessing`` says so."""

import threading
from multiprocessing.reduction import ForkingPickler

import torch
from torch.multiprocessing import reductions

MESSAGE = (
    "a tpu tensor cannot be sent to another process: its memory belongs to this process's plugin. "
    "Send tensor.cpu(), and move it to the device where it arrives; a DataLoader's workers return CPU tensors."
)


def _refuse():
    raise RuntimeError(MESSAGE)


def _reduce(original, tensor):
    if tensor.device.type != "tpu":
        return original(tensor)
    if threading.current_thread() is threading.main_thread():
        _refuse()
    # A queue pickles on a thread of its own, which would print the error, drop the item, and leave the reader waiting.
    return _refuse, ()


def _reduce_tensor(tensor):
    return _reduce(reductions.reduce_tensor, tensor)


def _reduce_storage(storage):
    return _reduce(reductions.reduce_storage, storage)


def install():
    for kind in (torch.Tensor, torch.nn.Parameter):
        ForkingPickler.register(kind, _reduce_tensor)
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
