"""Modules as most people write them, for images of SHAPE: some are rows of layers."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  as most people do

from coterie.models.norm import LocalNorm
from engines import CLASSES, SHAPE


class Usual(nn.Module):
    """PyTorch's first example, with as many channels as loops take."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 16, 3), nn.Conv2d(16, 32, 3)
        self.fc1, self.fc2 = nn.Linear(32 * 36, 12), nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.dropout(x, 0.25, training=self.training)
        x = torch.flatten(x, 1)
        x = F.dropout(self.fc1(x).relu(), training=self.training)
        return self.fc2(x)  # type: ignore[no-any-return]


class Shared(Usual):
    """Layers without weights that serve twice, and a view by the size."""

    def __init__(self) -> None:
        super().__init__()
        self.pool, self.relu, self.norm = nn.MaxPool2d(2, 2), nn.ReLU(), LocalNorm(3, 0.1)
        self.fc1 = nn.Linear(32 * 4, 12)
        self.fc2 = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        n = x.size(0)
        x = self.pool(self.relu(self.conv1(x)))
        x = self.norm(self.pool(self.relu(self.conv2(x))))
        return self.fc2(self.relu(self.fc1(x.reshape(n, -1))))  # type: ignore[no-any-return]


class Rows(nn.Module):
    """Rows of layers within, as torchvision writes them, and a view by numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(inplace=True), nn.MaxPool2d(3))
        )
        self.classifier = nn.Sequential(nn.Dropout(0.3), nn.Linear(16 * 25, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).view(-1, 16 * 25))  # type: ignore[no-any-return]


class Perceptron(nn.Module):
    """Linear layers in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(256, 9), nn.Linear(9, 7), nn.Linear(7, CLASSES)])

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(x.shape[0], -1)
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)  # type: ignore[no-any-return]


class Small(nn.Module):
    """One hidden layer; what follows changes one thing."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(256, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.body(x.flatten(1))))  # type: ignore[no-any-return]


class Training(Small):
    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x.flatten(1))
        return self.head(F.relu(x) if self.training else x)  # type: ignore[no-any-return]


class Evaluating(Small):
    """It drops in evaluation, too."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.dropout(F.relu(self.body(x.flatten(1)))))  # type: ignore[no-any-return]


class Counting(Small):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x)


class CountingInside(Small):
    def __init__(self) -> None:
        super().__init__()
        self.state: Any = SimpleNamespace(seen=[1])

    def forward(self, x: Tensor) -> Tensor:
        self.state.seen.append(1)
        return super().forward(x)


class Drawing(Small):
    """It draws a number that nobody looks at."""

    def forward(self, x: Tensor) -> Tensor:
        random.random()
        return super().forward(x)


class OwnDraws(Small):
    def __init__(self) -> None:
        super().__init__()
        self.random = random.Random(3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.random.random() < 0.99 else self.head(self.body(x))


class Twice(Small):
    def __init__(self) -> None:
        super().__init__()
        self.middle = nn.Linear(6, 6)
        self.body, self.head = self.body, self.head

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.body(x.flatten(1)))
        return self.head(F.relu(self.middle(F.relu(self.middle(x)))))  # type: ignore[no-any-return]


class Residual(Small):
    def __init__(self) -> None:
        super().__init__()
        del self.head
        self.middle, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.body(x.flatten(1)))
        return self.head(x + F.relu(self.middle(x)))  # type: ignore[no-any-return]


class Logarithms(Small):
    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(super().forward(x), dim=1)


class Unused(Small):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))


class Turned(Small):
    """The head is made first."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.head, self.body = nn.Linear(6, CLASSES), nn.Linear(256, 6)


class Without(Small):
    """No gradient reaches the body."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x = F.relu(self.body(x.flatten(1)))
        return self.head(x)  # type: ignore[no-any-return]


class Detached(Small):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.body(x.flatten(1))).detach())  # type: ignore[no-any-return]


class Rounded(Small):
    """It computes in half precision."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(x).double()


class Buffered(Small):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))


class Looking(Small):
    """What it does depends on the numbers."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if x.sum() > -1 else self.head(self.body(x.flatten(1)))


class TwoInputs(Small):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(x)


class Mixing(Small):
    """The view puts two halves of an example in two rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(128, 6)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.relu(self.body(x.view(-1, 128))))  # type: ignore[no-any-return]


class Kept(Small):
    """A layer stays in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def train(self, mode: bool = True) -> "Kept":
        super().train(mode)
        self.drop.eval()
        return self

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(F.relu(self.body(x.flatten(1)))))  # type: ignore[no-any-return]


class Memory:
    """A call that counts."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        return F.relu(x)


class Remembering(Small):
    def __init__(self) -> None:
        super().__init__()
        self.act = Memory()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.act(self.body(x.flatten(1))))  # type: ignore[no-any-return]


class CountingInItsClass(Small):
    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        CountingInItsClass.calls += 1
        x = self.body(x.flatten(1))
        return self.head(F.relu(x) if CountingInItsClass.calls < 40 else x)  # type: ignore[no-any-return]


class Listing(Small):
    calls: list[int] = []  # noqa: RUF012  what is shared is the point

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(1)
        x = self.body(x.flatten(1))
        return self.head(F.relu(x) if len(self.calls) < 40 else x)  # type: ignore[no-any-return]


calls = 0


class CountingInAGlobal(Small):
    def forward(self, x: Tensor) -> Tensor:
        global calls  # noqa: PLW0603  that is the point
        calls += 1
        x = self.body(x.flatten(1))
        return self.head(F.relu(x) if calls < 40 else x)  # type: ignore[no-any-return]


class Called(Small):
    def __call__(self, x: Tensor) -> Any:
        return -super().__call__(x)


def patched() -> nn.Module:
    model = Small()
    head = model.head.forward
    model.head.forward = lambda x: head(2 * x)  # type: ignore[assignment,method-assign]
    return model


def hooked() -> nn.Module:
    model = Small()
    model.body.register_forward_hook(lambda *_: None)
    return model


ROWS: dict[str, Callable[[], nn.Module]] = {
    "usual": Usual,
    "shared": Shared,
    "rows": Rows,
    "perceptron": Perceptron,
    "small": Small,
}
OTHERS: list[Callable[[], nn.Module]] = [
    *(Training, Evaluating, Counting, CountingInside, Drawing, OwnDraws, Twice, Residual),
    *(Logarithms, Unused, Turned, Without, Detached, Rounded, Buffered, Looking, TwoInputs),
    *(Mixing, Kept, Remembering, Called, patched, hooked),
    *(CountingInItsClass, CountingInAGlobal, Listing),
]
EXAMPLES = torch.zeros(3, *SHAPE)
