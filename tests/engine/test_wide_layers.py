"""How many examples go through a module at once."""

import torch
from torch import nn

from coterie.engine.module import WIDE_VALUES, FlatModule


def test_a_wide_layer_is_given_few_examples_at_once() -> None:
    x = torch.zeros(3, 16)
    narrow, wide = (
        nn.Sequential(nn.Linear(16, d), nn.ReLU(), nn.Linear(d, 2)) for d in (200, 9000)
    )
    assert FlatModule(narrow).chunk(x) == 2048 * 784 // 16  # as by the examples alone
    assert FlatModule(wide).chunk(x) == WIDE_VALUES // 9000
