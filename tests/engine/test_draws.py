"""Random layers: what a node drops depends on (seed, step, node) alone, on several threads too."""

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from coterie.engine.draws import DROPOUTS, Drawing
from coterie.engine.habits import Habits, find_habits
from coterie.engine.module import CACHED_VALUES, CHUNK_VALUES, FlatModule, inputs
from coterie.models import make_model
from engines import CLASSES, EVERYONE, GROUPS, MODULES, SHAPE, engines, messy, nodes_of, same, train


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibrations of tests stay in tests; every batch takes long enough for threads."""
    monkeypatch.setenv("COTERIE_DATA", str(tmp_path))
    monkeypatch.setattr("coterie.engine.kernels.calibrate.LONG_S", 0.0)


class Dropping(nn.Module):
    """Drops channels, numbers, and numbers by a call of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Conv2d(1, 4, 3)
        self.channels, self.numbers = nn.Dropout2d(0.3), nn.Dropout(0.4)
        self.out = nn.Linear(4 * 14 * 14, CLASSES)
        self.seen: list[tuple[int, bool, bool]] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inside(x)
        last = hidden.is_contiguous(memory_format=torch.channels_last)
        self.seen.append((len(x), self.training, last))
        hidden = self.numbers(torch.relu(self.channels(hidden))).flatten(1)
        scores: torch.Tensor = self.out(functional.dropout(hidden, 0.2, self.training))
        return scores


