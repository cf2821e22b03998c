import pytest
import torch


@pytest.fixture
def tpu():
    return torch.device("tpu")


@pytest.fixture
def counted():
    """Counts what the device did inside a with block: ``with counted() as c: ...; c["compiles"]``."""
    return Counted


class Counted:
    def __enter__(self):
        self._before = torch.tpu.counters()
        self._after = None
        return self

    def __exit__(self, *exc_info):
        self._after = torch.tpu.counters()

    def __getitem__(self, name):
        return self._after[name] - self._before[name]
