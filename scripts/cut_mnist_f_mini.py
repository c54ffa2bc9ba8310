"""Cut `mnist-f-mini` out of Fashion-MNIST: 700 images a class, 7,000 in all.

Usage: python scripts/cut_mnist_f_mini.py [FOLDER]

FOLDER holds the four IDX files; by default they are where `coterie data fetch mnist-f` or Debian's
package `dataset-fashion-mnist` puts them. The choice is seeded, so the result is always the same.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

from coterie.data import EMBEDDED, load

PER_CLASS = 700


def main(folder: Path | None) -> None:
    """Write the embedded file and print its size and digest."""
    full = load("mnist-f", folder)
    rng = np.random.default_rng(2020)
    chosen = np.concatenate(
        [
            rng.choice(np.flatnonzero(full.y == c), PER_CLASS, replace=False)
            for c in range(full.n_classes)
        ]
    )
    chosen.sort()
    np.savez_compressed(EMBEDDED, x=full.x[chosen, 0], y=full.y[chosen].astype(np.uint8))
    digest = hashlib.sha256(full.x[chosen, 0].tobytes() + full.y[chosen].tobytes()).hexdigest()
    print(f"{EMBEDDED.name}: {len(chosen)} images, {EMBEDDED.stat().st_size:,} bytes")
    assert full.test is not None
    print(f"from the official test part: the last {full.test[chosen].sum():,}")
    print(f"sha256 of pixels and labels: {digest}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
