"""Values and scripts inside a page: escaped so that no name can become markup, hashed so that nothing else may run."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from ringfence.report import need

_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
SCRIPTS = ("page.js", "table.js", "gallery.js", "frontier.js")


def script_json(value: Any) -> str:
    """JSON that may stand inside a script element: no tag, comment or entity can begin in it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return "".join(_UNSAFE.get(letter, letter) for letter in text) if any(c in text for c in _UNSAFE) else text


def packed(value: Any) -> str:
    """Gzipped JSON in base64: what the browser unpacks itself; equal values give equal text."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


@cache
def vega() -> str:
    """Vega, Vega-Lite and vega-embed as one script that sets window.vegaEmbed; no part of it loads anything."""
    convert, bundled = need("vl_convert"), need("altair.utils._importers")
    bundle: str = convert.javascript_bundle(vl_version=bundled.vl_version_for_vl_convert())
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--").replace("\r", "")


def static(name: str) -> str:
    """A style sheet or script of this package."""
    return (files("ringfence.report") / "static" / name).read_text(encoding="utf-8")


def digest(script: str) -> str:
    """The script's name in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def policy(scripts: list[str]) -> str:
    """Nothing may be loaded from anywhere and only these scripts may run, whatever a page's data says."""
    return (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src {' '.join(digest(script) for script in scripts)}"
    )
