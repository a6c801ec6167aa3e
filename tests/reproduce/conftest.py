"""Makes the code of reproduce/ importable for the tests beside this file, as its own programs see it."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACES = (ROOT / "reproduce", *sorted(path for path in (ROOT / "reproduce").iterdir() if path.is_dir()))
sys.path[:0] = [str(path) for path in (*PLACES, ROOT / "tests" / "analysis" / "conditions", ROOT / "benchmarks")]
