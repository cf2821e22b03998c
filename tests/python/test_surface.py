"""What PyTorch's generic code, and users of ``torch.cuda``, expect of a device beside its ops: docs/device.md."""

import copy
import gc
import io
import pathlib
import pickle
import time

import pytest
import torch
from interpreter import printed, run_python
from torch import nn
from torch.utils.checkpoint import checkpoint

FAKE_PLUGIN = pathlib.Path(__file__).resolve().parents[2] / "build" / "tests" / "fake_plugin.so"

MODULE_NAMES = """
is_available device_count current_device set_device device device_of synchronize init is_initialized _is_in_bad_fork
_lazy_init manual_seed manual_seed_all seed seed_all initial_seed get_rng_state set_rng_state get_rng_state_all
set_rng_state_all default_generators get_amp_supported_dtype is_bf16_supported memory_allocated max_memory_allocated
memory_reserved max_memory_reserved reset_peak_memory_stats reset_accumulated_memory_stats empty_cache mem_get_info
memory_stats Stream Event StreamContext current_stream default_stream set_stream stream is_current_stream_capturing
_initialized _get_generator get_device_properties get_device_name get_device_capability OutOfMemoryError counters reset_counters support_matrix
""".split()


@pytest.mark.parametrize("name", MODULE_NAMES)
def test_the_device_module_has(name):
    torch.tpu.init()
    assert getattr(torch.tpu, name) is not None
    assert torch.get_device_module("tpu") is torch.tpu is torch.get_device_module()


def test_names_of_cuda_that_make_no_sense_here_say_where_to_read():
    with pytest.raises(AttributeError, match=r"torch\.cuda\.nvtx has no counterpart.*docs/device\.md"):
        _ = torch.tpu.nvtx
    with pytest.raises(AttributeError, match="no attribute 'nonsense'$"):
        _ = torch.tpu.nonsense


@pytest.mark.parametrize(
    "call", [torch.tpu.memory_stats, torch.tpu.set_device, torch.tpu.device, torch.tpu.current_stream]
)
def test_a_device_argument_of_another_type_raises(call):
    for device in ("cuda", torch.device("cpu")):
        with pytest.raises(ValueError, match=f"expected a tpu device, but got: {device}"):
            call(device)


# ---- torch.accelerator ----
def test_accelerator(tpu):
    accelerator = torch.accelerator
    assert accelerator.is_available() and accelerator.current_accelerator(check_available=True) == tpu
    assert accelerator.device_count() == torch.tpu.device_count() >= 1
    accelerator.set_device_index("tpu:0")
    with accelerator.device_index(0):
        assert accelerator.current_device_index() == 0
    accelerator.synchronize()
    assert accelerator.current_stream().device == torch.device("tpu:0")
    accelerator.empty_cache()
    accelerator.empty_host_cache()
    free, total = accelerator.get_memory_info()
    assert 0 < free <= total


# Blocks of 1 MiB, 32 at once: without the setting malloc returns them to the system, 256 page faults each.
FREED = """
import resource, torch
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def resident(): return int(open("/proc/self/statm").read().split()[1])
x = torch.ones(512, 512).to("tpu")
def step():
    kept = [x + 1 for _ in range(32)]
    torch.accelerator.synchronize()
for _ in range(16): step()  # until the heap has room for all, with its gaps
before = faults()
for _ in range(4): step()
again = faults() - before
held = resident()
torch.tpu.empty_cache()
print(again, held - resident())
"""


@pytest.mark.parametrize("environment", [{}, {"MALLOC_TRIM_THRESHOLD_": "1048576"}], ids=["ours", "the user's"])
def test_freed_memory_serves_the_next_tensors(tpu, environment):
    # In one arena: which thread's arena a block comes from, and what else that holds, is chance.
    again, returned = map(int, printed(FREED, MALLOC_ARENA_MAX="1", **environment).split())
    if environment:
        assert again > 4 * 31 * 256 and returned < 256
    else:
        assert again < 8 * 256 and returned > 31 * 256  # 128 blocks were made


def test_accelerator_capability_names_the_dtypes_that_exist(tpu):
    dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.complex128, torch.bool} <= dtypes
    assert torch.float8_e4m3fn not in dtypes and torch.qint8 not in dtypes
    for dtype in dtypes:
        torch.empty(2, dtype=dtype, device=tpu)
    with pytest.raises(NotImplementedError, match="no element type"):
        torch.empty(2, dtype=torch.complex32, device=tpu)


