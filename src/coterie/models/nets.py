"""The paper's models (appendix C), for images of any size and number of classes."""

from math import prod

from torch import nn

from coterie.models.norm import LocalNorm


def make_sr(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Softmax regression: one linear layer."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), n_classes))


def make_2nn(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Perceptron with two hidden layers of 200 rectified units."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(input_shape), 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, n_classes),
    )


def image_shape(input_shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return channels, height and width of images."""
    if len(input_shape) != 3:
        raise ValueError(
            f"it needs images [channels, height, width], got {list(input_shape)}; try sr"
        )
    channels, height, width = input_shape
    return channels, height, width


def _response_norm() -> nn.Module:
    """Local response normalisation over 9 channels, with the constants the paper's code used."""
    return LocalNorm(9, alpha=0.001, k=1.0)


def make_cnn(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """Two 5x5 convolutions of 64 channels, then a hidden layer of 256.

    Pooling comes before the first ReLU: the same numbers, a quarter of the work.
    """
    channels, height, width = image_shape(input_shape)
    after = [((side - 4) // 2 - 4) // 2 for side in (height, width)]
    return nn.Sequential(
        nn.Conv2d(channels, 64, 5),  # [B, 64, 24, 24] for 28x28
        nn.MaxPool2d(2),  # [B, 64, 12, 12]
        nn.ReLU(),
        _response_norm(),
        nn.Conv2d(64, 64, 5),  # [B, 64, 8, 8]
        nn.ReLU(),
        _response_norm(),
        nn.MaxPool2d(2),  # [B, 64, 4, 4]
        nn.Flatten(),
        nn.Linear(64 * after[0] * after[1], 256),
        nn.ReLU(),
        nn.Linear(256, n_classes),
    )


def make_celeba_cnn(input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
    """LEAF's network for CelebA: four times convolution, batch norm, pooling, ReLU; then dense.

    Batch norm has no running statistics: as in LEAF it uses those of the batch, when evaluating
    too, so that averaging models averages its scales and shifts and nothing else.
    """
    channels, height, width = image_shape(input_shape)
    layers: list[nn.Module] = []
    for before in (channels, 32, 32, 32):
        layers += [
            nn.Conv2d(before, 32, 3, padding=1),  # [B, 32, 84, 84] at first
            nn.BatchNorm2d(32, eps=1e-3, track_running_stats=False),
            nn.MaxPool2d(2, ceil_mode=True),  # 84 -> 42 -> 21 -> 11 -> 6
            nn.ReLU(),
        ]
        height, width = (height + 1) // 2, (width + 1) // 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * height * width, n_classes))
