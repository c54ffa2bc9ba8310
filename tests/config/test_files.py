import tomllib
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from coterie.config.files import (
    SCALES,
    Scale,
    expand,
    flat,
    load_experiment,
    make_config,
    settings,
    to_identity,
    to_toml,
)
from coterie.config.settings import Config
from coterie.core.errors import ConfigError, CoterieError
from coterie.runs.sweep.jobs import plan_jobs

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (
            "algorithm.name=fedavg-ci",
            "unknown algorithm.name 'fedavg-ci'; did you mean 'fedavg-ic'?",
        ),
        ("algorithm.tau2=0", "algorithm.tau2 must be >= 1, got 0; use tau2 = 1 for plain FedAvg"),
        ("algorithm.tau1=0", "algorithm.tau1 must be >= 1, got 0"),
        ("algorithm.tau1=1.5", "algorithm.tau1 must be a whole number or 'auto', got 1.5"),
        ("algorithm.tau1=true", "algorithm.tau1 must be a whole number or 'auto', got True"),
        ("algorithm.num_groups=101", "num_groups must be <= num_nodes, got 101 groups for 100"),
        (
            "algorithm.kappa1=5",
            "unknown setting 'algorithm.kappa1'; did you mean 'algorithm.tau1'?",
        ),
        ("num_edge_aggregation=5", "did you mean 'algorithm.tau2'?"),
        ("tau1=5", "unknown setting 'tau1'; did you mean 'algorithm.tau1'?"),
        ("train.learning-rate=1", "did you mean 'train.lr'?"),
        ("trian.lr=1", "unknown setting 'trian'; did you mean 'train'?"),
        ("algorithm.nam=fedavg", "did you mean 'algorithm.name'?"),
        ("training.lr=1", "unknown setting 'training'; did you mean 'train'?"),
        ("zzzzzz=1", "unknown setting 'zzzzzz'; see 'coterie list settings'"),
        ("network.link_mbytes_per_s=-1", "network.link_mbytes_per_s must be >= 1e-06, got -1"),
        ("network.latency_s=-0.1", "network.latency_s must be >= 0, got -0.1"),
        ("train.lr=0", "train.lr must be > 0, got 0"),
        ("train.lr=nan", "train.lr must be finite, got nan"),
        ("train.lr_decay=1.01", "train.lr_decay must be <= 1, got 1.01"),
        ("train.batch_size=0", "train.batch_size must be >= 1, got 0"),
        ("train.batch_size=big", "train.batch_size must be a whole number or 'auto' or 'full'"),
        ("train.device=gpu", "unknown train.device 'gpu'"),
        ("train.measure=acuracy", "unknown train.measure 'acuracy'; did you mean 'accuracy'?"),
        ("train.measure=loss/0", "follows loss/ must be a whole number >= 1, got '0'; loss/10 is"),
        ("train.measure=loss/often", "follows loss/ must be a whole number >= 1, got 'often'"),
        ("train.measure=loss,loss/10", "train.measure has 'loss' twice; leave one out"),
        ("train.measure=[1]", "train.measure must be a list of strings, got [1]"),
        ("train.measure=3", "train.measure must be a list of strings, got 3"),
        ("partition.kind=Dht", "did you mean 'Dth'?"),
        ("partition.kind=dirichlett", "did you mean 'dirichlet'"),
        ("partition.num_edges=200", "num_edges must be <= num_nodes, got 200 edges for 100 nodes"),
        ("model.name=cnnn", "did you mean 'cnn'? (or your own, 'package.module:function')"),
        ("data.name=mnist", "unknown data.name 'mnist'"),
        ("seed=-1", "seed must be >= 0, got -1"),
        ("seed=99999999999999999999", "seed must be <= 9223372036854775807"),
        ("train.lr=1e39", "train.lr must be <= 1e+38, got 1e+39"),
        (f"train.lr={10**400}", "train.lr must be finite, got inf"),
        ("seed.x=1", "'seed' is a value, so there is no 'seed.x'"),
        ("train=3", "'train' is a section, written [train], got 3"),
        ("train.lr", "--set takes key=value, got 'train.lr'"),
    ],
)
def test_a_bad_setting_is_one_line_that_says_the_rule(override: str, says: str) -> None:
    with pytest.raises(CoterieError) as caught:
        expand({"seed": 0}, [override])
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_reference_count_needs_a_model_of_the_paper() -> None:
    with pytest.raises(ConfigError, match="known for sr, 2nn, cnn only, got model 'a:b'"):
        make_config({"compute": {"flops": "reference"}, "model": {"name": "a:b"}})