def test_accelerator_memory_statistics(tpu):
    accelerator = torch.accelerator
    gc.collect()  # what earlier tests left in cycles would be freed between two readings
    accelerator.reset_peak_memory_stats()
    accelerator.reset_accumulated_memory_stats()
    before = accelerator.memory_stats()
    x = torch.empty(1000, device=tpu)
    during = accelerator.memory_stats()
    del x
    after = accelerator.memory_stats()
    for name, size in (("allocated_bytes", 4000), ("reserved_bytes", 4000), ("allocation", 1), ("active", 1)):
        key = f"{name}.all."
        assert during[key + "current"] == before[key + "current"] + size
        assert after[key + "current"] == before[key + "current"]
        assert after[key + "peak"] == before[key + "current"] + size
        assert (before[key + "allocated"], after[key + "allocated"], after[key + "freed"]) == (0, size, size)
    assert accelerator.max_memory_allocated() == accelerator.memory_allocated() + 4000
    assert accelerator.max_memory_reserved() == accelerator.memory_reserved() + 4000


def test_memory_as_the_plugin_tells_it():
    code = """
        import torch
        torch.tpu.init()
        print(*torch.tpu.mem_get_info(), *torch.accelerator.get_memory_info(), torch.tpu.get_device_properties().total_memory)
    """
    assert printed(code, TPUPILOT_PLUGIN=str(FAKE_PLUGIN)) == "4000 5000 4000 5000 5000"


# ---- pinned memory ----
def test_pinned_memory(tpu):
    for x in (torch.arange(12.0), torch.arange(12).view(3, 4).t(), torch.tensor(3.0), torch.empty(0)):
        p = x.pin_memory()
        assert p.device.type == "cpu" and p.stride() == x.stride() and torch.equal(p, x)
        assert p.is_pinned() == (x.numel() > 0) and not x.is_pinned()
        assert torch.equal(p.to(tpu, non_blocking=True).cpu(), x)
    p = torch.empty(64, 2, pin_memory=True)
    assert p.is_pinned() and p[3:].is_pinned() and not p.clone().is_pinned() and p.pin_memory() is p
    assert torch.ones(3).untyped_storage().pin_memory().is_pinned()


def test_memory_is_pinned_only_while_it_lives():
    p = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
    address = p.data_ptr()
    del p
    assert not torch.frombuffer(bytearray(8), dtype=torch.uint8).is_pinned()
    q = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)  # the allocator may hand out the same block
    assert q.is_pinned() and address != 0


@pytest.mark.parametrize("make", [lambda x: x.pin_memory(), lambda x: torch.empty(x.shape, pin_memory=True).copy_(x)])
def test_a_pinned_tensor_may_be_written_after_its_upload(make, tpu, counted):
    x = torch.arange(100_000.0)
    p = make(x)
    with counted() as c:
        y = p.to(tpu, non_blocking=True)
    assert c["zero_copy_uploads"] == 1  # the device reads the pinned memory itself
    p.zero_()
    assert torch.equal(y.cpu(), x) and p.is_pinned()
    y.add_(1)
    assert p.sum().item() == 0


def test_a_staging_buffer_is_used_again(tpu):
    staging, kept = torch.empty(50_000, pin_memory=True), []
    for i in range(4):
        staging.copy_(torch.full((50_000,), float(i)))
        kept.append(staging.to(tpu, non_blocking=True))
    assert [k.mean().item() for k in kept] == [0.0, 1.0, 2.0, 3.0] and staging.is_pinned()


def test_pinned_memory_that_numpy_shares_is_copied(tpu, counted):
    p = torch.arange(100_000.0).pin_memory()
    expected, shared = p.clone(), p.numpy()
    with counted() as c:
        y = p.to(tpu, non_blocking=True)
    assert c["zero_copy_uploads"] == 0
    shared[:] = 0
    assert torch.equal(y.cpu(), expected)
    z = p.to(tpu)
    p.copy_(expected)
    q = expected.pin_memory()
    w = q.to(tpu)
    q.numpy()[:] = 7  # shared only after the upload
    assert z.sum().item() == 0 and torch.equal(w.cpu(), expected)


def test_pinned_memory_can_be_resized_as_other_memory():
    p = torch.arange(4.0).pin_memory()
    p.resize_(1000)
    assert p.is_pinned() and p[:4].tolist() == [0.0, 1.0, 2.0, 3.0]


