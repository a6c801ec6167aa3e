"""Writes the embedded digits: MNIST test images 0, 20, ..., 9980 and their labels.

python tools/make_default_data.py --data mnist.npz --out src/ringfence/data/embedded/mnist500.npz
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="MNIST as npz with x_test and y_test")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    index = np.arange(0, 10_000, 20, dtype=np.int64)
    with np.load(options.data) as arrays:
        x, y = arrays["x_test"][index], arrays["y_test"][index]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out, x=x.astype(np.uint8), y=y.astype(np.int64), index=index)
    print(f"{options.out}: {len(x)} digits, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
