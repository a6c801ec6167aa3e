"""Tiny trainings: 96 inputs of 16 pixels, a network of two layers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from ringfence.training import DeviceData

FACTORY = '''"""A network for the tests of training."""
from torch import nn

def build(num_classes=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, num_classes))
'''


@pytest.fixture
def doubles() -> Iterator[None]:
    """References and objectives in float64, so that agreement means the formula and not luck."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def blobs(count: int = 96) -> tuple[np.ndarray, np.ndarray]:
    """Three kinds of images (1, 4, 4): bright in the first, second or third row."""
    random = np.random.default_rng(0)
    y = np.arange(count) % 3
    x = 0.3 * random.random((count, 4, 4), dtype=np.float32)
    x[np.arange(count), y] += 0.6
    return x, y.astype(np.int64)


@pytest.fixture
def data() -> DeviceData:
    x, y = blobs()
    return DeviceData(torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y), 3)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """An npz of training data and a file with a factory."""
    x, y = blobs()
    np.savez(tmp_path / "blobs.npz", x_train=x, y_train=y, x_test=x[:12], y_test=y[:12])
    (tmp_path / "nets.py").write_text(FACTORY)
    return tmp_path / "blobs.npz", tmp_path / "nets.py"