def test_non_blocking_copies(tpu):
    x = torch.arange(10.0, device=tpu)
    host = x.to("cpu", non_blocking=True)
    assert host.is_pinned() and host.tolist() == list(range(10))
    target = torch.zeros(5, pin_memory=True)
    target.copy_(x[::2], non_blocking=True)
    assert target.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert x.to(torch.float64, non_blocking=True).dtype == torch.float64
    x.copy_(torch.zeros(10), non_blocking=True)
    assert x.sum().item() == 0


# ---- streams and events ----
@pytest.fixture
def busy(tpu):
    """Gives the device some tenths of a second of work, and returns without waiting for it."""
    a = torch.full((1500, 1500), 1e-4, device=tpu)
    (a @ a).sum().item()  # compiled

    def work():
        b = a
        for _ in range(3):
            b = b @ a
        return b

    torch.tpu.synchronize()
    return work


def test_an_event_waits_for_what_was_enqueued_before_it_and_is_not_held_up_itself(busy):
    idle, start, end = (torch.tpu.Event(enable_timing=True) for _ in range(3))
    idle.record()
    assert idle.query()
    start.record()
    began = time.perf_counter()
    result = busy()
    end.record()
    enqueued = time.perf_counter() - began
    assert not end.query() and not torch.tpu.current_stream().query()
    with pytest.raises(RuntimeError, match="must be completed"):
        start.elapsed_time(end)
    end.synchronize()
    waited = time.perf_counter() - began
    assert end.query() and torch.tpu.current_stream().query()
    assert enqueued < waited / 2
    elapsed = start.elapsed_time(end) / 1e3
    assert enqueued < elapsed <= waited  # the time when the device was done, not when the host asked for the event
    assert end.elapsed_time(start) < 0 <= idle.elapsed_time(start)
    del result


def test_an_event_stays_at_what_it_recorded(busy):
    first, second = torch.tpu.Event(enable_timing=True), torch.tpu.Event(enable_timing=True)
    first.record()
    kept = [busy()]
    second.record()
    kept.append(busy())
    second.synchronize()
    assert first.query() and second.query() and not torch.tpu.current_stream().query()
    second.record()  # again: now it is behind the later work
    assert not second.query()
    torch.tpu.synchronize()
    assert second.query() and first.elapsed_time(second) > 0


def test_events_do_not_keep_results_alive(busy):
    before = torch.tpu.memory_allocated()
    event = torch.Event("tpu")
    busy()
    event.record()
    assert torch.tpu.memory_allocated() == before
    event.synchronize()


