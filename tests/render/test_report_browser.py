"""The page of runs in a real browser: it draws, answers, saves, and lets nothing in or out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from browser import HOW, Browser, chromium
from coterie.paper import Dots, Table
from coterie.render.page import page_data, render, write_report
from coterie.runs.record import RecordedRun
from made_runs import NODES, made_run

PROGRAM = chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=HOW)
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'"
CURVES = "[data-figure=curves]"
PAPER = 180 / 25.4 * 96  # pixels between the margins of a page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    browser = Browser(PROGRAM)
    yield browser
    browser.close()


def some_runs(folder: str = "runs", rows: int = 30) -> list[RecordedRun]:
    names = [EVIL, *(f"device {i}" for i in range(1, NODES))]
    rise = np.linspace(0, 1, rows) ** 0.5
    return [
        made_run(
            Path(folder) / f"{algorithm}-{seed} {EVIL.replace('/', '')}",
            algorithm,
            seed,
            [float(v) for v in 0.1 + (best + 0.02 * seed) * rise],
            step_s=step_s,
            Delta=Delta,
            group_s=step_s / 10,
            names=names,
        )
        for algorithm, best, step_s, Delta in (
            ("fedavg", 0.5, 1.0, 0.0),
            ("hierfavg", 0.5, 1.5, 2.0),
            ("fedavg-ic", 0.7, 2.0, 0.1),
        )
        for seed in (0, 1)
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    left_out = [f"runs/{EVIL}: damaged; to run it again: {EVIL}"]
    dots = Dots("ups", f"Speed-ups {EVIL}", "speed-up")
    dots.add(EVIL, {"paper": 8.3, EVIL: 1.5, "never": None})
    dots.add("Dhh sr", {"paper": 2.0, EVIL: None, "never": None})
    columns = ("work", "paper", "mixed", "verdict", "honest", "verdict")
    rows = [[EVIL, "8.3x", "8.0x", "reproduced", "1.5x", "differs: 0.18 of it"]]
    rows += [["Dhh sr", "2.0x", "not run", "not run", "", ""]]
    tables = [
        Table("Paper and measured", ("work", "verdict"), [[EVIL, "reproduced"]], EVIL, dots),
        Table("More", columns, rows),
    ]
    write_report(some_runs(), path, left_out=left_out, tables=tables)
    return path


@pytest.fixture
def shown(browser: Browser, page: Path) -> Iterator[Browser]:
    browser.open(page)
    yield browser
    assert browser.errors == []
    outside = [url for url in browser.requests if not url.startswith(("data:", "blob:"))]
    assert outside == [page.as_uri()]


def test_the_page_opens_quietly_and_asks_for_nothing(browser: Browser, page: Path) -> None:
    seconds = browser.open(page)
    print(f"\nopened in {seconds:.2f} s, {page.stat().st_size / 1e3:.0f} kB")
    browser.ask("coterie.draw()")
    assert browser.ask("document.querySelectorAll('figure svg[role=img]').length") == 9
    assert browser.errors == []
    assert browser.requests == [page.as_uri()]


def test_names_are_shown_and_never_run(shown: Browser) -> None:
    shown.ask("coterie.draw()")
    assert shown.ask("document.querySelectorAll('img, script[src]').length") == 0
    assert EVIL in shown.ask("document.querySelector('#left-out').textContent")
    assert "<img src=x" in shown.ask("document.querySelector('#settings').textContent")
    assert shown.ask("document.querySelector('#table-1').innerText").count(EVIL) == 5
    assert shown.ask("document.querySelector('#table-1 td').textContent") == "reproduced"
    shown.click("[data-figure=network] svg[role=img]")
    shown.key("ArrowRight")
    assert shown.ask("document.querySelector('#tip strong').textContent") == EVIL


def test_figures_are_drawn_for_paper_and_afterwards_as_before(shown: Browser) -> None:
    shown.ask("coterie.draw()")
    pictures = "[...document.querySelectorAll('figure svg[role=img]')]"
    sizes = (
        f"{pictures}.map((s) => [s.getBoundingClientRect().width, s.closest('.plot').clientWidth])"
    )
    theme = "document.documentElement.dataset.theme || ''"
    before, theme_before = shown.ask(sizes), shown.ask(theme)
    shown.call("Emulation.setEmulatedMedia", media="print")
    shown.ask("dispatchEvent(new Event('beforeprint'))")
    on_paper = shown.ask(sizes)
    assert len(on_paper) == 9
    assert all(width <= room + 1 < PAPER + 1 for width, room in on_paper)
    assert shown.ask(theme) == "light"
    exact = "getComputedStyle(document.querySelector('rect.part')).printColorAdjust"
    assert shown.ask(exact) == "exact"
    shown.call("Emulation.setEmulatedMedia", media="")
    shown.ask("dispatchEvent(new Event('afterprint'))")
    assert shown.ask(sizes) == before
    assert shown.ask(theme) == theme_before


def test_delays_have_no_sum_and_all_begin_at_0(shown: Browser) -> None:
    shown.ask("coterie.draw()")
    bars = "[...document.querySelectorAll('[data-figure=delays] rect.part')]"
    places = shown.ask(f"{bars}.map((r) => [r.getAttribute('x'), r.getAttribute('y')])")
    assert len(places) == 8  # fedavg has no group mean
    assert len({x for x, _ in places}) == 1
    assert len({y for _, y in places}) == 8
    shown.hover("[data-figure=delays] rect.part")
    assert "all together" not in shown.ask("document.querySelector('#tip').innerText")
    shown.hover("[data-figure=seconds] rect.part")
    assert "all together" in shown.ask("document.querySelector('#tip').innerText")


def test_what_was_judged_is_a_picture_first_and_then_tables(shown: Browser) -> None:
    shown.hover("[data-figure=dots] path.dot")
    said = shown.ask("document.querySelector('#tip').innerText")
    assert said.startswith(EVIL)
    assert "8.3x" in said
    assert "1.5x" in said
    marks = "document.querySelectorAll('[data-figure=dots] path.dot').length"
    assert shown.ask(marks) == 3
    shown.click("[data-figure=dots] [data-line=paper]")
    assert shown.ask(marks) == 1
    assert not shown.ask("document.querySelector('#table-2').open")
    shown.click("#table-2 summary")
    assert shown.ask("document.querySelector('#table-2').open")
    lines = "[...document.querySelectorAll('#table-2 tr')]"
    told = shown.ask(f"{lines}.map((line) => [...line.cells].map((cell) => cell.innerText))")
    head, first, second = told
    assert head == ["work", "paper", "mixed", "honest"]
    assert first[1:] == ["8.3x", "8.0x\nreproduced", "1.5x\ndiffers: 0.18 of it"]
    assert second[1:] == ["2.0x", "not run", ""]
    assert shown.ask("document.querySelector('#table-2 .verdict.off').textContent").startswith(
        "dif"
    )
    assert shown.ask("document.querySelectorAll('#table-2 .verdict.good').length") == 1


def test_hovering_tells_every_line_at_that_place(shown: Browser) -> None:
    shown.hover(f"{CURVES} svg[role=img]")
    said = shown.ask("document.querySelector('#tip').innerText")
    assert said.startswith("simulated time, near ")
    for line in ("fedavg", "hierfavg", "fedavg-ic"):
        assert line in said
    shown.mouse("mouseMoved", 2, 2)
    assert shown.ask("document.querySelector('#tip').hidden")


def test_a_node_tells_its_group_and_classes(shown: Browser) -> None:
    shown.ask("coterie.draw()")
    shown.hover("[data-figure=network] path.node:nth-of-type(7)")
    said = shown.ask("document.querySelector('#tip').innerText")
    for words in ("device", "group", "examples", "classes", "server"):
        assert words in said
    assert shown.ask("document.querySelectorAll('[data-figure=network] .dim').length") == 15


def test_the_legend_hides_and_shows_a_line_in_all_figures(shown: Browser) -> None:
    series = f"document.querySelectorAll('{CURVES} [data-series]').length"
    shown.wait(f"{series} === 3")
    shown.click(f"{CURVES} [data-line=hierfavg]")
    assert shown.ask(series) == 2
    pressed = f"document.querySelector('{CURVES} [data-line=hierfavg]').ariaPressed"
    assert shown.ask(pressed) == "false"
    shown.ask("coterie.draw()")
    others = "document.querySelectorAll('[data-figure=divergence] [data-series]').length"
    assert shown.ask(others) == 1  # fedavg is at 0, which a log scale cannot show
    shown.click(f"{CURVES} [data-line=hierfavg]")
    assert shown.ask(series) == 3


def test_axes_can_be_changed(shown: Browser) -> None:
    shown.wait(f"!!document.querySelector('{CURVES} .axis')")

    def texts(kind: str) -> list[str]:
        found = f"document.querySelectorAll('{CURVES} svg text.{kind}')"
        return list(shown.ask(f"[...{found}].map(e => e.textContent)"))

    def names() -> list[str]:
        return texts("name")

    def ticks() -> list[str]:
        return texts("tick.mid")

    assert names() == ["simulated time (s)", "test accuracy (%)"]
    linear = ticks()
    assert linear[0] == "0"
    shown.click(f"{CURVES} [data-option=logx][data-value=log]")
    assert "0" not in ticks()
    shown.click(f"{CURVES} [data-option=x][data-value=wall_s]")
    assert names()[0] == "wall time (s)"
    shown.click(f"{CURVES} [data-option=x][data-value=epoch]")
    assert names()[0] == "epochs"
    shown.click(f"{CURVES} [data-option=y][data-value=train_loss]")
    assert names()[1] == "train loss"
    assert shown.ask(f"!document.querySelector('{CURVES} .target')")


def test_the_target_and_who_reached_it_are_marked(shown: Browser) -> None:
    shown.wait(f"!!document.querySelector('{CURVES} .target')")
    hits = f"[...document.querySelectorAll('{CURVES} [data-hit]')].map(e => e.dataset.hit)"
    assert shown.ask(hits) == ["fedavg", "hierfavg", "fedavg-ic"]
    said = shown.ask(f"document.querySelector('{CURVES} figcaption').textContent")
    assert "Target 61% first measured" in said


def test_bands_say_what_they_are(shown: Browser) -> None:
    caption = f"document.querySelector('{CURVES} figcaption').textContent"
    shown.wait(f"document.querySelectorAll('{CURVES} .band').length === 3")
    assert "from the least to the most" in shown.ask(caption)
    shown.click(f"{CURVES} [data-option=band][data-value=sd]")
    assert "± one standard deviation" in shown.ask(caption)
    shown.click(f"{CURVES} [data-option=band][data-value=none]")
    assert shown.ask(f"document.querySelectorAll('{CURVES} .band').length") == 0


def test_a_stretch_can_be_looked_at_closely_and_left_again(shown: Browser) -> None:
    shown.wait(f"!!document.querySelector('{CURVES} .axis')")
    first = f"document.querySelector('{CURVES} svg text.tick.mid').textContent"
    assert shown.ask(first) == "0"
    x, y = shown.middle(f"{CURVES} svg[role=img]")
    shown.mouse("mousePressed", x, y - 60)
    shown.mouse("mouseMoved", x + 200, y + 40)
    shown.mouse("mouseReleased", x + 200, y + 40)
    assert float(shown.ask(first)) > 0
    shown.click(f"{CURVES} .whole-view")
    assert shown.ask(first) == "0"


def test_dark_follows_the_system_and_the_button(browser: Browser, page: Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(page, dark=True)
    assert browser.ask(paper) == "rgb(17, 20, 23)"
    browser.click("#theme")
    assert browser.ask(paper) == "rgb(246, 247, 248)"
    browser.open(page)
    assert browser.ask(paper) == "rgb(246, 247, 248)"
    browser.click("#theme")
    assert browser.ask(paper) == "rgb(17, 20, 23)"


@pytest.mark.parametrize(
    "figure",
    ["curves", "network", "classes", "seconds", "delays", "bytes", "pareto", "divergence"],
)
def test_every_figure_can_be_saved(shown: Browser, figure: str) -> None:
    where = f"[data-figure={figure}]"
    shown.hover(where)
    shown.wait(f"!!document.querySelector('{where} svg[role=img]')")
    picture = shown.download(f"{where} [data-save=PNG]")
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 4000
    drawn = shown.download(f"{where} [data-save=SVG]").decode()
    assert drawn.startswith("<svg")
    assert "var(" not in drawn
    assert "<script" not in drawn
    rows = shown.download(f"{where} [data-save=CSV]").decode().splitlines()
    assert len(rows) > 2
    assert {row.count(",") for row in rows if '"' not in row} == {rows[0].count(",")}


def test_everything_is_reached_by_the_keyboard(shown: Browser) -> None:
    shown.ask("coterie.draw()")
    reached = set()
    name = "e.id || e.dataset.value || e.dataset.line || e.dataset.save || e.tagName"
    for _ in range(60):
        shown.key("Tab")
        reached.add(shown.ask(f"(e => {name})(document.activeElement)"))
    assert {"theme", "log", "wall_s", "train_loss", "fedavg-ic", "PNG", "SUMMARY", "svg"} <= reached
    shown.ask(f"document.querySelector('{CURVES} [data-value=log]').focus()")
    shown.key("Enter")
    assert shown.ask(f"document.querySelector('{CURVES} [data-value=log]').ariaPressed") == "true"


def test_arrow_keys_walk_along_a_curve(shown: Browser) -> None:
    shown.wait(f"!!document.querySelector('{CURVES} .axis')")
    shown.ask(f"document.querySelector('{CURVES} svg[role=img]').focus()")
    said = []
    for _ in range(3):
        shown.key("ArrowRight")
        said.append(shown.ask("document.querySelector('#tip strong').textContent"))
    assert len(set(said)) == 3
    assert shown.ask("document.querySelector('#tip').ariaLive") == "polite"
    shown.key("Escape")
    assert shown.ask("document.querySelector('#tip').hidden")


def test_a_phone_needs_no_sideways_scrolling(browser: Browser, page: Path) -> None:
    browser.open(page, width=390)
    browser.ask("coterie.draw()")
    assert browser.ask("document.documentElement.scrollWidth") <= 390
    over = (
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.wide, .plot') && "
        "e.getBoundingClientRect().right > 391).map(e => e.outerHTML.slice(0, 80))"
    )
    assert browser.ask(over) == []
    assert browser.ask("document.documentElement.scrollHeight") < 12_000
    assert browser.errors == []


def test_figures_and_pictures_have_words_for_those_who_do_not_see_them(shown: Browser) -> None:
    shown.ask("coterie.draw()")
    named = "[...document.querySelectorAll('svg[role=img], .wide, .segments')]"
    assert shown.ask(f"{named}.length") > 20
    assert shown.ask(f"{named}.filter(e => !e.ariaLabel).length") == 0


def test_many_settings_begin_folded_and_open_from_the_contents(
    browser: Browser, tmp_path: Path
) -> None:
    runs = [
        made_run(Path(f"runs/{a}-{lr}"), a, 0, settings={"train": {"lr": lr / 100}})
        for lr in range(1, 13)
        for a in ("fedavg", "fedavg-ic")
    ]
    path = tmp_path / "many.html"
    path.write_bytes(render(page_data(runs)))
    seconds = browser.open(path)
    print(f"\n12 settings opened in {seconds:.2f} s")
    opened = "[...document.querySelectorAll('details.block')].filter(e => e.open).length"
    assert browser.ask(opened) == 1
    assert browser.ask("document.querySelectorAll('#block-7 figure').length") == 0
    browser.click("nav tbody tr:nth-child(7) a")
    browser.wait("document.querySelectorAll('#block-7 figure').length === 8")
    assert browser.ask(opened) == 2
    assert browser.errors == []


def test_first_at_the_target_is_who_got_there_with_all_seeds_if_any_did(
    browser: Browser, tmp_path: Path
) -> None:
    late, quick, never = (0.1, 0.5, 0.7), (0.1, 0.9, 0.9), (0.1, 0.2, 0.3)
    rises = {"fedavg": (late, late), "hierfavg": (quick, never)}  # of two seeds
    runs = [
        made_run(Path(f"runs/{a}-{seed}-{lr}"), a, seed, rise, settings={"train": {"lr": lr}})
        for lr, names in ((0.1, ("fedavg", "hierfavg")), (0.2, ("hierfavg",)))
        for a in names
        for seed, rise in enumerate(rises[a])
    ]
    path = tmp_path / "some.html"
    path.write_bytes(render(page_data(runs, target=0.7)))
    browser.open(path)
    told = "[...document.querySelectorAll('nav tbody tr td:last-child')].map(e => e.textContent)"
    assert browser.ask(told) == ["fedavg, 2 s", "hierfavg, 1 s (1/2)"]


def test_fresh_data_keeps_what_was_chosen(shown: Browser) -> None:
    shown.click(f"{CURVES} [data-option=logx][data-value=log]")
    shown.click(f"{CURVES} [data-line=hierfavg]")
    shown.ask("coterie.show(JSON.parse(document.getElementById('data').textContent))")
    shown.wait(f"document.querySelectorAll('{CURVES} [data-series]').length === 2")
    assert shown.ask(f"document.querySelector('{CURVES} [data-value=log]').ariaPressed") == "true"


def test_seventy_long_runs_open_soon(browser: Browser, tmp_path: Path) -> None:
    runs = [
        made_run(Path(f"runs/{a}-{seed}-{lr}"), a, seed, rise, settings={"train": {"lr": lr}})
        for a in ("fedavg", "hierfavg", "fedavg-c", "fedavg-i", "fedavg-ic", "centralized")
        for seed in range(4)
        for lr in (0.1, 0.2, 0.3)
        for rise in [list(np.linspace(0.1, 0.9, 400))]
    ]
    path = tmp_path / "long.html"
    path.write_bytes(render(page_data(runs)))
    seconds = browser.open(path)
    print(f"\n{len(runs)} runs opened in {seconds:.2f} s, {path.stat().st_size / 1e6:.1f} MB")
    assert path.stat().st_size < 8_000_000
    assert browser.errors == []
