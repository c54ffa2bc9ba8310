"""What the documents cite must exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FIELDS = {"test_loss", "test_accuracy"}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_cited_test_exists(page: Path) -> None:
    cited = set(re.findall(r"`(test_\w+)`", page.read_text())) - FIELDS
    sources = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert {name for name in cited if f"def {name}(" not in sources} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_resolves(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []
