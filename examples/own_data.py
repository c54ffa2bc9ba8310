"""Your own data: a function that returns a `coterie.Dataset`, named by its import path.

Run it:  cd examples && coterie run quickstart --set data.name=own_data:load \
             --set partition.kind=natural --set train.lr=0.1
Look at it first:  coterie data show quickstart --set data.name=own_data:load ...
"""

import numpy as np

import coterie


def load() -> coterie.Dataset:
    """Return made-up readings of 12 sensors in 60 homes; each home does some of 4 things more."""
    rng = np.random.default_rng(0)
    home = np.repeat(np.arange(60), 50)  # whose example it is, for partition.kind = "natural"
    habits = rng.dirichlet(np.full(4, 0.3), 60)
    y = np.array([rng.choice(4, p=habits[h]) for h in home])
    x = (rng.normal(size=(len(y), 12)) + np.eye(4, 12)[y] * 2).astype(np.float32)
    return coterie.Dataset("homes", x, y, n_classes=4, users=home)
