"""A round stays on its device, an evaluation looks at it once, and a GPU gives what a CPU gives."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from away import NAME, Watch, brought, watched
from coterie.config.files import make_config
from coterie.config.prepare import prepare
from coterie.core.errors import ConfigError, DivergenceError
from coterie.divergences.sketch import Sketch
from coterie.engine.contract import LocalSteps, Models
from coterie.engine.device import for_sums, to_host
from coterie.engine.local_rule import LocalRule
from coterie.engine.means import add_up, divide
from coterie.engine.module import Nodes, centred_gram, tally_classes
from coterie.engine.scoring import sums_of
from coterie.engine.update import NOTHING, At, Update
from coterie.engine.vectorized import Vectorized
from coterie.models import make_model
from coterie.runs.execute import execute
from coterie.simulation.algorithms import ALGORITHMS
from coterie.simulation.loop import rounds
from engines import CLASSES, EVERYONE, GROUPS, MODULES, nodes_of, train
from needed import needs_gpu
from problems import fixed, make_problem, some_nodes
from resuming import outcome, stopped_at, tiny

DENSE = [("sr", "dense"), ("2nn", "dense")]
OTHERS = [("own", "stacked"), ("2nn", "single")]
WAYS = [*DENSE, *OTHERS, ("cnn", "single")]
ADDED = ("fedprox", "scaffold", "fedadam", "hier-scaffold", "ditto", "fedper", "fednova")
ROUNDS = [(*way, "fedavg") for way in WAYS] + [
    (*way, added) for way in (("2nn", "dense"), ("own", "stacked")) for added in ADDED
]


def engine(
    name: str,
    kernel: str,
    device: str,
    update: Update = NOTHING,
    batch_size: int | None = 5,
    dtype: torch.dtype = torch.float64,
) -> Vectorized:
    torch.manual_seed(3)
    module, nodes = MODULES[name]().to(dtype), nodes_of()
    held_out: Any = {"val": (nodes.x[:30], nodes.y[:30]), "test": (nodes.x, nodes.y)}
    steps, rule = LocalSteps(0.05, 0.99, batch_size, "epoch", 3), LocalRule(update=update)
    return Vectorized(module, nodes, held_out, steps, device, rule, kernel=kernel)


def away(watch: Watch, name: str, kernel: str, **options: Any) -> Vectorized:
    """Make an engine on the watched device; what is looked at to make it does not count."""
    made = engine(name, kernel, NAME, **options)
    watch.looked.clear()
    watch.sent = 0
    return made


# ---- the watch itself


LOOKS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x[0, 0].item(),
    "float": lambda x: float(x[0, 0]),
    "bool": lambda x: bool(x.isfinite().all()),
    "cpu": lambda x: x.cpu(),
    "to": lambda x: x.to("cpu", torch.float64),
    "copy": lambda x: torch.empty(2, 3).copy_(x),
    "a place": lambda x: torch.empty(2, 3).__setitem__(0, x[0]),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "equal": lambda x: torch.equal(x, x),
    "bincount": lambda x: torch.bincount(x[0].long()),
    "allclose": lambda x: torch.allclose(x, x),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("way", LOOKS)
def test_whoever_looks_at_a_number_of_the_device_is_seen(way: str, inference: bool) -> None:
    with watched() as watch, torch.inference_mode(inference):
        x = torch.ones(2, 3).to(NAME)
        assert not watch.looked and watch.sent == 1
        LOOKS[way](x)
        assert watch.looked


def test_numbers_of_the_device_are_no_arrays_and_mix_with_none_of_the_cpu() -> None:
    with watched():
        x = torch.ones(2, 3).to(NAME)
        for name in ("numpy", "tolist"):
            with pytest.raises(RuntimeError, match=f"{name}.* is not supported"):
                getattr(x, name)()
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)
        with pytest.raises(RuntimeError, match="same device"):
            torch.zeros(2)[0].add_(x[0, 0])
        assert brought(x + torch.tensor(1.0)).tolist() == [[2.0] * 3] * 2  # as CUDA allows


def test_a_copy_planted_in_the_inner_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def correct(g: Tensor, w: Tensor, at: At) -> Tensor:
        return g.cpu().to(g.device)

    with watched() as watch:
        planted = away(watch, "sr", "dense", update=Update(correct=correct))
        planted.advance(planted.initial(), 0, 1, GROUPS)
        assert watch.looked and "_to_copy" in watch.looked[0]

    def add_up_by_rows(total: Tensor, weights: Tensor, parts: list[Tensor]) -> None:
        assert float(weights[0].sum()) >= 0
        add_up(total, weights, parts)

    monkeypatch.setattr("coterie.engine.vectorized.add_up", add_up_by_rows)
    with watched() as watch:
        plain = away(watch, "sr", "dense")
        plain.advance(plain.initial(), 0, 1, GROUPS)
        assert set(watch.looked) == {"_local_scalar_dense in engine.vectorized.train"}


# ---- a round


@pytest.mark.parametrize(("name", "kernel", "added"), ROUNDS)
def test_a_round_looks_at_no_number_and_gives_what_the_cpu_gives(
    name: str, kernel: str, added: str
) -> None:
    update = ALGORITHMS[added].update
    here = train(engine(name, kernel, "cpu", update), 3, 2, update)
    with watched() as watch:
        there = train(away(watch, name, kernel, update=update), 3, 2, update)
        assert watch.looked == []
        assert {w.device.type for key, w in there.memory.items() if key != "common.~z"} <= {NAME}
    assert torch.allclose(here.w, brought(there.w), rtol=0, atol=1e-12)
    for key, array in here.memory.items():
        assert torch.allclose(array, brought(there.memory[key]), rtol=0, atol=1e-9)


def test_one_gradient_per_group_and_groups_without_anybody_stay_there_too() -> None:
    present = np.array([0, 1, 4])  # of groups 0, 1, 1
    for batch_size in (None, 5):
        cpu = engine("2nn", "dense", "cpu", batch_size=batch_size)
        here = cpu.advance(cpu.advance(cpu.initial(), 0, 1, GROUPS), 1, 2, GROUPS, present)
        with watched() as watch:
            far = away(watch, "2nn", "dense", batch_size=batch_size)
            there = far.advance(far.advance(far.initial(), 0, 1, GROUPS), 1, 2, GROUPS, present)
            assert watch.looked == []
        assert torch.allclose(here.w, brought(there.w), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("name", "kernel"), OTHERS)
def test_smaller_batches_are_not_sent_more_often(name: str, kernel: str) -> None:
    sent = []
    for batch_size in (7, 2):
        with watched() as watch:
            far = away(watch, name, kernel, batch_size=batch_size)
            far.advance(far.initial(), 0, 1, EVERYONE)
            sent.append(watch.sent)
    whole = int((nodes_of().sizes > 7).sum())  # others are one batch of 7, which nobody draws
    assert 0 < sent[1] <= sent[0] + (10 - whole)


# ---- an evaluation


ASKED: dict[str, Callable[[Vectorized, Models], Any]] = {
    "evaluate": lambda e, m: e.evaluate(m.w[0], "test"),
    "losses": lambda e, m: e.losses(m.w[:1]),
    "own_losses": lambda e, m: e.own_losses(m),
    "measure": lambda e, m: e.measure(m.w[0], GROUPS),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("name", "kernel"), [*DENSE, *OTHERS])
def test_an_evaluation_looks_once(name: str, kernel: str, asked: str) -> None:
    cpu = engine(name, kernel, "cpu")
    here = ASKED[asked](cpu, cpu.advance(cpu.initial(), 0, 1, GROUPS))
    with watched() as watch:
        far = away(watch, name, kernel)
        models = far.advance(far.initial(), 0, 1, GROUPS)
        there = ASKED[asked](far, models)
        assert watch.looked == ["_to_copy in engine.device.on_host"]
    for one, other in zip(_numbers(here), _numbers(there), strict=True):
        assert other == pytest.approx(one, rel=1e-12)


def _numbers(found: Any) -> list[Any]:
    if isinstance(found, tuple):
        return list(found)
    if not hasattr(found, "__dict__"):
        return [found]
    return [value for value in vars(found).values() if value is not None]  # metrics are of others


def test_a_planner_gets_what_it_asks_for_and_no_more_is_looked_at() -> None:
    cpu = engine("own", "stacked", "cpu")
    w, sketch = cpu.initial().w[0], Sketch(16, 0)
    exact, drawn = cpu.gradients(w), cpu.gradients(w, sketch)
    with watched() as watch:
        far = away(watch, "own", "stacked")
        found, sketched = (far.gradients(far.initial().w[0], some) for some in (None, sketch))
        asked = {line.rpartition(".")[2] for line in watch.looked}
        assert asked == {"on_host", "summed_gram", "cosines", "rows"}
    assert np.allclose(found.gram, exact.gram, rtol=0, atol=1e-12)  # type: ignore[arg-type]
    assert np.allclose(sketched.sketches, drawn.sketches)  # type: ignore[arg-type]


def test_a_run_looks_at_its_scores_alone() -> None:
    nodes = some_nodes()
    x, y = (np.concatenate(parts) for parts in zip(*nodes, strict=True))
    sizes = np.array([len(some) for _, some in nodes])

    def run(device: str, kernel: str) -> list[float | None]:
        torch.manual_seed(7)
        steps = LocalSteps(0.5, 0.99, 3, "epoch", 3)
        held_out: Any = {"val": (x, y), "test": (x, y)}
        model = make_model("sr", (1, 4, 4), 3)
        made: Any = Vectorized(model, Nodes(x, y, sizes), held_out, steps, device, kernel=kernel)
        problem = make_problem(nodes, fixed([0, 1] * 4), 1, 2, steps=6, engine=made)
        rows = [state.row for state in rounds(problem)]
        return [value for row in rows for value in (row.train_loss, row.test_accuracy, row.Delta)]

    here = run("cpu", "stacked")
    with watched() as watch:
        there = run(NAME, "stacked")
        asked = {line.rpartition(" ")[2] for line in watch.looked}
        tried = {"engine.habits._few", "engine.habits.treats_examples_alone"}  # the module, once
        assert asked == {"engine.device.on_host", *tried}
    assert [value is None for value in there] == [value is None for value in here]
    some = [[value for value in values if value is not None] for values in (there, here)]
    assert some[0] == pytest.approx(some[1], rel=1e-5)


def test_what_diverges_on_a_device_is_noticed_by_whoever_scores_it() -> None:
    with watched() as watch:
        far = away(watch, "2nn", "dense")
        wild = Models(far.initial().w * 1e300, EVERYONE)
        models = far.advance(wild, 3, 4, EVERYONE)
        assert watch.looked == []
        assert not np.isfinite(far.evaluate(models.w[0], "test").loss)
    cpu = engine("2nn", "dense", "cpu")
    with pytest.raises(DivergenceError, match="at step 4 on node 0"):
        cpu.advance(Models(cpu.initial().w * 1e300, EVERYONE), 3, 4, EVERYONE)


# ---- where sums are made


def test_sums_are_doubles_on_their_device_and_on_the_cpu_where_that_has_none() -> None:
    assert for_sums(torch.device("cuda", 1)) == torch.device("cuda", 1)
    assert for_sums(torch.device("mps")) == torch.device("cpu")
    sums = torch.empty(3, 50, dtype=torch.float64, device="meta")
    models = Models(torch.empty(1, 50, device="meta"), EVERYONE)
    means = divide(sums, nodes_of().sizes, models, GROUPS, np.array([0, 1]))
    assert (means.shape, means.dtype, means.device.type) == (sums.shape, torch.float64, "meta")
    right, y = (torch.empty(9, device="meta", dtype=kind) for kind in (torch.bool, torch.int64))
    counts = tally_classes(right, y, 4)
    assert (counts.shape, counts.dtype) == ((2, 4), torch.float64)


def test_sums_on_a_device_are_those_of_the_cpu() -> None:
    rng = np.random.default_rng(0)
    values, at = torch.from_numpy(rng.random(200)).float(), np.sort(rng.integers(7, size=200))
    y = torch.from_numpy(rng.integers(CLASSES, size=200))
    right, rows = values > 0.5, torch.from_numpy(rng.normal(size=(10, 30))).float()
    with watched() as watch:
        far, whether, true = (some.to(NAME) for some in (values, right, y))
        sums, counts = sums_of(far, at), tally_classes(whether, true, CLASSES)
        assert watch.looked == []
        gram = centred_gram(rows.to(NAME), np.full(10, 0.1))
    assert torch.allclose(brought(sums), sums_of(values, at), rtol=1e-15, atol=0)
    assert torch.equal(brought(counts), tally_classes(right, y, CLASSES))
    assert np.array_equal(gram, centred_gram(rows, np.full(10, 0.1)))
    assert [some.tolist() for some in to_host([])] == []


def test_a_device_that_is_not_there_is_one_line_before_anything_is_trained() -> None:
    for name in ("cuda", "mps"):
        there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
        if not there[name]:
            expected = f"^train.device '{name}' is not on this machine; use 'cpu'$"
            with pytest.raises(ConfigError, match=expected):
                prepare(make_config({"train": {"device": name}}))
    with pytest.raises(
        ConfigError, match=r"^unknown train.device 'cuda:7'; did you mean 'cuda'\?$"
    ):
        make_config({"train": {"device": "cuda:7"}})


# ---- a GPU


@needs_gpu
@pytest.mark.parametrize("added", ["fedavg", "fedprox", "scaffold", "fedadam"])
@pytest.mark.parametrize(("name", "kernel"), [*WAYS, ("cnn", "stacked")])
def test_a_gpu_agrees_to_rounding(name: str, kernel: str, added: str) -> None:
    update = ALGORITHMS[added].update
    cpu, gpu = (engine(name, kernel, device, update) for device in ("cpu", "cuda"))
    here, there = (train(some, 6, 2, update) for some in (cpu, gpu))
    assert torch.allclose(here.w, there.w.cpu(), rtol=0, atol=1e-9)
    one, other = cpu.measure(here.w[0], GROUPS), gpu.measure(there.w[0], GROUPS)
    assert other.losses == pytest.approx(one.losses, rel=1e-7)
    assert (other.delta, other.Delta) == pytest.approx((one.delta, one.Delta), rel=1e-7)
    score = cpu.evaluate(here.w[0], "test")
    assert gpu.evaluate(there.w[0], "test").loss == pytest.approx(score.loss, rel=1e-7)


@needs_gpu
@pytest.mark.parametrize(("name", "kernel"), WAYS)
def test_a_gpu_gives_the_same_bits_twice(name: str, kernel: str) -> None:
    made = [engine(name, kernel, "cuda", dtype=torch.float32) for _ in range(2)]
    one, other = (train(some, 6, 2) for some in made)
    assert torch.equal(one.w, other.w)
    assert made[0].evaluate(one.w[0], "test") == made[1].evaluate(other.w[0], "test")
    assert (made[0].own_losses(one) == made[1].own_losses(other)).all()


@needs_gpu
@pytest.mark.parametrize("algorithm", ["fedavg-ic", "scaffold", "fedadam", "ifca"])
def test_a_run_on_a_gpu_goes_on_to_the_same_result(tmp_path: Path, algorithm: str) -> None:
    told = replace(tiny(algorithm), train=replace(tiny().train, device="cuda"))
    execute(told, tmp_path / "whole")
    stopped_at(6, told, tmp_path / "parts")
    execute(told, tmp_path / "parts", resume=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
