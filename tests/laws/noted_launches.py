"""Every launch of a kernel of ours, noted by a stand-in for CuPy, beside what each argument of it must be, by name."""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from pretended_cuda import module_with
from torch import Tensor, nn

from ringfence.classifiers import attention, fused, pooling
from ringfence.classifiers.architectures import resnet
from ringfence.classifiers.fused import FusedResNet
from ringfence.classifiers.fused.gradient import FusedGradients
from ringfence.classifiers.pooling import Layers
from ringfence.training import narrow

BY_CUPY = ("-ftz=true", "--device-as-default-execution-space")
"""Options of the compiler that CuPy adds to ours, and the architecture of the device."""
LAST = torch.channels_last
POOLED = (
    Layers((1, 28, 28), (5, 0, 20), (5, 0, 50)),
    Layers((1, 28, 28), (5, 2, 6), (5, 0, 16)),
    Layers((1, 28, 28), (3, 1, 32), (3, 1, 64)),
    Layers((3, 32, 32), (5, 0, 6), (5, 0, 16)),
    Layers((3, 32, 32), (5, 0, 6), (5, 0, 16), last=True),
    Layers((2, 13, 11), (4, 1, 7), (2, 0, 5)),
)
Wanted = dict[str, Tensor | int]
"""Of the arguments that can be known from outside, by the names that the source gives them."""


class Launch(NamedTuple):
    """A kernel's source, name and options, how many blocks and threads, shared memory asked for, and arguments."""

    text: str
    name: str
    options: tuple[str, ...]
    blocks: int
    threads: int
    shared: int
    arguments: tuple[Any, ...]

    @property
    def parameters(self) -> dict[str, str]:
        """Types by names, as the source has them."""
        (given,) = re.findall(rf"__global__[^;{{}}]*?\b{self.name}\(([^)]*)\)", self.text)
        return {name: kind for kind, name in (one.strip().rsplit(maxsplit=1) for one in given.split(","))}

    @property
    def named(self) -> dict[str, int]:
        """Arguments by name, each of the size that its type has; of how TMA sees a tensor, the tensor's place."""
        found = {}
        for (name, kind), one in zip(self.parameters.items(), self.arguments, strict=True):
            if kind.endswith("*"):
                assert type(one) is int, f"{name} of {self.name} is no pointer"
            elif kind == "int":
                assert type(one) is np.int32, f"{name} of {self.name} is no int"
            else:
                assert (kind.split()[-1], one.nbytes) == ("Map", 128), f"{name} of {self.name} is no map"
                one = one.view(np.uint64)[0]
            found[name] = int(one)
        return found


class _Kernel:
    """Notes its launches."""

    max_dynamic_shared_size_bytes: int

    def __init__(self, noted: Noted, text: str, name: str, options: tuple[str, ...]) -> None:
        self._noted, self._made = noted, (text, name, options)
        self.ptr = self

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
        assert self.max_dynamic_shared_size_bytes == shared_mem
        self._noted.launches.append(Launch(*self._made, *grid, *block, shared_mem, arguments))


class Noted:
    """A stand-in for CuPy, and for the driver that makes tensor maps, on a device of this architecture whose blocks can
    have so much shared memory."""

    def __init__(self, architecture: str, room: int) -> None:
        self.launches: list[Launch] = []
        self._architecture, self.room = architecture, room
        nvrtc = SimpleNamespace(
            createProgram=lambda text, *_: [text],
            compileProgram=lambda program, options: program.append(options),
            getCUBIN=lambda program: tuple(program),
            destroyProgram=lambda program: None,
            NVRTCError=RuntimeError,
        )
        driver = SimpleNamespace(
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
            funcSetAttribute=lambda kernel, _, size: setattr(kernel, "max_dynamic_shared_size_bytes", size),
        )
        self.cuda = SimpleNamespace(
            Device=lambda index: nullcontext(),
            nvrtc=nvrtc,
            driver=driver,
            function=SimpleNamespace(Module=self._module),
        )

    def RawKernel(self, text: str, name: str, options: tuple[str, ...]) -> _Kernel:
        return _Kernel(self, text, name, (*options, *BY_CUPY, f"-arch={self._architecture}"))

    def _module(self) -> Any:
        made: list[Any] = []

        def function(name: str) -> _Kernel:
            text, options = made
            return _Kernel(self, text, name, options)

        return SimpleNamespace(load=made.extend, get_function=function)

    def cuTensorMapEncodeTiled(self, place: Any, kind: int, axes: int, address: Any, *_: Any) -> int:
        """As if the tensor's place were all that a map holds."""
        ctypes.c_uint64.from_address(place.value).value = address.value
        return 0


def pretend(monkeypatch: pytest.MonkeyPatch, architecture: str, room: int) -> Noted:
    """Have kernels launched on a device of this architecture, whose blocks can have so much shared memory."""
    noted = Noted(architecture, room)
    device = SimpleNamespace(name=architecture, multi_processor_count=7, shared_memory_per_block_optin=room)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: device)
    monkeypatch.setitem(sys.modules, "cupy.cuda", noted.cuda)
    return noted


