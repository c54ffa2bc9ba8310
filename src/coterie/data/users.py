"""Which users of a dataset are kept."""

from dataclasses import replace

import numpy as np

from coterie.core.errors import DataError
from coterie.data.dataset import Dataset


def keep_users(dataset: Dataset, fewest: int, most: int | None) -> Dataset:
    """Keep the users with `fewest` examples or more; of these the `most` with most examples.

    Of users with as many examples the one that comes first is kept. Examples stay in their order.

    >>> x, users = np.zeros((6, 1), np.float32), np.array([0, 1, 1, 2, 2, 2])
    >>> data = Dataset("d", x, np.zeros(6, int), 1, users, ("a", "b", "c"))
    >>> kept = keep_users(data, 2, 1)
    >>> kept.users.tolist(), kept.user_names
    ([0, 0, 0], ('c',))
    """
    if dataset.users is None:
        raise DataError(
            f"data.min_examples and num_users are read with users, and {dataset.name} has none"
        )
    present, sizes = np.unique(dataset.users, return_counts=True)
    enough = present[sizes >= fewest]
    if not len(enough) or (most is not None and len(enough) < most):
        raise DataError(
            f"{dataset.name}: {len(enough):,} of {len(present):,} users have {fewest:,} examples "
            f"or more, {most or 1:,} must; lower data.min_examples or num_users"
        )
    order = np.argsort(-sizes[sizes >= fewest], kind="stable")[:most]
    chosen = np.sort(enough[order])
    kept = dataset.take(np.flatnonzero(np.isin(dataset.users, chosen)))
    assert kept.users is not None, "take keeps them"
    names = tuple(dataset.user_names[u] for u in chosen) if dataset.user_names else ()
    renumbered = np.searchsorted(chosen, kept.users).astype(np.int64)
    return replace(kept, users=renumbered, user_names=names)
