"""The stand of the webhook tests as a fixture."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_spec = importlib.util.spec_from_file_location(
    "webhook_stand", Path(__file__).with_name("stand.py")
)
assert _spec is not None
assert _spec.loader is not None
module = importlib.util.module_from_spec(_spec)
sys.modules["webhook_stand"] = module
_spec.loader.exec_module(module)


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Make stands; they are taken down afterwards."""
    stands: list[Any] = []

    def build(**options: Any) -> Any:
        stands.append(module.Stand(**options))
        return stands[-1]

    yield build
    for stand in stands:
        stand.close()


@pytest.fixture
def stand(make: Callable[..., Any]) -> Any:
    """A receiver with the source github."""
    stand = make()
    stand.source()
    return stand
