"""Array shapes in signatures: checked while the tests run, and never needed to use the library.

``Float[Tensor, "rows members classes"]`` is a plain Tensor to readers, type checkers and users; where jaxtyping is
installed, tests/conftest.py switches on a check of the named axes at every call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Float as Float
    from jaxtyping import Int as Int
else:
    try:
        from jaxtyping import Float, Int
    except ImportError:

        class _Plain:
            """Float[Tensor, "axes"] -> Tensor."""

            def __class_getitem__(cls, item: Any) -> Any:
                return item[0]

        Float = Int = _Plain
