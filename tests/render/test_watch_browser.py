"""The page of runs under way in a real browser: it grows, keeps what was chosen, and says so."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from browser import HOW, Browser, chromium
from ports import free_blocks
from resuming import PATIENCE_S
from watched import ended, planned, rising, under_way, watching

PROGRAM = chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=HOW)
CURVES = "[data-figure=curves]"
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert PROGRAM is not None
    browser = Browser(PROGRAM)
    yield browser
    browser.close()


def visit(browser: Browser, port: int, width: int = 1200) -> str:
    """Open the page of a server, and return its address."""
    url = f"http://127.0.0.1:{port}/"
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    browser.call("Page.navigate", url="about:blank")
    browser.errors, browser.requests = [], []
    browser.call("Page.navigate", url=url)
    browser.wait("!!document.querySelector('main h1')")
    return url


def news(browser: Browser) -> str:
    return str(browser.ask("document.querySelector('#news').textContent"))


def cells(browser: Browser, run: str) -> list[str]:
    row = f"document.querySelector('[data-run=\"{run}\"]')"
    browser.wait(f"!!{row}")
    return list(browser.ask(f"[...{row}.children].map(e => e.textContent)"))


def furthest(browser: Browser, line: str) -> float:
    """How far a line is drawn, in steps."""
    data = "coterie.watch.drawn.page.blocks[0].lines"
    return float(browser.ask(f"{data}.find(e => e.label === '{line}').curve.x.t.at(-1)"))


def test_curves_grow_and_choices_stay_without_a_reload(browser: Browser, tmp_path: Path) -> None:
    done, slow = rising(tmp_path / "done"), rising(tmp_path / EVIL, "hierfavg")
    waits = rising(tmp_path / "waits", "fedavg-ic")
    planned(tmp_path, done, slow, waits)
    under_way(done, 21)
    ended(done)
    under_way(slow, 6)
    with watching(tmp_path) as (port, _):
        url = visit(browser, port)
        browser.ask("globalThis.before = true")
        assert cells(browser, "waits")[1:3] == ["waiting", "0 of 20"]
        assert cells(browser, "done")[1:3] == ["complete", "20 of 20"]
        told = cells(browser, EVIL)
        assert told[:3] == [EVIL, "running", "5 of 20"]
        assert told[4:7] == ["30.0", "5", "0.5 s"]
        browser.wait(f"!!document.querySelector('{CURVES} .axis')")
        browser.click(f"{CURVES} [data-option=x][data-value=t]")
        browser.click(f"{CURVES} [data-line='hierfavg (running)']")
        browser.ask("document.querySelector('#shared').open = true")
        browser.ask(f"document.querySelector('{CURVES} [data-value=log]').focus()")
        assert furthest(browser, "hierfavg (running)") == 5
        under_way(slow, 11)
        browser.wait("coterie.watch.drawn.runs[0].t === 10")
        assert furthest(browser, "hierfavg (running)") == 10
        series = f"[...document.querySelectorAll('{CURVES} [data-series]')]"
        assert browser.ask(f"{series}.map(e => e.dataset.series)") == ["fedavg"]
        chosen = f"document.querySelector('{CURVES} [data-value=t]').ariaPressed"
        assert browser.ask(chosen) == "true"
        assert browser.ask("document.querySelector('#shared').open")
        assert browser.ask("document.activeElement.dataset.value") == "log"
        browser.hover(f"{CURVES} svg[role=img]")
        under_way(waits, 3)
        under_way(slow, 21)
        ended(slow)
        browser.wait(
            "coterie.watch.drawn.page.runs.length === 3 && coterie.watch.drawn.runs[1].t > 9"
        )
        labels = f"[...document.querySelectorAll('{CURVES} [data-line]')].map(e => e.dataset.line)"
        assert browser.ask(labels) == ["fedavg", "hierfavg", "fedavg-ic (running)"]
        hidden = f"document.querySelector('{CURVES} [data-line=hierfavg]').ariaPressed"
        assert browser.ask(hidden) == "false"  # as when it was running
        assert not browser.ask("document.querySelector('#tip').hidden")
        assert news(browser).startswith("2 of 3 runs complete, 1 running. Last news ")
        assert browser.ask("document.title").startswith("2/3 ")
        assert browser.ask("before")
        assert browser.errors == []
        asked = {address for address in browser.requests if not address.startswith("data:")}
        assert asked == {url, f"{url}data.json"}


def test_a_server_that_is_gone_is_said_and_found_again(browser: Browser, tmp_path: Path) -> None:
    run = rising(tmp_path / "a")
    under_way(run, 6)
    port = next(free_blocks(1))
    with watching(tmp_path, "--port", port) as (_, process):
        visit(browser, port)
        assert cells(browser, "a")[2] == "5 of 20"
        assert browser.errors == []
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        browser.wait(
            "document.querySelector('#lost').textContent.startsWith('Connection lost; ret')"
        )
        assert cells(browser, "a")[2] == "5 of 20"
    under_way(run, 9)
    with watching(tmp_path, "--port", port):
        browser.wait("document.querySelector('[data-run=a]').children[2].textContent[0] === '8'")
        browser.wait("!document.querySelector('#lost').textContent")


def test_a_page_of_nothing_waits_and_begins(browser: Browser, tmp_path: Path) -> None:
    with watching(tmp_path) as (port, _):
        visit(browser, port, width=390)
        browser.wait("document.querySelector('#news').textContent.includes('No run has begun')")
        assert browser.ask("document.querySelectorAll('figure, #settings, table').length") == 1
        run = rising(tmp_path / "a")
        folder = under_way(run, 6)
        assert cells(browser, "a")[1:3] == ["running", "5 of 20"]
        browser.wait(f"document.querySelectorAll('{CURVES} [data-series]').length === 1")
        assert browser.ask("document.documentElement.scrollWidth") <= 390
        long_ago = time.time() - 100
        for path in folder.iterdir():
            os.utime(path, (long_ago, long_ago))
        browser.wait("document.querySelector('[data-run=a]').dataset.status === 'quiet'")
        assert cells(browser, "a")[1].startswith("running; no sign for ")
        said = browser.ask("document.querySelector('#ways').textContent")
        assert said.endswith(f"its process is gone; then go on with: coterie run --resume {folder}")
        assert browser.errors == []
