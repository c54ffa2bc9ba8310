"""Types that many packages share: what is written as JSON, and who is told how far something is."""

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
Say = Callable[[str], None]  # told in a line
Tick = Callable[[int, int], None]  # how much is done, of how much
Progress = Callable[[str, int, int], None]  # the same, and of what
