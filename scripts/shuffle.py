"""A plugin of pytest: files in random order, and the tests of each, by $SHUFFLE_SEED.

SHUFFLE_SEED=7 PYTHONPATH=scripts python -m pytest -p shuffle
"""

import os
import random
from collections import defaultdict

import pytest

SEED = os.environ.get("SHUFFLE_SEED", "0")


def pytest_report_header() -> str:
    """Say how to have the same order again."""
    return f"shuffled: SHUFFLE_SEED={SEED}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the files, then the tests of each, in the same way in every process."""
    rng = random.Random(SEED)
    files: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[str(item.path)].append(item)
    order = sorted(files)
    rng.shuffle(order)
    for name in order:
        rng.shuffle(files[name])
    items[:] = [item for name in order for item in files[name]]
