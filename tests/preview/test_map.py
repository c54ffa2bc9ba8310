"""Where groups paid: what is known of it, and where a plan is among that."""

from dataclasses import replace
from pathlib import Path

import pytest

from coterie.preview.from_labels import plans_by_labels
from coterie.preview.map import FAR, here, spots
from coterie.preview.plan import PlanView
from coterie.render.page.map import here_table, map_figure
from coterie.render.page.plan import plan_page

MB = 1_000_000


def planned(tmp_path: Path, edge: str = "edge") -> PlanView:
    rows = [f"{s}{i},{s},{80 * (s == 'a')},{80 * (s == 'b')}" for s in "ab" for i in (1, 2, 3)]
    (tmp_path / "nodes.csv").write_text("\n".join([f"node,{edge},cat,dog", *rows, ""]))
    net = [f"{s}{i},switch {s},10," for s in "ab" for i in (1, 2, 3)]
    net += [f"switch {s},core,1,yes" for s in "ab"]
    (tmp_path / "net.csv").write_text("\n".join(["a,b,mbytes_per_s,server", *net, ""]))
    files = tmp_path / "nodes.csv", tmp_path / "net.csv"
    told = ("algorithm.num_groups=2",)
    return plans_by_labels(*files, MB, told, methods=("edge",), budget_s=0.01)


def test_every_spot_has_an_interval_around_its_ratio() -> None:
    assert len(spots()) > 10
    for spot in spots():
        assert spot.low <= spot.times <= spot.high
        assert spot.told or spot.best == "either"
        assert not spot.told or (spot.best == "fedavg") == (spot.times < 1)


def test_a_plan_is_at_the_spot_that_is_like_it(tmp_path: Path) -> None:
    view = planned(tmp_path)
    first = here(view)
    assert first is not None
    assert first.spot.network == "edge-cloud"  # places serve
    assert (first.nodes_emd, first.edges_emd) == (1.0, 1.0)
    like = replace(
        first.spot, wait=first.wait, nodes_emd=first.nodes_emd, edges_emd=first.edges_emd
    )
    found = here(view, [*spots(), like])
    assert found is not None
    assert found.spot == like
    assert found.distance == pytest.approx(0)
    assert found.near


def test_a_plan_that_is_like_nothing_measured_is_off_the_map(tmp_path: Path) -> None:
    view = planned(tmp_path)
    first = here(view)
    assert first is not None
    away = here(view, [replace(first.spot, wait=1e3 * first.wait)])
    assert away is not None
    assert away.distance > FAR
    assert here_table(away).title.startswith("off the map")


def test_a_plan_whose_devices_are_of_no_other_kind_than_measured_is_drawn(tmp_path: Path) -> None:
    page = plan_page(planned(tmp_path), [])
    _, last = page.sections
    assert not last.beside
    figure = last.draw()
    words = [text.get_text() for axis in figure.axes for text in axis.texts]
    assert words.count("you are here") == 1
    assert "you are here" not in [t.get_text() for a in map_figure(spots()).axes for t in a.texts]
