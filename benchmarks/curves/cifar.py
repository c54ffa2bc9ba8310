"""The `arrays` of cells.py: 600 CIFAR-10 images of every class, in grey and in 16 x 16 pixels.

Usage: python benchmarks/curves/cifar.py cifar10-jpeg.tar.gz arrays.npz. The archive has
train/<class>/*.jpg. Which images there are, and in which order, is by chance with seed 0.
"""

import io
import sys
import tarfile
from collections import defaultdict
from pathlib import PurePosixPath

import numpy as np
from PIL import Image

EACH, SIDE = 600, 16


def main() -> None:
    """Read the archive, and write the .npz."""
    archive, out = sys.argv[1:]
    packed: dict[str, list[tuple[str, bytes]]] = defaultdict(list)
    with tarfile.open(archive) as files:
        for entry in files:
            path = PurePosixPath(entry.name)
            if path.suffix == ".jpg" and path.parts[0] == "train":
                packed[path.parts[1]].append((path.name, files.extractfile(entry).read()))  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    xs, ys = [], []
    for label, name in enumerate(sorted(packed)):
        every = sorted(packed[name])
        for at in rng.choice(len(every), EACH, replace=False):
            grey = Image.open(io.BytesIO(every[at][1])).convert("L")
            xs.append(np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX)))
            ys.append(label)
    order = rng.permutation(len(ys))
    np.savez(out, x=np.stack(xs)[order], y=np.array(ys)[order])


if __name__ == "__main__":
    main()
