"""How many times its size gzip packs: real files, and files of few colours, letters and labels.

    python benchmarks/packed.py FILE ...

The limit of data/files.py (PACKED_MOST) stands between the two. Files may be gzipped or plain.
"""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

PICTURES, SIZE = 10_000, 784


def main() -> None:
    """Print a line for every file, then for what is made up."""
    for name in sys.argv[1:]:
        content = Path(name).read_bytes()
        content = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        print(f"{ratio(content):8.1f}  {Path(name).name}")
    for name, content in made_up():
        print(f"{ratio(content):8.1f}  made up: {name}")


def ratio(content: bytes) -> float:
    """Return how many times its packed size a content is."""
    return len(content) / len(gzip.compress(content, 9))


def made_up() -> Iterator[tuple[str, bytes]]:
    """Yield contents that pack as well as honest ones may."""
    rng = np.random.default_rng(0)
    yield "60,000 white pictures, IDX", b"\xff" * SIZE * 60_000
    yield "697,934 labels in order", np.repeat(np.arange(62), 11_257).astype(np.uint8).tobytes()
    for n_black in (1, 5, 20):
        x = np.ones((PICTURES, SIZE))
        for _ in range(n_black):
            x[np.arange(PICTURES), rng.integers(0, SIZE, PICTURES)] = 0
        labels = rng.integers(0, 62, PICTURES)
        yield f"{n_black} black pixels, IDX", (x * 255).astype(np.uint8).tobytes()
        yield f"{n_black} black pixels, LEAF", leaf(x[:2000].tolist(), labels[:2000].tolist())
    yield "white pictures, LEAF", leaf([[1.0] * SIZE] * 2000, [0] * 2000)
    yield "one letter 80 times, LEAF", leaf(["a" * 80] * 20_000, ["a"] * 20_000)


def leaf(x: list[object], y: list[object]) -> bytes:
    """Write one user's examples as LEAF does."""
    data = {"users": ["u"], "num_samples": [len(y)], "user_data": {"u": {"x": x, "y": y}}}
    return json.dumps(data).encode()


if __name__ == "__main__":
    main()