def test_events_count_an_upload_and_say_what_they_cannot_do(tpu):
    event = torch.Event(tpu)
    assert event.query()  # never recorded
    event.synchronize()
    torch.ones(8).to(tpu)
    event.record()
    event.synchronize()
    assert event.query() and event.device == torch.device("tpu:0")
    with pytest.raises(ValueError, match="enable_timing=True"):
        event.elapsed_time(event)
    timed = torch.Event(tpu, enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        timed.elapsed_time(timed)
    with pytest.raises(NotImplementedError):
        event.ipc_handle()


def test_streams(tpu):
    default = torch.tpu.default_stream()
    assert torch.tpu.current_stream() == default == torch.accelerator.current_stream() and default.stream_id == 0
    one, two = torch.tpu.Stream(device=tpu), torch.Stream("tpu:0", priority=-1)
    assert one != two and one != default and one.device == torch.device("tpu:0")
    with torch.tpu.stream(one):
        assert torch.tpu.current_stream() == one
        x = torch.ones(3, device=tpu) + 1
        with two:
            assert torch.tpu.current_stream() == two
            two.wait_stream(one)
            event = two.record_event()
        with torch.tpu.stream(None), torch.tpu.stream(one):  # the same again
            one.wait_event(event)
            event.wait(one)
        assert torch.tpu.current_stream() == one
    assert torch.tpu.current_stream() == default
    torch.tpu.set_stream(two)
    try:
        assert torch.tpu.current_stream() == two
        y = (x.requires_grad_() * 2).sum()
        y.backward()
    finally:
        torch.tpu.set_stream(default)
    x.record_stream(one)
    one.synchronize()
    assert one.query() and x.grad.tolist() == [2.0, 2.0, 2.0] and not torch.tpu.is_current_stream_capturing()
    with pytest.raises(NotImplementedError, match="native handle"):
        _ = one.native_handle


def test_an_error_of_the_device_shows_in_the_event(tmp_path):
    out = printed(
        """
        import torch
        torch.ones(3, device="tpu")  # its program fails later
        event = torch.Event("tpu")
        event.record()
        for wait in (event.synchronize, torch.tpu.synchronize, torch.tpu.synchronize):
            try:
                wait()
                print("no error")
            except RuntimeError as error:
                print(error)
        """,
        TPUPILOT_PLUGIN=str(FAKE_PLUGIN),
        TPUPILOT_CACHE_DIR=str(tmp_path),
        FAKE_PJRT_ASYNC_ERROR="1",
    ).splitlines()
    assert "[Event.synchronize]" in out[0] and "asynchronous fault" in out[0] and "asynchronous fault" in out[1]
    assert out[-1] == "no error"


def test_two_devices():
    out = printed(
        """
        import torch
        tpu = torch.tpu
        assert torch.accelerator.device_count() == tpu.device_count() == 2
        with tpu.device("tpu:1"):
            assert tpu.current_device() == 1 and tpu.current_stream().device.index == 1
            x = torch.ones(2, device="tpu")
        assert x.device.index == 1 and tpu.current_device() == 0
        with tpu.device_of(x), torch.accelerator.device_index(None):
            assert tpu.current_device() == 1
        assert torch.ones(1).tpu(1).device.index == 1 and torch.ones(1).untyped_storage().tpu(1).device.index == 1
        assert tpu.memory_allocated(1) == 8 and tpu.memory_allocated("tpu:0") == 0
        s = tpu.Stream(device="tpu:1")
        with tpu.stream(s):
            assert tpu.current_device() == 1 and tpu.current_stream() == s and tpu.current_stream(0).stream_id == 0
        assert tpu.current_device() == 0
        # A device that follows another's event is not done before it.
        a = torch.full((1500, 1500), 1e-4, device="tpu:1")
        (a @ a).sum().item()
        b = a @ a @ a
        s.record_event().wait(tpu.current_stream(0))
        later = tpu.current_stream(0).record_event()
        assert not later.query() and not tpu.current_stream(0).query()
        tpu.synchronize(0)
        assert later.query() and tpu.current_stream(1).query()
        # Random numbers: a generator each.
        tpu.manual_seed_all(5)
        assert torch.equal(torch.rand(3, device="tpu:0").cpu(), torch.rand(3, device="tpu:1").cpu())
        states = tpu.get_rng_state_all()
        with torch.random.fork_rng(devices=[0, 1], device_type="tpu"):
            first = [torch.rand(2, device=f"tpu:{i}").cpu() for i in (0, 1)]
        assert all(torch.equal(torch.rand(2, device=f"tpu:{i}").cpu(), first[i]) for i in (0, 1))
        tpu.set_rng_state_all(states)
        assert torch.equal(torch.rand(2, device="tpu:1").cpu(), first[1])
        tpu.seed_all()
        assert len(tpu.default_generators) == 2 and tpu.default_generators[1].device.index == 1
        y = torch.ones(2, device="tpu:1", requires_grad=True)
        (y.to("tpu:0") * 3).sum().backward()
        assert y.grad.device.index == 1 and y.grad.tolist() == [3, 3]
        try:
            tpu.set_device(2)
        except RuntimeError as error:
            print(error)
        """,
        TPUPILOT_DEVICES="2",
    )
    assert out == "there is no device tpu:2; 2 exist(s)"


# ---- random numbers, checkpointing, mixed precision ----
def test_generators(tpu):
    a = torch.Generator(tpu).manual_seed(7)
    torch.rand(3, device=tpu, generator=a)
    b, c = pickle.loads(pickle.dumps(a)), a.clone_state()
    expected = torch.rand(3, device=tpu, generator=a)
    assert b.device == torch.device("tpu:0") and b.initial_seed() == 7
    assert torch.equal(torch.rand(3, device=tpu, generator=b), expected)
    assert torch.equal(torch.rand(3, device=tpu, generator=c), expected)
    a.set_offset(0)
    assert a.get_offset() == 0
    before = torch.tpu.initial_seed()
    torch.tpu.seed()
    assert torch.tpu.initial_seed() != before
    torch.tpu.manual_seed(11)
    assert torch.tpu.initial_seed() == 11
    with pytest.raises(RuntimeError, match="16 bytes"):
        torch.tpu.set_rng_state(torch.get_rng_state())


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_part_draws_the_same_numbers_again(reentrant, tpu):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.5), nn.Linear(32, 4)).to(tpu)
    x = torch.randn(8, 16, device=tpu)

    def gradients(forward):
        torch.manual_seed(1)
        leaf = x.clone().requires_grad_()
        model.zero_grad()
        forward(leaf).square().sum().backward()
        return [leaf.grad.cpu()] + [p.grad.cpu() for p in model.parameters()]

    plain = gradients(model)
    again = gradients(lambda leaf: checkpoint(model, leaf, use_reentrant=reentrant))
    for one, other in zip(plain, again, strict=True):
        assert torch.equal(one, other)
    with torch.autocast("tpu", dtype=torch.bfloat16):
        y = checkpoint(model, x.clone().requires_grad_(), use_reentrant=reentrant)
    y.sum().backward()
    assert y.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_the_scaler(dtype, tpu):
    x = torch.ones(4, 4, device=tpu)
    assert torch.amp.is_autocast_available("tpu")
    with torch.autocast("tpu", dtype=dtype):
        assert torch.is_autocast_enabled("tpu") and torch.get_autocast_dtype("tpu") == dtype
        assert (x @ x).dtype == dtype and (x @ x).softmax(-1).dtype == torch.float32
        with torch.autocast("tpu", enabled=False):
            assert (x @ x).dtype == torch.float32
    with pytest.warns(UserWarning, match="only supports dtypes of torch.bfloat16, torch.float16"):
        torch.autocast("tpu", dtype=torch.float64)
    scaler = torch.amp.GradScaler("tpu", init_scale=8.0)
    assert scaler.is_enabled() and scaler.scale(x.sum()).item() == 128.0

    class Twice(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="tpu", cast_inputs=dtype)
        def forward(ctx, value):
            return value * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="tpu")
        def backward(ctx, gradient):
            return gradient * 2

    with torch.autocast("tpu", dtype=dtype):
        assert Twice.apply(x).dtype == dtype