def of_scores(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    network = _network()
    form = FusedResNet(network)
    wanted: list[Wanted] = []
    for planar in (1, 0):
        x = torch.rand(5, 3, 32, 32).bfloat16().contiguous(memory_format=torch.contiguous_format if planar else LAST)
        scores = fused.launch(x, form.weights, form.numbers, form.blocks, form.classes)
        sizes = {"count": 5, "blocks": 2, "classes": 7, "planar": planar}
        wanted.append(
            {"images": x, "packed": form.weights, **_numbers(network, form.numbers), "scores": scores} | sizes
        )
    return wanted


def of_gradients(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    network = _network()
    form, slopes = FusedGradients(network).now(), torch.rand(5, 7)
    numbers = _numbers(network, form.numbers)
    sizes: Wanted = {"count": 5, "blocks": 2, "classes": 7, "planar": 0}
    images = torch.rand(5, 3, 32, 32).contiguous(memory_format=LAST)
    scores = form(seen := images.bfloat16().requires_grad_())
    (signs,) = scores.grad_fn.saved_tensors
    wanted: list[Wanted] = [{"images": seen, "packed": form.forth, **numbers, "scores": scores, "signs": signs} | sizes]
    scores = form(images.requires_grad_())
    (signs,) = scores.grad_fn.saved_tensors
    (found,) = torch.autograd.grad(scores, images, slopes)
    wanted.append({"packed": form.forth, **numbers, "scores": scores, "signs": signs} | sizes)
    numbers.pop("bias")
    back: Wanted = {"slopes": slopes, "signs": signs, "packed": form.back, **numbers, "gradients": found}
    return [*wanted, back | sizes]


def of_pooled_layers(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    wanted: list[Wanted] = []
    with module_with(noted, pooling.KERNEL, monkeypatch) as module:
        for layers in (one for one in POOLED if one.warps(noted.room)):
            x = torch.rand(5, *layers.image).bfloat16()
            x = x.contiguous(memory_format=LAST if layers.last else torch.contiguous_format)
            weights = [torch.rand(shape).bfloat16() for shape in layers.weights]
            names = zip(("weights1", "bias1", "weights2", "bias2"), weights, strict=True)
            wanted.append({"images": x, **dict(names), "out": module.pooled_twice(layers, x, *weights), "count": 5})
    return wanted


def of_attention(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    with module_with(noted, attention.KERNEL, monkeypatch) as module:
        monkeypatch.setattr(module, "_libcuda", lambda: noted)
        query, key, value = torch.rand(3, 5, 6, 197, 64).bfloat16()
        out = module.attention(query, key, value)
    return [{"query": query, "key": key, "value": value, "out": out, "rows": 197, "heads": 6, "images": 5}]


def of_narrow_convolutions(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> list[Wanted]:
    wanted: list[Wanted] = []
    with module_with(noted, narrow.KERNEL, monkeypatch) as module:
        for channels, side in narrow.SIDES.items():
            shape = (5, channels, side, side)
            x, gradient = (torch.rand(shape).bfloat16().contiguous(memory_format=LAST) for _ in range(2))
            weight = torch.rand(channels, channels, 3, 3).bfloat16().contiguous(memory_format=LAST)
            for back in (False, True):
                out = module.convolved(x, weight, back)
                wanted.append({"x": x, "weight": weight, "out": out, "images": 5})
            summed, shares = module.to_weight(x, gradient), {16: 5, 32: 3}[channels]
            found = noted.launches[-2].named["found"]  # which nobody else sees
            wanted.append({"x": x, "gradient": gradient, "found": found, "images": 5})
            wanted.append({"found": found, "out": summed, "shares": shares})
    return wanted


RUNS: dict[str, Callable[[Noted, pytest.MonkeyPatch], list[Wanted]]] = {
    "scores": of_scores,
    "gradients": of_gradients,
    "pooled layers": of_pooled_layers,
    "attention": of_attention,
    "narrow convolutions": of_narrow_convolutions,
}
"""What launches kernels, by what they are for."""


def launched(
    run: str, monkeypatch: pytest.MonkeyPatch, architecture: str = "sm_90", room: int = 227 * 1024
) -> list[tuple[Launch, Wanted]]:
    """The launches of a run, and what their arguments must be."""
    noted = pretend(monkeypatch, architecture, room)
    with module_with(noted, "ringfence.classifiers.pooled_kernel", monkeypatch):
        wanted = RUNS[run](noted, monkeypatch)
    return list(zip(noted.launches, wanted, strict=True))


def _network() -> Any:
    torch.manual_seed(0)
    return resnet(14, 7, "projection").eval()


def _numbers(network: nn.Module, numbers: Tensor) -> Wanted:
    """The biases, the last layer and the normalisation behind it."""
    biases = sum(one.num_features for one in network.modules() if isinstance(one, nn.BatchNorm2d))
    return {"bias": numbers, "head": numbers[biases:], "norm": numbers[biases + 7 * 64 + 7 :]}