@pytest.fixture(autouse=True)
def dropping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let engines know the module."""
    monkeypatch.setitem(MODULES, "dropping", Dropping)


class Own(nn.Module):
    """Softmax regression with something of one's own before it."""

    def __init__(self, first: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.out = first, nn.Linear(256, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.first(x.flatten(1)) if self.training else x.flatten(1))
        return scores


def with_numpy(x: torch.Tensor) -> torch.Tensor:
    return x + float(np.random.normal())  # noqa: NPY002  that is what a user may do


class Checkpointed(nn.Module):
    """Forgets what it dropped, and drops again on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = nn.Linear(256, 8), nn.Linear(8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(
            lambda y: functional.dropout(torch.tanh(self.inside(y)), 0.5, self.training),
            x.flatten(1),
            use_reentrant=False,
        )
        scores: torch.Tensor = self.out(hidden)
        return scores


class OwnGenerator(Dropping):
    """Noise from a generator that it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * float(self.rng.random())


class Slip(Own):
    """Drops numbers in evaluation, too."""

    def __init__(self) -> None:
        super().__init__(functional.dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(functional.dropout(x.flatten(1)))
        return scores


class Counting(Dropping):
    """Something else in every batch that it is trained on."""

    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += self.training
        return super().forward(x) * (1 + 0.1 * self.calls if self.training else 1)


HABITS: dict[str, tuple[Callable[[], nn.Module], Habits]] = {
    "plain": (lambda: make_model("2nn", SHAPE, CLASSES), Habits(True, True, True)),
    "dropout": (Dropping, Habits(False, True, True)),
    "noise": (lambda: Own(lambda x: x + torch.randn_like(x)), Habits(False, True, True)),
    "chance": (lambda: Own(lambda x: x * float(torch.rand(()) < 0.5)), Habits(False, True, True)),
    "running means": (messy, Habits(False, True, True)),
    "batch means": (lambda: make_model("celeba-cnn", SHAPE, CLASSES), Habits(False, False, True)),
    "numpy": (lambda: Own(with_numpy), Habits(False, True, False)),
    "alpha": (
        lambda: Own(lambda x: functional.alpha_dropout(x, 0.5, True)),
        Habits(False, True, False),
    ),
    "checkpoint": (Checkpointed, Habits(False, True, False)),
    "own generator": (OwnGenerator, Habits(False, False, False)),
    "counter": (Counting, Habits(False, True, False)),
    "dropout in evaluation": (Slip, Habits(False, False, False)),
}


@pytest.mark.parametrize("name", HABITS)
def test_what_a_module_does_with_a_batch_is_found_out(name: str) -> None:
    make, expected = HABITS[name]
    x = torch.from_numpy(nodes_of().x)
    module, before = make(), torch.default_generator.get_state()
    assert find_habits(module, x) == expected
    assert torch.equal(before, torch.default_generator.get_state())


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("drop", DROPOUTS)
def test_a_generator_of_ones_own_drops_what_torchs_drops(
    drop: Callable[..., torch.Tensor], p: float, inplace: bool
) -> None:
    drawing, shape = Drawing(), (7, 6, 5, 4, 3)[: DROPOUTS[drop] or 2]
    for dtype in (torch.float32, torch.float64):
        x = torch.randn(shape, dtype=dtype)
        torch.manual_seed(4)
        theirs = drop(x.clone(), p, True, inplace)
        drawing.generator.manual_seed(4)
        torch.manual_seed(5)
        before = torch.default_generator.get_state()
        with drawing:
            ours = drop(x.clone(), p, True, inplace)
            assert drop(x, p, False) is x
        assert torch.equal(ours, theirs)
        assert torch.equal(before, torch.default_generator.get_state())


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("batch_size", [5, None])
@pytest.mark.parametrize("name", ["dropping", "messy"])
def test_any_number_of_threads_drops_as_the_plain_engine(
    name: str, batch_size: int | None, workers: int
) -> None:
    oracle, fast = engines(name, batch_size, workers=workers)
    assert fast.workers == workers
    same(oracle, fast)


@pytest.mark.parametrize("name", ["dropping", "messy", "celeba-cnn"])
def test_threads_change_no_digit_and_draw_from_no_common_generator(name: str) -> None:
    one, three = (engines(name, 5, workers=n, dtype=torch.float32)[1] for n in (1, 3))
    before = torch.default_generator.get_state()
    expected = train(one, 3)
    for _ in range(3):
        found = train(three, 3)
        assert torch.equal(found.w, expected.w)
    w = expected.w[0]
    assert one.measure(w, GROUPS).Delta == three.measure(w, GROUPS).Delta
    assert one.evaluate(w, "test") == three.evaluate(w, "test")
    assert torch.equal(before, torch.default_generator.get_state())


def test_what_a_node_drops_does_not_depend_on_who_else_is_there() -> None:
    _, fast = engines("dropping", 5, workers=2)
    alone = np.arange(10)
    everybody = fast.advance(fast.initial(), 0, 2, alone).w
    few = fast.advance(fast.initial(), 0, 2, alone, np.array([7, 2])).w
    assert torch.equal(everybody[[2, 7]], few[[2, 7]])
    assert not torch.equal(everybody[3], few[3])


def test_what_draws_from_a_generator_that_threads_share_has_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        MODULES, "alpha", lambda: Own(lambda x: functional.alpha_dropout(x, 0.5, True))
    )
    oracle, fast = engines("alpha", 5, workers=3)
    assert fast.workers == 1
    same(oracle, fast)


def test_threads_that_would_wait_for_each_other_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    three = engines("dropping", 5, workers=3, dtype=torch.float32)[1]
    monkeypatch.setattr("coterie.engine.kernels.calibrate.LONG_S", 1e9)
    one = engines("dropping", 5, workers=3, dtype=torch.float32)[1]
    assert (one.workers, three.workers) == (1, 3)
    assert torch.equal(train(one, 3).w, train(three, 3).w)
    assert engines("cnn", 5, workers=3)[1].workers == 3  # as before


def test_convolutions_that_drop_run_with_channels_last_and_are_scored_in_small_chunks() -> None:
    _, fast = engines("dropping", 5, dtype=torch.float32)
    with fast._single.module() as module:
        assert isinstance(module.model, Dropping)
        seen = module.model.seen
    fast.advance(fast.initial(), 0, 1, EVERYONE)
    seen.clear()
    fast.advance(fast.initial(), 0, 1, EVERYONE)
    assert {(training, last) for _, training, last in seen} == {(True, True)}
    seen.clear()
    fast.evaluate(fast.initial().w[0], "test")
    fast.measure(fast.initial().w[0], GROUPS)
    assert {(training, last) for _, training, last in seen} == {(False, True)}
    x = inputs(torch.zeros(3, *SHAPE, dtype=torch.uint8))
    known = find_habits(Dropping(), torch.from_numpy(nodes_of().x))
    assert FlatModule(Dropping(), known, x).chunk(x) == CACHED_VALUES // 256
    assert FlatModule(Dropping()).chunk(x) == CHUNK_VALUES // 256


class Noisy(nn.Module):
    """Adds noise that is laid out as its tensors are."""

    def __init__(self) -> None:
        super().__init__()
        self.inside, self.out = nn.Conv2d(1, 4, 3), nn.Linear(4 * 14 * 14, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.inside(x)
        if self.training:
            hidden = hidden + torch.empty_like(hidden).bernoulli_(0.5)
        scores: torch.Tensor = self.out(hidden.flatten(1))
        return scores


@pytest.mark.parametrize(("made", "in_training"), [(Dropping, True), (Noisy, False)])
def test_what_is_drawn_does_not_depend_on_how_channels_are_laid_out(
    made: Callable[[], nn.Module], in_training: bool
) -> None:
    torch.manual_seed(0)
    model, x = made(), torch.from_numpy(nodes_of().x[:4])
    habits = find_habits(model, x)
    found = []
    for some in (x, None):  # without examples, channels come first
        module = FlatModule(copy.deepcopy(model), habits, some)
        assert module._channels_last == (some is not None)
        assert module._first == (some is not None and not in_training)
        assert torch.equal(module.flat, FlatModule(copy.deepcopy(model)).flat)
        module.model.train()
        module.seed(5)
        found.append(module.scores(x))
    assert torch.allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_adding_models_up_in_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train(engines("dropping", 5, dtype=torch.float32)[1], 3).w
    monkeypatch.setattr("coterie.engine.vectorized.ADDED", 7)
    assert torch.equal(train(engines("dropping", 5, dtype=torch.float32)[1], 3).w, whole)


def test_batch_norm_without_running_means_is_scored_as_before() -> None:
    make, habits = HABITS["batch means"]
    x = inputs(torch.from_numpy(nodes_of().x[:2]))
    module = FlatModule(make(), habits, x)
    assert module.chunk(x) == CHUNK_VALUES // 256
    assert not module._channels_last