def test_the_command_line_wins_over_the_file_and_the_file_over_the_default() -> None:
    file = {"algorithm": {"tau1": 2, "tau2": 3}}
    (config,) = expand(file, ["algorithm.tau2=7"])
    assert (config.algorithm.tau1, config.algorithm.tau2, config.algorithm.num_groups) == (2, 7, 5)
    assert file == {"algorithm": {"tau1": 2, "tau2": 3}}


def test_a_sweep_is_every_combination_and_an_override_fixes_its_key() -> None:
    content = {"sweep": {"seed": [0, 1], "model.name": ["sr", "2nn"]}}
    assert [(c.seed, c.model.name) for c in expand(content)] == [
        (0, "sr"),
        (0, "2nn"),
        (1, "sr"),
        (1, "2nn"),
    ]
    assert [c.seed for c in expand(content, ["model.name=cnn"])] == [0, 1]
    assert [c.model.name for c in expand({"sweep": {"model": {"name": ["sr", "cnn"]}}})] == [
        "sr",
        "cnn",
    ]
    with pytest.raises(ConfigError, match=r"sweep\.'seed' must be a list"):
        expand({"sweep": {"seed": 3}})
    with pytest.raises(ConfigError, match="'sweep' is a section"):
        expand({"sweep": 3})


@pytest.mark.parametrize(
    "override",
    [
        'train.measure=["accuracy","Delta/2"]',
        "train.measure=accuracy,Delta/2",
        "train.measure= accuracy/1 , Delta / 2",
    ],
)
def test_a_list_of_words_is_written_as_toml_or_between_commas(override: str) -> None:
    (config,) = expand({}, [override])
    assert config.train.measure == ("accuracy", "Delta/2")
    assert make_config(tomllib.loads(to_toml(config))) == config
    assert flat(config)["train.measure"] == "accuracy,Delta/2"


def test_a_sweep_may_list_lists() -> None:
    lists = [["accuracy"], ["accuracy", "Delta"]]
    found = expand({"sweep": {"train.measure": lists, "seed": [0, 1]}})
    assert [list(config.train.measure) for config in found] == [lists[0]] * 2 + [lists[1]] * 2
    found = expand({"sweep": {"train.measure": ["accuracy", "loss,Delta"]}})
    assert [config.train.measure for config in found] == [("accuracy",), ("loss", "Delta")]
    labels = [job.label for job in plan_jobs(found, Path("r"))]
    assert labels == ["measureaccuracy", "measureloss,Delta"]
    assert len(expand({"sweep": {"train.measure": lists}}, ["train.measure=loss"])) == 1


def test_settings_of_a_sweep_may_go_together() -> None:
    algorithms = [{"name": "fedavg"}, {"name": "fedavg-ic", "grouping": "reference"}]
    works = [
        {"model.name": "sr", "train.steps": 5},
        {"model": {"name": "2nn"}, "train": {"steps": 3}, "seed": 4},
    ]
    found = expand({"sweep": {"work": works, "algorithm": algorithms}})
    assert [(c.seed, c.model.name, c.train.steps, c.algorithm.name) for c in found] == [
        (0, "sr", 5, "fedavg"),
        (0, "sr", 5, "fedavg-ic"),
        (4, "2nn", 3, "fedavg"),
        (4, "2nn", 3, "fedavg-ic"),
    ]
    assert [c.algorithm.grouping for c in found] == ["coterie", "reference"] * 2
    with pytest.raises(ConfigError, match=r"unknown setting 'model\.nme'; did"):
        expand({"sweep": {"work": [{"model.nme": "sr"}]}})
    with pytest.raises(ConfigError, match="unknown setting 'work'"):
        expand({"sweep": {"work": ["sr"]}})


def test_an_override_wins_over_settings_that_go_together_and_no_run_comes_twice() -> None:
    works = [{"model.name": "sr", "train.steps": 5}, {"model.name": "2nn", "train.steps": 3}]
    found = expand({"sweep": {"work": works, "seed": [0, 1]}}, ["model.name=sr", "seed=7"])
    assert [(c.seed, c.model.name, c.train.steps) for c in found] == [(7, "sr", 5), (7, "sr", 3)]
    assert len(expand({"sweep": {"work": works}}, ["model.name=sr", "train.steps=2"])) == 1


