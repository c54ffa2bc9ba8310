"""Which runs stand side by side, what their lines are called, and which values are best."""

import inspect
from dataclasses import replace
from typing import Any

import pytest

from coterie.analysis.compare import compare
from coterie.analysis.format import cells, heading
from coterie.analysis.lines import View, arrange, name_of, naming_of, read_view
from coterie.analysis.palette import COLOURS, look_numbers
from coterie.core.errors import ConfigError, RecordError
from coterie.runs.record import RecordedRun
from coterie.simulation.algorithms import ALGORITHMS, MAKERS
from recorded import recorded

CURVE = [(0.0, 0.1), (1.0, 0.5)]
FEDAVG = {"name": "fedavg"}


def run(seed: int = 0, val: float | None = 0.5, **sections: Any) -> RecordedRun:
    """A run of FedAvg unless another algorithm is named."""
    return recorded(CURVE, seed, {"val_accuracy": val}, **{"algorithm": FEDAVG, **sections})


def own(name: str, **sections: Any) -> RecordedRun:
    """A run by an algorithm that is not in our table, with settings that ours does not have."""
    made = run(**sections)
    algorithm = {**made.config["algorithm"], "name": name, "options": {"mu": 0.1}}
    return replace(made, config={**made.config, "algorithm": algorithm})


def shown(runs: list[RecordedRun], view: View | None = None) -> list[list[str]]:
    """The names of the lines, block by block."""
    return [list(block.lines) for block in arrange(runs, view or View())]


def test_local_rules_name_lines_of_one_table() -> None:
    runs = [run(), run(optimizer={"fedprox": 0.1}), run(optimizer={"scaffold": True})]
    assert shown(runs) == [["fedavg", "fedavg (fedprox = 0.1)", "fedavg (scaffold)"]]


def test_what_all_runs_have_in_common_names_no_line() -> None:
    both = {"momentum": 0.9}
    runs = [run(optimizer=both), run(algorithm={"name": "fedavg-ic"}, optimizer=both)]
    assert shown(runs) == [["fedavg", "fedavg-ic"]]


def test_settings_of_a_search_name_lines_of_algorithms_that_search() -> None:
    runs = [
        run(algorithm={"name": name, "alpha_comm": weight})
        for name in ("fedavg", "fedavg-ic")
        for weight in (1.0, 0.5)
    ]
    assert shown(runs) == [["fedavg", "fedavg-ic", "fedavg-ic (alpha_comm = 0.5)"]]
    assert arrange(runs)[0].repeated == 1


def test_other_settings_split_tables() -> None:
    runs = [run(train={"lr": lr}) for lr in (0.1, 0.5)]
    assert [block.setting for block in arrange(runs)] == [{"train.lr": 0.1}, {"train.lr": 0.5}]


def test_lines_are_named_by_any_settings_and_those_split_no_table() -> None:
    runs = [
        run(train={"lr": lr}, algorithm={"name": "fedavg-ic", "tau1": tau1})
        for lr in (0.1, 0.5)
        for tau1 in (10, 5)
    ]
    assert shown(runs, read_view("algorithm.tau1")) == [["tau1 = 5", "tau1 = 10"]] * 2
    by_both = read_view("algorithm.name, train.lr")
    assert shown(runs, by_both) == [["fedavg-ic", "fedavg-ic (lr = 0.5)"]] * 2
    everything = read_view("algorithm.tau1,train.lr")
    assert shown(runs, everything) == [
        ["tau1 = 5, lr = 0.1", "tau1 = 5, lr = 0.5", "tau1 = 10, lr = 0.1", "tau1 = 10, lr = 0.5"]
    ]


def test_settings_with_the_same_last_word_are_written_in_full() -> None:
    runs = [run(partition={"alpha": 0.4}), run(network={"alpha": 0.5})]
    view = read_view("partition.alpha,network.alpha")
    assert shown(runs, view) == [
        [
            "partition.alpha = 0.4, network.alpha = 0.4",
            "partition.alpha = 0.5, network.alpha = 0.5",
        ]
    ]


def test_a_label_names_the_line_and_what_goes_with_it_splits_no_table() -> None:
    runs = [
        run(seed, label=label, algorithm=algorithm)
        for seed in (0, 1)
        for label, algorithm in (
            ("FedAvg, tau = 1", {"name": "fedavg", "tau1": 1, "tau2": 1}),
            ("grouped", {"name": "fedavg-ic", "tau1": 5}),
        )
    ]
    (block,) = arrange(runs)
    assert block.setting == {}
    assert {name: len(own) for name, own in block.lines.items()} == {
        "FedAvg, tau = 1": 2,
        "grouped": 2,
    }


def test_settings_that_vary_within_a_label_split_tables() -> None:
    runs = [
        run(label=label, optimizer=rule, train={"lr": lr})
        for label, rule in (("plain", {}), ("pulled", {"fedprox": 0.1}))
        for lr in (0.1, 0.5)
    ]
    assert shown(runs) == [["plain", "pulled"]] * 2
    alike = [run(label="mine", optimizer={"momentum": m}) for m in (0.0, 0.9)]
    assert [block.repeated for block in arrange(alike)] == [0, 0]


@pytest.mark.parametrize(
    "other",
    [
        {"data": {"name": "mnist-f"}},
        {"data": {"sample": 0.2}},
        {"partition": {"kind": "Dqh"}},
        {"model": {"name": "2nn"}},
        {"network": {"latency_s": 0.5}},
        {"compute": {"gflops": 250.0}},
        {"participation": {"fraction": 0.5}},
        {"train": {"batch_size": 10}},
        {"train": {"steps": 7}},
    ],
)
def test_labels_do_not_put_different_experiments_into_one_table(other: dict[str, Any]) -> None:
    feddyn = {"name": "feddyn"}
    blocks = compare([run(label="A"), run(label="B", algorithm=feddyn, **other)])
    assert [[line.algorithm for line in block.lines] for block in blocks] == [["A"], ["B"]]
    assert [line.speed_up for block in blocks for line in block.lines] == [None, None]


def test_each_label_may_have_a_rate_and_a_decay_of_its_own() -> None:
    runs = [
        run(label=name, train={"lr": lr, "lr_decay": lr_decay})
        for name, lr, lr_decay in (("a", 0.1, 1.0), ("b", 0.5, 0.9))
    ]
    assert shown(runs) == [["a", "b"]]


def test_each_label_may_have_a_rate_of_its_own_for_every_dataset() -> None:
    rates = {
        ("a", "mnist-f"): 0.1,
        ("a", "mnist-o"): 0.5,
        ("b", "mnist-f"): 0.3,
        ("b", "mnist-o"): 0.3,
    }
    runs = [
        run(label=label, data={"name": data}, train={"lr": lr})
        for (label, data), lr in rates.items()
    ]
    assert shown(runs) == [["a", "b"]] * 2
    assert [block.setting for block in arrange(runs)] == [
        {"data.name": "mnist-f"},
        {"data.name": "mnist-o"},
    ]


def test_labels_do_not_put_runs_without_one_into_one_table() -> None:
    runs = [
        run(label="mine", data={"name": "mnist-f"}),
        run(data={"name": "mnist-f"}),
        run(data={"name": "mnist-o"}),
    ]
    assert shown(runs) == [["fedavg", "mine"], ["fedavg"]]


def test_a_setting_that_a_block_has_no_value_for_is_not_in_its_heading() -> None:
    runs = [run(label="mine", data={"name": "mnist-f"}), run(data={"name": "mnist-o"})]
    assert list(map(heading, compare(runs))) == ["data mnist-f", "data mnist-o"]
    apart = [*(run(label="mine", optimizer={"momentum": m}) for m in (0.1, 0.9)), run()]
    assert list(map(heading, compare(apart))) == ["momentum 0.1", "momentum 0.9", "other runs"]


def test_what_is_tested_on_heads_tables_that_differ_in_nothing_else() -> None:
    runs = [
        run(label="FedAvg", data={"split": "pooled"}),
        run(label="FedPer", data={"split": "per-node"}, algorithm={"name": "fedper"}),
        run(label="Ditto", data={"split": "per-node"}, algorithm={"name": "ditto"}),
    ]
    assert shown(runs) == [["FedAvg"], ["FedPer", "Ditto"]]
    alike = [replace(each, config={**each.config, "label": ""}) for each in runs]
    assert list(map(heading, compare(alike))) == ["split pooled", "split per-node"]


def test_settings_win_over_labels_where_lines_are_named_by_them() -> None:
    runs = [run(label=label, train={"lr": lr}) for label in "ab" for lr in (0.1, 0.5)]
    assert shown(runs, read_view("train.lr")) == [["lr = 0.1", "lr = 0.5"]]
    assert shown(runs, read_view("label")) == [["a", "b"]] * 2
    assert shown(runs, read_view("label,train.lr")) == [["a", "a (lr = 0.5)", "b", "b (lr = 0.5)"]]


METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    "FedProx": {"optimizer": {"fedprox": 0.1}},
    "SCAFFOLD": {"optimizer": {"scaffold": True}},
    "FedAvg-IC": {"algorithm": {"name": "fedavg-ic", "tau2": 10}},
}


def test_labels_and_rates_name_the_lines_of_one_table() -> None:
    runs = [
        run(label=label, train={"lr": lr}, **sections)
        for label, sections in METHODS.items()
        for lr in (0.1, 0.5)
    ]
    (names,) = shown(runs, read_view("label,train.lr"))
    assert sorted(names) == sorted(
        name for label in METHODS for name in (label, f"{label} (lr = 0.5)")
    )


def test_labels_and_groups_name_the_lines_of_one_table() -> None:
    runs = [
        run(label=label, algorithm={"name": name, "groups": groups})
        for label, name in (("plain", "fedavg"), ("dynamic", "feddyn"))
        for groups in ("none", "edge")
    ]
    assert shown(runs, read_view("label,algorithm.groups")) == [
        ["plain", "plain (groups = edge)", "dynamic", "dynamic (groups = edge)"]
    ]


def test_runs_without_a_label_stand_by_their_algorithm_where_labels_name_lines() -> None:
    runs = [run(label="mine", optimizer={"fedprox": 0.1}), run(), run(algorithm={"name": "feddyn"})]
    assert shown(runs, read_view("label")) == [["fedavg", "mine", "feddyn"]]
    assert shown([run(), run(optimizer={"fedprox": 0.1})], read_view("label")) == [["fedavg"]] * 2


def test_any_algorithm_has_a_name_a_place_and_a_look() -> None:
    runs = [own("my_pkg.algos:feddyn"), run(), own("another")]
    (names,) = shown(runs)
    assert names == ["fedavg", "another (mu = 0.1)", "feddyn (mu = 0.1)"]
    assert len(set(look_numbers(names).values())) == 3
    assert [line.pooled for line in compare(runs)[0].lines] == [False] * 3


def test_of_two_algorithms_with_the_same_last_word_the_whole_path_is_shown() -> None:
    runs = [own("mine:feddyn"), own("yours:feddyn")]
    assert shown(runs) == [["mine:feddyn", "yours:feddyn"]]


def test_algorithms_beside_each_other_have_colours_of_their_own() -> None:
    some = look_numbers(["fedavg", "fedprox", "scaffold", "feddyn", "fednova", "fedavg-ic"])
    assert len({number % len(COLOURS) for number in some.values()}) == len(some)
    assert len(set(look_numbers(ALGORITHMS).values())) == len(ALGORITHMS)


def test_a_label_that_is_an_algorithm_looks_like_it() -> None:
    assert look_numbers(["FedAvg", "FedProx"]) == {"FedAvg": 0, "FedProx": 6}


def test_runs_to_come_have_a_say_in_names() -> None:
    begun, to_come = run(optimizer={"momentum": 0.9}), run()
    (alone,), (early,) = arrange([begun]), arrange([begun], View(), [to_come.config])
    assert list(alone.lines) == ["fedavg"]
    assert list(early.lines) == ["fedavg (momentum = 0.9)"]
    naming = naming_of([begun.config, to_come.config])
    assert name_of(to_come.config, naming) == "fedavg"


def grid(validated: dict[tuple[float, int], float | None]) -> list[RecordedRun]:
    """A run for every learning rate and seed, with its accuracy on the validation part."""
    return [run(seed, val, train={"lr": lr}) for (lr, seed), val in validated.items()]


def test_the_best_value_has_the_best_mean_over_seeds_on_the_validation_part() -> None:
    runs = grid({(0.1, 0): 0.9, (0.1, 1): 0.1, (0.5, 0): 0.6, (0.5, 1): 0.6})
    (block,) = arrange(runs, read_view(best="train.lr"))
    assert block.setting == {}
    assert block.chosen == {"fedavg": {"train.lr": 0.5}}
    assert block.lines == {"fedavg": runs[2:]}
    assert block.repeated == 0


def test_of_equal_values_the_smaller_is_taken_and_of_unlike_seeds_the_more() -> None:
    view = read_view(best="train.lr")
    tie = arrange(grid({(10.0, 0): 0.5, (9.0, 0): 0.5}), view)
    assert tie[0].chosen == {"fedavg": {"train.lr": 9.0}}
    lucky = grid({(0.1, 0): 0.9, (0.5, 0): 0.6, (0.5, 1): 0.6})
    assert arrange(lucky, view)[0].chosen == {"fedavg": {"train.lr": 0.5}}


