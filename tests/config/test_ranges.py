"""Numbers: every setting has a range, what is outside is a line, and what is inside can be read."""

import math
from pathlib import Path
from typing import Any, get_args

import pytest

from coterie.config.files import expand, make_config
from coterie.config.schema import leaves
from coterie.config.settings import MANY, Config
from coterie.core.errors import ConfigError
from coterie.runs.execute import execute
from coterie.runs.record import find_runs
from resuming import TINY


def bounds() -> dict[str, dict[str, float]]:
    """Return the stated bounds of every setting that takes numbers."""
    found = {}
    for key, f in leaves(Config):
        kinds = {f.type, *get_args(f.type)}
        if kinds & {int, float}:
            found[key] = {k: b for k, b in f.metadata["bounds"].items() if b is not None}
    return found


def nested(key: str, value: Any) -> dict[str, Any]:
    section, dot, name = key.rpartition(".")
    return {section: {name: value}} if dot else {key: value}


def test_every_number_has_a_stated_least_and_most() -> None:
    assert len(bounds()) > 50
    for key, stated in bounds().items():
        assert stated.keys() in ({"at_least", "at_most"}, {"above", "at_most"}), key
        assert all(math.isfinite(bound) for bound in stated.values()), key


@pytest.mark.parametrize("key", bounds())
def test_what_is_beyond_a_setting_is_refused_in_a_line(key: str) -> None:
    stated = bounds()[key]
    most = stated["at_most"]
    beyond = most + 1 if isinstance(most, int) else most * 2
    for value in (beyond, 10**400, -(10**400), math.nan, math.inf, -math.inf):
        with pytest.raises(ConfigError) as refused:
            make_config(nested(key, value))
        assert str(refused.value).startswith(key), value
        assert len(str(refused.value)) < 200
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e100, 10**400])
def test_an_option_of_an_algorithm_has_a_most_too(value: float) -> None:
    with pytest.raises(ConfigError, match=r"options\.mu must be finite and within ±1e\+38, got"):
        make_config({"algorithm": {"name": "fedprox", "options": {"mu": value}}})


EXTREMES = [
    *(("network.link_mbytes_per_s", bound) for bound in ("at_least", "at_most")),
    *(("network.access_mbytes_per_s", bound) for bound in ("at_least", "at_most")),
    *(("compute.gflops", bound) for bound in ("at_least", "at_most")),
    ("network.latency_s", "at_most"),
    ("network.access_latency_s", "at_most"),
    ("algorithm.alpha_iid", "at_most"),
    ("algorithm.alpha_comm", "at_most"),
    ("partition.sd", "at_most"),
    ("participation.deadline_s", "at_most"),
]


@pytest.mark.parametrize(("key", "bound"), EXTREMES)
def test_a_run_at_the_end_of_a_range_can_be_read_back(key: str, bound: str, tmp_path: Path) -> None:
    (config,) = expand(TINY, [f"{key}={bounds()[key][bound]}", "train.steps=2", "seed=1"])
    execute(config, tmp_path / "run")
    (run,), left_out = find_runs([tmp_path])
    assert not left_out
    assert run.rows[-1]["t"] == 2


def test_counts_have_a_most() -> None:
    with pytest.raises(ConfigError, match=f"train.steps must be <= {MANY}, got {MANY + 1}"):
        make_config({"train": {"steps": MANY + 1}})