def test_the_small_scale_replaces_settings_and_sweeps(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text(
        "[train]\nsteps = 100\nlr = 0.2\n[sweep]\nseed = [0, 1, 2]\n'model.name' = ['sr', 'cnn']\n"
        "[small.train]\nsteps = 10\n[small.sweep]\nmodel.name = ['sr', '2nn']\n"
    )
    assert [(c.train.steps, c.model.name) for c in load_experiment(file)][:2] == [
        (100, "sr"),
        (100, "cnn"),
    ]
    small = load_experiment(file, scale="small")
    assert [(c.seed, c.model.name) for c in small[:3]] == [(0, "sr"), (0, "2nn"), (1, "sr")]
    assert {(c.train.steps, c.train.lr) for c in small} == {(10, 0.2)}
    fixed = load_experiment(file, ["train.steps=3", "seed=1"], "small")
    assert [(c.seed, c.train.steps, c.model.name) for c in fixed] == [(1, 3, "sr"), (1, 3, "2nn")]
    file.write_text("[train]\nsteps = 100\n")
    for scale in SCALES:
        with pytest.raises(ConfigError, match=rf"f\.toml: has no {scale} scale, a section"):
            load_experiment(file, scale=scale)


def test_each_scale_has_its_own_settings_and_none_of_anothers(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text(
        "[train]\nsteps = 100\n[medium.train]\nlr = 0.3\n[medium.sweep]\nseed = [4]\n"
        "[small.train]\nsteps = 10\n[small.sweep]\nseed = [5]\n"
    )
    found = {
        scale: [(c.seed, c.train.steps, c.train.lr) for c in load_experiment(file, scale=scale)]
        for scale in get_args(Scale)
    }
    assert found == {"full": [(0, 100, 0.1)], "medium": [(4, 100, 0.3)], "small": [(5, 10, 0.1)]}


def test_batch_size_auto_is_full_for_sr_and_the_papers_128_otherwise() -> None:
    assert make_config({}).train.batch_size == "full"
    assert make_config({"model": {"name": "cnn"}}).train.batch_size == 128


def test_a_config_survives_being_written_as_toml() -> None:
    config = make_config({"seed": 4, "train": {"lr": 1e-7}, "data": {"path": 'a "b" \\ c'}})
    assert make_config(tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_every_experiment_that_ships_is_valid(path: Path) -> None:
    assert all(isinstance(config, Config) for config in load_experiment(path))


def test_defaults_are_the_papers() -> None:
    config = make_config({})
    assert (config.partition.num_nodes, config.partition.num_edges) == (100, 10)
    assert (config.algorithm.tau1, config.algorithm.tau2, config.algorithm.num_groups) == (1, 5, 5)
    assert (config.train.lr, config.train.lr_decay) == (0.1, 0.99)
    assert (config.network.link_mbytes_per_s, config.network.latency_s) == (100, 0.001)
    assert config.compute.gflops == 5


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"not toml at all", "not TOML"),
        (b"\xff\xfe", "cannot be read as text"),
        (None, "no such file"),
    ],
)
def test_a_file_that_is_no_experiment_is_refused(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        load_experiment(path)


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("seed", "did you mean 'seed'"),
        ("num_partitions", "did you mean 'partition.num_nodes'"),
        ("num_classes_per_partition", "did you mean 'partition.classes_per_node'"),
        ("partitioner", "did you mean 'partition.kind'"),
        ("partition_by", "split by label, or by user"),
        ("shard_size", "set partition.shards_per_node"),
        ("group_size", "set partition.num_nodes"),
        ("self-balancing", "not offered"),
    ],
)
def test_what_flwr_datasets_calls_it_is_pointed_to(word: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        make_config({"partition": {word: 1}})


def test_few_nodes_have_few_edges_unless_told_and_users_are_counted_later() -> None:
    content = {"num_nodes": 4, "kind": "iid"}
    few = make_config({"partition": content, "algorithm": {"num_groups": 2}})
    assert few.partition.num_edges == 4
    natural = make_config({"partition": {"kind": "natural"}})
    assert (natural.partition.num_nodes, natural.partition.num_edges) == ("auto", "auto")
    default = make_config({})
    assert (default.partition.num_nodes, default.partition.num_edges) == (100, 10)


def test_every_setting_says_what_it_is() -> None:
    assert all(about for _, _, about, _ in settings())
    assert len(settings()) > 30
    words = {key: takes for key, _, _, takes in settings()}
    assert words["partition.spread"] == ("normal", "exponential", "lognormal")
    assert words["train.batch_size"] == ("auto", "full")
    assert "fedavg-ic" in words["algorithm.name"]


def test_configs_are_frozen() -> None:
    with pytest.raises(AttributeError):
        make_config({}).seed = 3  # type: ignore[misc]
    assert replace(make_config({}), seed=3).seed == 3


def test_cores_left_over_by_runs_side_by_side_train_inside_each() -> None:
    from coterie.config.factories import divide, load_dataset, local_steps, make_engine
    from coterie.engine.local_rule import LocalRule
    from coterie.engine.vectorized import Vectorized
    from coterie.models import make_model

    for said, given, used in (("auto", 2, 2), (1, 2, 1), ("auto", 1, 1)):
        config = make_config({"train": {"threads": said}})
        divided = divide(config, load_dataset(config))
        model, steps = make_model("sr", (1, 28, 28), 10), local_steps(config)
        engine = make_engine(config, model, divided, steps, LocalRule(), given)
        assert isinstance(engine, Vectorized)
        assert engine.workers == used


@pytest.mark.parametrize("content", [None, [], "x", {1: 2}])
def test_a_config_is_a_mapping_by_name(content: object) -> None:
    with pytest.raises(ConfigError, match="a config must be a mapping of settings by name, got"):
        make_config(content)  # type: ignore[arg-type]


def test_a_label_goes_with_the_settings_of_a_sweeps_table() -> None:
    tables = [
        {"name": "fedavg", "label": "FedAvg"},
        {"name": "fedavg", "label": "FedProx", "optimizer": {"fedprox": 0.1}},
    ]
    runs = expand({"sweep": {"seed": [0, 1], "algorithm": tables}})
    assert [(c.label, c.optimizer.fedprox) for c in runs] == [("FedAvg", 0.0), ("FedProx", 0.1)] * 2


def test_a_label_is_no_part_of_what_a_run_is() -> None:
    plain, named = make_config({}), make_config({"label": "mine"})
    assert to_identity(plain) == to_identity(named)
    assert plain == named
    assert make_config(tomllib.loads(to_toml(named))).label == "mine"
    tables = [{"name": "fedavg", "label": label} for label in "ab"]
    assert [c.label for c in expand({"sweep": {"algorithm": tables}})] == ["a"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"label": "two\nlines"}, r"label must be on one line, .*, got 'two\\nlines'"),
        ({"sweep": {"label": ["a", "b"]}}, r"sweep.'label': a label changes no result"),
    ],
)
def test_a_label_that_cannot_name_a_line_is_refused(content: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        expand(content)


def test_a_size_rate_or_time_may_have_a_unit_in_a_file_and_in_set() -> None:
    network = {"link_mbytes_per_s": "100Mbit", "latency_s": "20ms", "access_latency_s": "auto"}
    sets = ["participation.deadline_s=1.5h", "ray.object_store_mbytes=2GB"]
    (config,) = expand({"network": network}, sets)
    assert config.network.link_mbytes_per_s == 12.5
    assert config.network.latency_s == 0.02
    assert config.network.access_latency_s == "auto"
    assert config.participation.deadline_s == 5400
    assert config.ray.object_store_mbytes == 2000
    assert make_config(tomllib.loads(to_toml(config))) == config


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("network.latency_s=5Mb", "network.latency_s must be a time such as 2s, 500ms, 1m or 1.5h"),
        ("network.link_mbytes_per_s=5Mb", "must be a rate such as 100Mbit or 12.5MB, got '5Mb'"),
        ("network.link_mbytes_per_s=0Mbit", "network.link_mbytes_per_s must be >= 1e-06, got 0.0"),
        ("network.latency_s=-5ms", "network.latency_s must be >= 0, got -0.005"),
        ("network.latency_s=fast", "network.latency_s must be a number, got 'fast'"),
        ("ray.object_store_mbytes=1.5kB", "must be a whole number or 'auto', got 0.0015"),
        ("train.lr=5s", "train.lr must be a number, got '5s'"),
    ],
)
def test_a_unit_that_does_not_fit_is_one_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        expand({}, [text])
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
