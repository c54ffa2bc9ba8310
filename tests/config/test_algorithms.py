"""Settings of algorithms: options, groups, and groups whose models are never averaged."""

import tomllib
from typing import Any

import pytest

from coterie.config.files import expand, flat, make_config, to_toml
from coterie.core.errors import CoterieError


@pytest.mark.parametrize(
    ("name", "override", "says"),
    [
        ("fedprox", "algorithm.options.mu=-1", "algorithm.options.mu must be >= 0, got -1"),
        ("fedprox", "algorithm.options.mu=x", "algorithm.options.mu must be a number, got 'x'"),
        ("fedprox", "algorithm.options.mu=true", "algorithm.options.mu must be a number, got True"),
        (
            "fedprox",
            "algorithm.options.mu=nan",
            "algorithm.options.mu must be finite and within ±1e+38, got nan",
        ),
        (
            "fedprox",
            "algorithm.options.nu=1",
            "unknown algorithm.options of fedprox 'nu'; choose one of mu (it has mu = 0.01)",
        ),
        ("fedprox", "algorithm.options=3", "algorithm.options is a table, such as {mu = 0.1}"),
        (
            "fedprox",
            "algorithm.options={mu = [1, 2]}",
            "algorithm.options.mu must be a number, a string or true or false",
        ),
        (
            "scaffold",
            "algorithm.options.mu=1",
            "scaffold has no options, got 'mu'; leave out algorithm.options",
        ),
        (
            "fedper",
            "algorithm.options.layers=1.5",
            "algorithm.options.layers must be a whole number, got 1.5",
        ),
        ("feddyn", "algorithm.options.alpha=0", "algorithm.options.alpha must be > 0, got 0"),
        (
            "fedavgm",
            "algorithm.options.momentum=1",
            "algorithm.options.momentum must be from 0 to below 1, got 1",
        ),
        ("fedavg", "algorithm.groups=egde", "unknown algorithm.groups 'egde'; did you mean 'edge'"),
        ("ifca", "algorithm.groups=edge", "algorithm.groups cannot be 'edge': ifca decides about"),
        ("hierfavg", "algorithm.groups=none", "cannot be 'none': hierfavg decides about groups"),
        ("fedavg", "algorithm.tau2=never", "'never' leaves no mean at all without groups; set"),
        ("fedavg", "algorithm.tau2=nevr", "must be a whole number or 'auto' or 'never', got"),
        ("fedavg", "algorithm.tau1=never", "algorithm.tau1 must be a whole number or 'auto', got"),
        ("ifca", "algorithm.num_groups=auto", "needs an algorithm that searches for groups"),
        ("ifca", "optimizer.server=adam", "ifca has several models and no global mean, at which"),
        ("ifca", "optimizer.scaffold=true", "ifca has several models and no global mean, at which"),
        ("feddyn", "optimizer.momentum=0.5", "feddyn corrects plain SGD only; set optimizer.mome"),
        ("feddyn", "optimizer.fedprox=0.5", "optimizer.fedprox does not go with feddyn, which has"),
        ("fedadam", "optimizer.server=momentum", "optimizer.server does not go with fedadam"),
        ("scaffold", "optimizer.scaffold=true", "optimizer.scaffold does not go with scaffold"),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_line(
    name: str, override: str, says: str
) -> None:
    with pytest.raises(CoterieError) as caught:
        expand({"algorithm": {"name": name}}, [override])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["scaffold", "feddyn", "fedadam", "hier-fedprox"])
def test_what_acts_at_global_means_needs_some(name: str) -> None:
    algorithm = {"name": name, "groups": "edge", "tau2": "never"}
    with pytest.raises(CoterieError, match=f"leaves out global means, at which {name} acts"):
        make_config({"algorithm": algorithm})


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedprox", "options": {"mu": 0.3}, "groups": "edge", "tau2": "never"},
        {"name": "fedper", "options": {"layers": 2}, "groups": "search"},
        {"name": "fedadam", "options": {"lr": 1, "epsilon": 1e-4}},
        {"name": "ifca", "tau2": "never"},
        {"name": "hier-scaffold", "groups": "edge", "tau2": "never"},
    ],
)
def test_a_config_of_an_algorithm_reads_back_as_it_was(algorithm: dict[str, Any]) -> None:
    config = make_config({"algorithm": algorithm})
    assert make_config(tomllib.loads(to_toml(config))) == config
    chosen = flat(config)
    for key, value in algorithm.get("options", {}).items():
        assert chosen[f"algorithm.options.{key}"] == value


def options(content: dict[str, Any], *overrides: str) -> list[tuple[str, dict[str, Any]]]:
    return [(c.algorithm.name, dict(c.algorithm.options)) for c in expand(content, overrides)]


def test_options_can_be_swept_alone_in_tables_and_with_their_algorithm() -> None:
    fedprox = {"algorithm": {"name": "fedprox"}}
    both = [("fedprox", {"mu": 0.1}), ("fedprox", {"mu": 1.0})]
    assert options({**fedprox, "sweep": {"algorithm.options.mu": [0.1, 1.0]}}) == both
    assert options({**fedprox, "sweep": {"algorithm": {"options": {"mu": [0.1, 1.0]}}}}) == both
    tables = [{"mu": 0.1}, {"mu": 1.0}]
    assert options({**fedprox, "sweep": {"algorithm.options": tables}}) == both
    named = [
        {"name": "fedprox", "options": {"mu": 0.1}},
        {"name": "feddyn", "options": {"alpha": 0.5}},
        {"name": "fedavg"},
    ]
    assert options({"sweep": {"algorithm": named}}) == [
        ("fedprox", {"mu": 0.1}),
        ("feddyn", {"alpha": 0.5}),
        ("fedavg", {}),
    ]


def test_set_wins_over_an_option_of_the_file_and_of_its_sweep() -> None:
    file = {"algorithm": {"name": "fedprox", "options": {"mu": 0.3}}}
    assert options(file, "algorithm.options.mu=2.5") == [("fedprox", {"mu": 2.5})]
    assert options(file, "algorithm.options={mu = 2.5}") == [("fedprox", {"mu": 2.5})]
    swept = {**file, "sweep": {"algorithm.options.mu": [0.1, 1.0]}}
    assert options(swept, "algorithm.options.mu=2.5") == [("fedprox", {"mu": 2.5})]
    with pytest.raises(CoterieError, match="scaffold has no options, got 'mu'"):
        options(file, "algorithm.name=scaffold")


def test_runs_that_differ_in_an_option_or_in_their_groups_are_not_one() -> None:
    tables = [{"name": "fedprox", "options": {"mu": mu}} for mu in (0.1, 1.0, 0.1)]
    assert len(options({"sweep": {"algorithm": tables}})) == 2
    groups = {"algorithm": {"name": "scaffold"}, "sweep": {"algorithm.groups": ["none", "edge"]}}
    assert len(options(groups)) == 2
