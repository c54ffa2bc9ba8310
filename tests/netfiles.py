"""Network files that are refused in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest

from coterie.core.errors import TopologyError
from coterie.topology import Speed

DEFAULT = Speed(bytes_per_s=100e6, latency_s=0.001)


def refusal(path: Path, read: Callable[[], object]) -> str:
    with pytest.raises(TopologyError) as caught:
        read()
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")
