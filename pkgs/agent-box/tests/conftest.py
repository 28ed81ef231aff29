"""What holds for all tests of the package."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says more about what else the machine does than about the product.
settings.register_profile("agent-box", deadline=None)
settings.load_profile("agent-box")
