"""The tests of reports need what draws them."""

from __future__ import annotations

import pytest

pytest.importorskip("altair", reason="needs the report extra")