def test_every_line_has_a_best_value_of_its_own() -> None:
    rules: dict[str, dict[str, Any]] = {"fedavg": {}, "fedavg (scaffold)": {"scaffold": True}}
    runs = [
        run(val=val, train={"lr": lr}, optimizer=rule)
        for rule, vals in zip(rules.values(), ((0.4, 0.3), (0.3, 0.4)), strict=True)
        for lr, val in zip((0.1, 0.5), vals, strict=True)
    ]
    (block,) = compare(runs, None, read_view(best="train.lr"))
    assert {line.algorithm: line.best for line in block.lines} == {
        "fedavg": {"train.lr": 0.1},
        "fedavg (scaffold)": {"train.lr": 0.5},
    }


def test_a_best_value_may_be_of_what_else_names_lines() -> None:
    runs = [
        run(val=val, algorithm={"name": "fedavg-ic", "grouping": grouping})
        for grouping, val in (("coterie", 0.4), ("random", 0.5))
    ]
    (block,) = arrange(runs, read_view(best="algorithm.grouping"))
    assert block.chosen == {"fedavg-ic": {"algorithm.grouping": "random"}}


def test_an_option_that_is_not_set_is_at_its_default_and_a_dash_where_there_is_none() -> None:
    alpha = "algorithm.options.alpha"
    feddyn = [
        run(val=val, algorithm={"name": "feddyn", "options": options})
        for options, val in (({}, 0.6), ({"alpha": 0.5}, 0.4))
    ]
    (block,) = compare([run(), *feddyn, own("mine")], None, read_view(best=alpha))
    default = inspect.signature(MAKERS["feddyn"]).parameters["alpha"].default
    assert [line.best for line in block.lines] == [{alpha: None}, {alpha: default}, {alpha: None}]
    assert [row[:2] for row in cells(block.lines)] == [
        ["fedavg", "-"],
        ["feddyn", str(default)],
        ["mine (mu = 0.1)", "-"],
    ]


def test_there_is_no_best_without_the_validation_part() -> None:
    with pytest.raises(RecordError, match=r"fedavg-0: its summary.json has no val_accuracy"):
        arrange(grid({(0.1, 0): None}), read_view(best="train.lr"))


def test_runs_that_are_not_complete_are_no_candidates() -> None:
    done, begun = run(train={"lr": 0.1}), run(val=None, train={"lr": 0.5})
    begun = replace(begun, summary={**begun.summary, "status": "running"})
    view = read_view(best="train.lr")
    assert shown([done, begun], view) == [["fedavg"]]
    assert shown([begun], view) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"lines": "lr"}, "--lines: unknown setting 'lr'; did you mean 'train.lr'?"),
        ({"best": "optimizer.fedprx"}, "did you mean 'optimizer.fedprox'?"),
        ({"lines": "seed"}, "--lines takes settings that tell lines apart, got seed"),
        ({"lines": "ray.actors"}, "--lines takes settings that tell lines apart, got ray.actors"),
        ({"best": "label"}, "--best takes settings that change a result, got label"),
        ({"lines": "train.lr", "best": "train.lr"}, "train.lr must be in --lines or in --best"),
        ({"score": "mean:0"}, "--score must be last, best or mean:K, such as mean:5, got 'mean:0'"),
    ],
)
def test_a_view_that_makes_no_sense_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_view(**given)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_options_of_an_algorithm_name_lines() -> None:
    runs = [own("mine"), own("mine")]
    runs[1].config["algorithm"]["options"]["mu"] = 0.2
    assert shown(runs, read_view("algorithm.options.mu")) == [["mu = 0.1", "mu = 0.2"]]


def test_the_groups_that_an_algorithm_has_anyway_do_not_name_its_line() -> None:
    def named(**algorithm: str) -> str:
        configs = [{"algorithm": {"groups": g, **algorithm}} for g in ("none", "edge")]
        naming = naming_of(configs)
        return ", ".join(name_of(config, naming) for config in configs)

    assert named(name="fedavg") == "fedavg, fedavg (groups = edge)"
    assert named(name="my_pkg.algos:own") == "own, own (groups = edge)"


def test_no_groups_name_the_line_of_an_algorithm_that_other_runs_leave_its_own() -> None:
    configs = [{"algorithm": {"name": "mine:own", "groups": g}} for g in ("auto", "none")]
    naming = naming_of(configs)
    assert [name_of(config, naming) for config in configs] == ["own", "own (groups = none)"]
