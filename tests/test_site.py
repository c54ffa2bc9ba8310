"""The site that `make docs` builds: it opens from disk, on a phone, and asks for nothing else."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from browser import HOW, Browser, chromium
from pages import ROOT

PHONE = 390
LOADED = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^\"' >]+"
)

needs_mkdocs = pytest.mark.skipif(
    not (find_spec("mkdocs") and find_spec("material") and find_spec("mkdocstrings")),
    reason="mkdocs is not installed, so the site is not built; make docs installs it",
)
pytestmark = needs_mkdocs


def build(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Build a site into a folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder), *more]
    said = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=said, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site."""
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip(HOW)
    tab = Browser(program)
    yield tab
    tab.close()


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert LOADED.findall(page.read_text()) == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"(?:url\([\"']?|@import [\"'])(?:https?:)?//", style.read_text()) == []


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A page\n\n[nothing](nowhere.md)\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(f"INHERIT: {ROOT}/mkdocs.yml\nhooks: []\nnav: [index.md]\n")
    done = build(tmp_path / "site", "--config-file", str(config))
    assert done.returncode == 1
    assert "nowhere.md" in done.stderr


def test_links_to_the_sources_are_not_on_the_site(site: Path) -> None:
    assert not re.search(r"href=\"[^\"]*\.\./src/", (site / "howto" / "data.html").read_text())


def test_every_page_fits_a_phone_and_asks_for_files_alone(site: Path, browser: Browser) -> None:
    pages = [
        p for p in sorted(site.rglob("*.html")) if p.name not in ("404.html", "efficiency.html")
    ]
    assert len(pages) > 20
    for page in pages:
        browser.open(page, width=PHONE, height=844)
        assert browser.ask("document.documentElement.scrollWidth") <= PHONE, page
        assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
        assert browser.errors == [], page


def test_the_site_is_dark_where_the_system_is(site: Path, browser: Browser) -> None:
    def background(*, dark: bool) -> str:
        browser.open(site / "index.html", dark=dark)
        return str(browser.ask("getComputedStyle(document.body).backgroundColor"))

    assert background(dark=False) != background(dark=True)


def test_search_finds_a_page_from_disk(site: Path, browser: Browser) -> None:
    browser.open(site / "howto" / "runs.html")
    browser.call("Emulation.setFocusEmulationEnabled", enabled=True)
    browser.click("input.md-search__input")
    browser.call("Input.insertText", text="jellyfish")
    hits = "[...document.querySelectorAll('.md-search-result__link')].map(a => a.href).join(' ')"
    browser.wait(f"{hits}.includes('explanation/network.html')")
    assert browser.errors == []