# ---- storages, copies, other processes ----
def test_methods_named_after_the_device(tpu):
    assert torch.ones(2).tpu().is_tpu and not torch.ones(2).is_tpu
    assert nn.Linear(2, 2).tpu().weight.is_tpu
    packed = nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4), [3, 2])
    assert packed.tpu().is_tpu and not packed.is_tpu
    with pytest.raises(RuntimeError, match="there is no device tpu:5|device_count"):
        torch.ones(2).tpu(5)


def test_storages(tpu):
    x = torch.arange(4, dtype=torch.uint8, device=tpu)
    storage = x.untyped_storage()
    assert storage.is_tpu and storage.device == torch.device("tpu:0") and storage.nbytes() == len(storage) == 4
    assert storage.data_ptr() == x.data_ptr() == x.view(2, 2).data_ptr() != x.clone().data_ptr()
    assert storage.cpu().tolist() == storage.tolist() == [0, 1, 2, 3] and storage[2] == 2
    moved = storage.cpu().tpu()
    assert moved.is_tpu and moved.tolist() == [0, 1, 2, 3] and storage.tpu() is storage
    moved.fill_(9)
    assert moved.tolist() == [9] * 4 and storage.clone().tolist() == [0, 1, 2, 3]
    moved.copy_(storage)
    assert torch.tensor([], dtype=torch.uint8, device=tpu).set_(moved).tolist() == [0, 1, 2, 3]
    with pytest.warns(UserWarning, match="TypedStorage is deprecated"):
        assert x.storage().is_tpu and x.cpu().storage().tpu().tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match=r"Tensor\.cpu\(\)"):
        x.numpy()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_copies_and_pickles(dtype, tpu):
    base = torch.tensor([[0, 1, 2], [3, 0, 5]]).to(dtype)
    x = base.to(tpu)
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.device == x.device and torch.equal(twin.cpu(), base)
        twin.zero_()
    assert torch.equal(x.cpu(), base)
    legacy = io.BytesIO()
    torch.save({"x": x, "t": x.t()}, legacy, _use_new_zipfile_serialization=False)
    legacy.seek(0)
    back = torch.load(legacy, weights_only=True)
    assert torch.equal(back["t"].cpu(), base.t()) and back["x"].device == x.device
    back["x"].zero_()
    assert not back["t"].any().item()  # one storage, as before
    copied = copy.deepcopy(nn.ParameterList([nn.Parameter(x.float())]))
    assert copied[0].is_tpu and copied[0].requires_grad


