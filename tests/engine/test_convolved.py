"""Networks of convolutions written out give what their modules give, on any number of cores."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import engines as few
from coterie.core.errors import DivergenceError, ModelError
from coterie.engine.contract import LocalSteps
from coterie.engine.kernels.convolved import MUCH, Convolved, numbers_of_an_example
from coterie.engine.kernels.dense import find_chain
from coterie.engine.kernels.dropping import Factors, draws_alike
from coterie.engine.kernels.stages import Convolution, Norm, Pool, Pooled, Relu, find_net
from coterie.engine.local_rule import LocalRule
from coterie.engine.module import Nodes
from coterie.engine.sequential import Sequential
from coterie.engine.vectorized import Vectorized
from coterie.models.norm import LocalNorm
from coterie.simulation.algorithms import ALGORITHMS
from engines import CLASSES, EVERYONE, engines, nodes_of, rounding, same, train

pytest.importorskip("numba", reason="Numba is not installed")


def dropping() -> nn.Module:
    """Dropout before and between linear layers, as in most networks for small pictures."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Dropout(0.25), nn.Flatten(), nn.Linear(32 * 36, 12), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(12, CLASSES),
    )


def odd() -> nn.Module:
    """Strides, padding, no bias, a window of three, and places that no window covers."""
    return nn.Sequential(
        nn.Conv2d(1, 32, (5, 3), stride=2, padding=(3, 1), bias=False),  # [B, 32, 9, 8]
        *(nn.ReLU(), nn.MaxPool2d(3), LocalNorm(5, 0.1, 2.0)),  # [B, 32, 3, 2]
        *(nn.Conv2d(32, 16, (1, 2), (1, 2), 1), LocalNorm(35, 0.5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.MaxPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(32, CLASSES, bias=False)),
    )


@pytest.fixture
def nets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the engines of a test know these, too."""
    for name, make in (("dropping", dropping), ("odd", odd)):
        monkeypatch.setitem(few.MODULES, name, make)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("batch_size", [1, 3, 5, 8, 40])
@pytest.mark.parametrize("name", ["cnn", "dropping", "odd"])
def test_every_batch_size_gives_what_the_plain_engine_gives(name: str, batch_size: int) -> None:
    same(*engines(name, batch_size, kernel="convolved"), tau1=2)


@pytest.mark.usefixtures("nets")
def test_single_batches_are_steps_too() -> None:
    same(*engines("dropping", 5, unit="batch", kernel="convolved"), tau1=3)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("name", ["fedprox", "scaffold", "feddyn", "fednova"])
def test_whatever_is_added_to_sgd_is_left_to_the_module(name: str) -> None:
    update = ALGORITHMS[name].update
    rule = LocalRule(update=update)
    same(*engines("dropping", 5, rule, kernel="convolved"), tau1=2, update=update)
    same(*engines("dropping", 5, LocalRule(momentum=0.9), kernel="convolved"), tau1=2)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_colours_and_numbers_are_taken_as_they_are(kind: type) -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([6, 9, 4])
    x: NDArray[Any] = rng.integers(0, 255, (19, 3, 9, 7)).astype(kind)
    y = rng.integers(0, CLASSES, 19)
    model = nn.Sequential(
        *(nn.Conv2d(3, 16, 3), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(16 * 6, CLASSES)),
    ).double()
    held = {"val": (x[:5], y[:5]), "test": (x, y)}
    steps = LocalSteps(0.1 if kind is np.uint8 else 1e-4, 0.9, 4, "epoch", 0)
    before = x.copy()
    nodes = Nodes(x, y, sizes)
    plain = Sequential(copy.deepcopy(model), nodes, held, steps)  # type: ignore[arg-type]
    fast = Vectorized(model, nodes, held, steps, kernel="convolved")  # type: ignore[arg-type]
    z = np.zeros(3, dtype=np.int64)
    ours, theirs = (e.advance(e.initial(), 0, 2, z).w for e in (fast, plain))
    assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    assert not torch.equal(ours, fast.initial().w)
    assert (x == before).all()


def test_single_precision_is_off_by_rounding_alone() -> None:
    double, _ = engines("cnn", 5)
    _, single = engines("cnn", 5, dtype=torch.float32, kernel="convolved")
    wide, narrow = train(double, 4, 2).w[0], train(single, 4, 2).w[0]
    assert narrow.dtype == torch.float32
    assert 0 < float((wide - narrow.double()).norm()) <= rounding("cnn", 5, 4, 2)


@pytest.mark.usefixtures("nets")
@pytest.mark.parametrize("name", ["cnn", "dropping"])
def test_the_number_of_cores_changes_no_digit(name: str) -> None:
    found = [
        train(engines(name, 5, workers=n, kernel="convolved", dtype=torch.float32)[1], 3, 2).w
        for n in (1, 2, 3)
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_loss_that_is_no_number_is_named_and_leaves_nothing_behind() -> None:
    _, engine = engines("cnn", 5, kernel="convolved")
    good = train(engine, 2, 2).w
    for place in (7, -7):  # in the first convolution, in the last layer
        bad = engine.initial()
        bad.w[0, place] = math.nan
        with pytest.raises(DivergenceError, match="the loss is nan at step 1 on node 0"):
            engine.advance(bad, 0, 1, EVERYONE)
    assert torch.equal(train(engine, 2, 2).w, good)


def test_relu_and_pooling_change_places_and_norms_do_not() -> None:
    net = find_net(odd())
    assert net is not None
    assert [type(stage) for stage in net.stages] == [
        *(Pooled, Relu, Norm),
        *(Convolution, Norm, Pool, Pool, Relu),
    ]
    assert (net.drop_first, net.drops, net.layers[0].at) == (0.2, (0.0,), 32 * 15 + 16 * 64 + 16)


def test_rows_in_rows_are_one_row() -> None:
    layers: list[nn.Module] = [*dropping().children()]
    nested = nn.Sequential(nn.Sequential(*layers[:3], nn.Sequential(*layers[3:5])), *layers[5:])
    assert find_net(nested) == find_net(dropping()) is not None


CONV, END = nn.Conv2d(1, 16, 3), (nn.Flatten(), nn.Linear(16, 2))


@pytest.mark.parametrize(
    "modules",
    [
        (nn.Linear(4, 2),),
        (nn.Flatten(), nn.Linear(4, 2)),
        (CONV, nn.ReLU()),
        (nn.ReLU(), CONV, *END),  # would change the data
        (CONV, CONV, *END),
        (nn.Conv2d(1, 6, 3), *END),
        (nn.Conv2d(16, 16, 3, groups=2), *END),
        (nn.Conv2d(1, 16, 3, dilation=2), *END),
        (nn.Conv2d(1, 16, 3, padding="same"), *END),
        (nn.Conv2d(1, 16, 3, padding=1, padding_mode="circular"), *END),
        (CONV, nn.MaxPool2d(3, stride=2), *END),
        (CONV, nn.MaxPool2d(2, ceil_mode=True), *END),
        (CONV, nn.BatchNorm2d(16), *END),
        (CONV, nn.Dropout(0.5), nn.ReLU(), *END),
        (CONV, nn.Dropout(0.5), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 2)),
        (CONV, nn.Dropout(1.0), *END),
        (CONV, nn.Flatten(2), nn.Linear(16, 2)),
        (nn.Flatten(), nn.Dropout(0.2), nn.Linear(4, 2)),
        (CONV, nn.MaxPool2d((2,)), *END),
        (CONV, nn.MaxPool2d((2, 1)), *END),
        (nn.Conv2d(1, 16, 3, stride=(1, 2)), *END),  # oneDNN errs there
        (CONV, LocalNorm(3, 0.1), nn.Dropout(0.5), *END),  # drops in another order
        (CONV, *END, nn.ReLU()),
        (CONV, *END, nn.Dropout(0.5), nn.Linear(2, 2)),
        (CONV, *END, nn.Tanh(), nn.Linear(2, 2)),
    ],
)
def test_other_modules_are_not_taken_apart(modules: tuple[nn.Module, ...]) -> None:
    assert find_net(nn.Sequential(*modules)) is None


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))


def two_convolutions() -> nn.Sequential:
    first, second = (nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
    return nn.Sequential(first, second, nn.Flatten(), *two_layers())


@pytest.mark.parametrize("make", [two_layers, two_convolutions])
def test_parameters_shared_or_in_another_order_are_left_to_the_module(
    make: Callable[[], nn.Sequential],
) -> None:
    def known(model: nn.Module) -> bool:
        return find_net(model) is not None or find_chain(model) is not None

    assert known(make())
    shared: Any = make()
    shared[-1].weight = shared[-3].weight
    more: Any = make()
    more[0].scale = nn.Parameter(torch.ones(7))
    turned: Any = make()
    weight = turned[0].weight
    del turned[0].weight
    turned[0].weight = nn.Parameter(weight.data)  # behind the bias
    twice = make()
    twice.append(twice[-1])
    assert not any(known(model) for model in (shared, more, turned, twice))


def test_kinds_of_numbers_that_loops_do_not_know_are_left_to_the_module() -> None:
    engines("cnn", 5, dtype=torch.float64, kernel="convolved")
    with pytest.raises(ModelError, match=r"'convolved', which cannot train this model here; what"):
        engines("cnn", 5, dtype=torch.bfloat16, kernel="convolved")


def test_labels_that_are_no_class_are_never_written_beyond_memory() -> None:
    nodes = nodes_of()
    y = np.where(np.arange(len(nodes.y)) == 3, 10**6, nodes.y)
    held = {"val": (nodes.x[:9], nodes.y[:9]), "test": (nodes.x[:9], nodes.y[:9])}
    steps = LocalSteps(0.1, 1.0, 5, "epoch", 0)
    for model, kernel in ((dropping(), "convolved"), (few.MODULES["sr"](), "compiled")):
        with pytest.raises(ModelError, match="cannot train this model here"):
            Vectorized(model, Nodes(nodes.x, y, nodes.sizes), held, steps, kernel=kernel)  # type: ignore[arg-type]


def test_frozen_layers_and_hooks_are_left_to_the_module() -> None:
    def net() -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(1, 16, 3), nn.Flatten(), nn.Linear(16, 2))

    assert find_net(net()) is not None
    for number in (0, 2):
        frozen, hooked = net(), net()
        frozen[number].requires_grad_(False)
        assert find_net(frozen) is None
        hooked[number].register_forward_hook(lambda *_: None)
        assert find_net(hooked) is None


def test_what_all_stages_make_of_an_image_is_counted() -> None:
    net = find_net(odd())
    assert net is not None
    first, second = 32 * 9 * 8 + 3 * (32 * 3 * 2), 2 * (16 * 5 * 2) + 3 * (16 * 2 * 1)
    assert net.outputs((1, 16, 16)) == first + second
    assert numbers_of_an_example(net, (1, 16, 16), 4) == first + second + 2 * 32 * CLASSES / 4


@pytest.mark.parametrize("batch_size", [5, 10**6])
def test_it_is_chosen_where_there_is_much_to_train(batch_size: int) -> None:
    """No speed is measured: the count of numbers decides, and so it is on every machine."""
    nodes = nodes_of()
    held = {"val": (nodes.x[:9], nodes.y[:9]), "test": (nodes.x[:9], nodes.y[:9])}
    model = dropping()
    outputs = 2 * 16 * 14 * 14 + 32 * 12 * 12 + 2 * 32 * 6 * 6
    most = min(batch_size, int(nodes.sizes.max()))  # in a batch
    enough = MUCH / (outputs + 2 * (32 * 36 * 12 + 12 * CLASSES) / most)

    def kernel(work: float, rule: LocalRule | None = None) -> str:
        steps = LocalSteps(0.1, 1.0, batch_size, "epoch", 0)
        given = Vectorized(model, nodes, held, steps, rule=rule or LocalRule(), work=work)  # type: ignore[arg-type]
        return given.choice()["kernel"]

    assert kernel(1.001 * enough) == Convolved.name
    assert kernel(0.999 * enough) != Convolved.name
    assert kernel(1.001 * enough, LocalRule(momentum=0.9)) != Convolved.name


def test_a_run_that_was_begun_with_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    import coterie.engine.vectorized as fast_engine

    monkeypatch.setattr(fast_engine, "has_numba", lambda: False)
    with pytest.raises(ModelError, match=r"need Numba; install it: pip install 'coterie\[fast\]'"):
        engines("cnn", 5, kernel="convolved")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", [0, 7, 2**32 + 5, 2**63 - 1])
def test_what_is_dropped_is_what_torch_drops(dtype: torch.dtype, seed: int) -> None:
    if not draws_alike(dtype):
        pytest.skip("torch draws by MKL on this processor")
    torch.manual_seed(seed)
    ours = Factors(dtype)
    ours.seed(seed)
    for drop, shape in ((0.3, (5, 7)), (0.5, (1,)), (0.1, (3, 2000)), (0.77, (40, 31))):
        theirs = torch.dropout(torch.ones(shape, dtype=dtype), drop, train=True)
        assert torch.equal(ours.draw(drop, shape), theirs)


def test_other_numbers_are_drawn_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    draws_alike.cache_clear()
    monkeypatch.setattr("coterie.engine.kernels.draw_loops.factors", lambda *_: 0)
    assert not draws_alike(torch.float32)
    draws_alike.cache_clear()
    torch.manual_seed(3)
    ours = Factors(torch.float32, compiled=False)
    ours.seed(3)
    assert torch.equal(ours.draw(0.2, (9,)), torch.dropout(torch.ones(9), 0.2, train=True))
