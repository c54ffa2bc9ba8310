"""The gallery: every scenario loads, plans and trains, says its sources, and is listed."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import coterie
from coterie.cli import main
from coterie.config.files import load_experiment
from coterie.config.shipped import experiments, scenarios
from coterie.core.errors import ConfigError
from coterie.preview.scenarios import Scenario, about, survey

ROOT = Path(__file__).resolve().parents[2]
GALLERY = scenarios()


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["scenarios", *words])


def surveyed(name: str) -> Scenario:
    return survey(name, GALLERY[name].read_text(), load_experiment(GALLERY[name])[0])


def test_a_scenario_has_a_name_of_its_own_among_the_experiments_that_ship() -> None:
    assert set(GALLERY) & {path.stem for path in experiments().glob("*.toml")} == set()


@pytest.mark.parametrize("name", GALLERY)
def test_a_scenario_says_what_it_is_its_sources_assumptions_and_what_is_left_out(name: str) -> None:
    text = GALLERY[name].read_text()
    comments = [line for line in text.splitlines() if line.startswith("#")]
    heads = [line for line in comments if re.match(r"# [SAL]\w+( \w+)?$", line)]
    assert heads == ["# Sources", "# Assumptions", "# Left out"]
    assert 20 < len(about(text)) < 90
    assert re.search(r"(19|20)\d\d", "".join(comments)), "no source has a year"
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("name", GALLERY)
def test_a_scenario_trains_a_few_steps_on_embedded_data(name: str) -> None:
    (config,) = load_experiment(GALLERY[name], ["train.steps=5"])
    rows = [state.row for state in coterie.simulate(config)]
    assert rows[-1].t == 5
    assert rows[-1].seconds > 0
    assert rows[-1].test_accuracy is not None


@pytest.mark.parametrize("name", GALLERY)
def test_a_scenario_can_be_planned(name: str, tmp_path: Path) -> None:
    """As if all took part: draws of who is there are tested elsewhere, and take their time."""
    _plan(name, tmp_path, "participation.fraction=1", "participation.dropout=0")


@pytest.mark.long
@pytest.mark.parametrize("name", GALLERY)
def test_a_scenario_can_be_planned_as_it_is(name: str, tmp_path: Path) -> None:
    _plan(name, tmp_path)


def _plan(name: str, folder: Path, *sets: str) -> None:
    more = [word for each in sets for word in ("--set", each)]
    few = ["--methods", "edge,random", "-o", str(folder / "plan.html")]
    done = CliRunner().invoke(main, ["plan", name, *few, *more])
    assert done.exit_code == 0, done.output
    assert "d_group" in done.output


def test_the_network_files_are_as_they_would_be_written() -> None:
    script = ROOT / "scripts" / "scenarios.py"
    subprocess.run([sys.executable, str(script), "--check"], check=True)


def test_an_unknown_key_in_a_scenario_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ships.toml"
    path.write_text("[network]\ntopologie = 'fat-tree'\n")
    with pytest.raises(ConfigError, match="did you mean") as told:
        load_experiment(path)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("command", ["plan", "run", "fair"])
@pytest.mark.parametrize("more", ["[train]\nsped = 3\n", "[netwrk]\nspeed = 3\n"])
def test_every_command_refuses_a_scenario_with_an_unknown_key_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, more: str
) -> None:
    monkeypatch.chdir(tmp_path)
    text = scenarios()["factories"].read_text(encoding="utf-8").partition("[train]")[0]
    (tmp_path / "mine.toml").write_text(text + more)
    target = ["--target-accuracy", "0.5"] if command == "fair" else []
    done = CliRunner().invoke(main, [command, "mine.toml", *target])
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert "unknown setting" in done.output and "did you mean" in done.output


def test_a_network_file_is_found_beside_the_experiment_and_first_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, here = tmp_path / "there", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    (folder / "x.toml").write_text("[network]\ntopology = 'file'\nfile = 'net.csv'\n")
    named = [load_experiment(folder / "x.toml")[0].network.file]
    (folder / "net.csv").write_text("a,b\n")
    named += [load_experiment(folder / "x.toml")[0].network.file]
    (here / "net.csv").write_text("a,b\n")
    named += [load_experiment(folder / "x.toml")[0].network.file]
    assert named == ["net.csv", str(folder / "net.csv"), "net.csv"]


def test_the_slow_link_of_phones_under_lte_is_the_slowest_phone_s_and_of_5g_the_air() -> None:
    """Ten phones share 135 Mbit/s: 13.5 each, less than the slowest phone's own link of 5G."""
    lte, five = surveyed("phones-lte"), surveyed("phones-5g")
    assert (lte.slow, five.slow) == ("access", "radio")
    assert lte.slow_bytes_per_s == pytest.approx(lte.slow_tier.least_up)
    assert five.slow_bytes_per_s == pytest.approx(135e6 / 8)
    assert [tier.name for tier in five.tiers] == ["access", "radio", "backhaul"]


def test_ships_have_a_fast_lan_and_a_slow_satellite() -> None:
    lan, satellite = surveyed("ships").tiers
    assert (lan.links, satellite.links) == (40, 8)
    assert lan.up / satellite.up == pytest.approx(1000 / 2.43)
    assert satellite.latency_s == pytest.approx(0.362)


def test_the_command_lists_all_and_shows_one_with_its_sources() -> None:
    listed, shown, told = run(), run("ships"), run("ships", "--json")
    assert [done.exit_code for done in (listed, shown, told)] == [0, 0, 0]
    for name, path in GALLERY.items():
        assert f"{name}: {about(path.read_text())}" in listed.output
    assert "# Sources" in shown.output
    assert "satellite, 2.43 Mbit/s" in shown.output
    (found,) = json.loads(told.output)
    assert (found["devices"], found["slow"]) == (40, "satellite")


def test_an_unknown_scenario_is_refused_in_a_line_that_names_a_near_one() -> None:
    done = run("shipps")
    assert done.exit_code == 2
    assert done.output == "coterie: no scenario called 'shipps'; did you mean 'ships'?\n"