def test_an_exchanged_tensor_shares_memory_or_raises(tpu):
    x = torch.arange(4.0, device=tpu)
    y = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    y.add_(1)
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    part = torch.from_dlpack(torch.utils.dlpack.to_dlpack(x[1:]))
    with pytest.raises(RuntimeError, match="only a whole storage can be shared"):
        part + 1
    with pytest.raises(RuntimeError, match="not resizable"):
        y.untyped_storage().resize_(64)


def test_swap_tensors(tpu):
    a, b = torch.ones(2, device=tpu), torch.zeros(3, device=tpu)
    torch.utils.swap_tensors(a, b)
    assert a.tolist() == [0.0] * 3 and b.tolist() == [1.0] * 2
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        layer = nn.Linear(2, 2)
        weight = layer.weight
        assert layer.to(tpu).weight is weight and weight.is_tpu
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def test_optimizers_may_use_their_fast_forms_here():
    from torch.utils import _foreach_utils

    assert "tpu" in _foreach_utils._get_foreach_kernels_supported_devices()
    assert "tpu" in _foreach_utils._get_fused_kernels_supported_devices()


def test_a_tensor_is_not_sent_to_another_process(tpu):
    from multiprocessing.reduction import ForkingPickler

    for thing in (torch.ones(2, device=tpu), nn.Linear(2, 2).to(tpu), torch.ones(2, device=tpu).untyped_storage()):
        with pytest.raises(RuntimeError, match=r"cannot be sent to another process.*tensor\.cpu\(\)"):
            ForkingPickler.dumps(thing)
    assert torch.equal(pickle.loads(ForkingPickler.dumps(torch.ones(2))), torch.ones(2))


# ---- workers ----
class Squares(torch.utils.data.Dataset):
    def __init__(self, device="cpu"):
        self.device = device

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.full((20_000,), float(index * index), device=self.device), index


@pytest.mark.parametrize("workers,start", [(0, None), (2, "fork"), pytest.param(1, "spawn", marks=pytest.mark.slow)])
def test_a_loader_with_pinned_memory(workers, start, tpu):
    torch.ones(1, device=tpu)
    loader = torch.utils.data.DataLoader(
        Squares(), batch_size=4, pin_memory=True, num_workers=workers, multiprocessing_context=start
    )
    seen = []
    for values, indices in loader:
        assert values.is_pinned() and indices.is_pinned()
        on_device = values.to(tpu, non_blocking=True)
        values.zero_()
        seen += [(i, v) for i, v in zip(indices.tolist(), on_device.mean(1).tolist(), strict=True)]
    assert seen == [(i, float(i * i)) for i in range(8)]


def test_workers_that_touch_the_device_get_an_error_not_a_hang():
    code = """
        import sys, torch
        from torch.utils.data import DataLoader
        class Bad(torch.utils.data.Dataset):
            def __len__(self): return 4
            def __getitem__(self, i): return torch.ones(2, device="tpu")
        if {first}:
            torch.ones(1, device="tpu")
        try:
            for batch in DataLoader(Bad(), num_workers=1, timeout=60):
                print(batch)
        except RuntimeError as error:
            print(error)
    """
    after = printed(code.format(first=True))
    assert "forked after the device was initialised" in after and "spawn" in after
    # A worker that is first to use the device has one of its own, but cannot hand its tensors over.
    assert "cannot be sent to another process" in printed(code.format(first=False))


def test_a_forked_child_cannot_wait_for_the_device():
    out = run_python(
        """
        import os, torch
        x = torch.ones(2, device="tpu")
        event = torch.Event("tpu")
        event.record()
        pid = os.fork()
        if pid == 0:
            refused = 0
            calls = [torch.tpu.synchronize, event.record, torch.tpu.current_stream().query, x.cpu, x.sum,
                     lambda: torch.ones(3).to("tpu"), torch.tpu._lazy_init]
            for call in calls:
                try:
                    call()
                except RuntimeError as error:
                    refused += "fork" in str(error)
            assert torch.tpu._is_in_bad_fork() and torch.ones(100_000).pin_memory().sum() == 100_000
            torch.manual_seed(3)
            del x
            os._exit(0 if refused == len(calls) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        """
    )
    assert out.stdout.strip() == "0", out.stderr
