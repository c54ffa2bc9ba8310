"""A page as a value: what is drawn of it, where, and in which order."""

import re
from pathlib import Path
from typing import Any

import pytest

from browser import HOW, Browser, chromium
from coterie.render.page.html import Page, Section, Table, page_files


def figure() -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(1, 1))


def table(title: str, foot: str = "") -> Table:
    return Table(title, ("a\nb", "<c>"), [("1", "<2>")], foot)


def text_of(page: bytes) -> list[str]:
    """The words of a page in their order, and where its picture is."""
    body = page.decode().partition("</style>")[2].replace("<img", ">(picture)<img")
    return [word for word in re.sub(r"<[^>]*>|>(?=\()", "\n", body).split("\n") if word]


def test_a_picture_stands_below_the_first_table_and_remarks_at_the_end() -> None:
    section = Section(
        [table("one", "x\ny"), table("two")], figure, "alt", "part", ["note"], ["why & how"]
    )
    files = page_files(Page("the title", [section], "the foot"), Path("out/p.html"))
    assert list(files) == [Path("out/p.html"), Path("out/p.png")]
    assert text_of(files[Path("out/p.html")]) == [
        *("the title", "part", "one", "a b", "&lt;c&gt;", "1", "&lt;2&gt;", "x", "y"),
        *("note", "(picture)"),
        *("two", "a b", "&lt;c&gt;", "1", "&lt;2&gt;", "why &amp; how", "the foot"),
    ]
    assert files[Path("out/p.png")].startswith(b"\x89PNG")


def test_pictures_of_several_sections_are_numbered() -> None:
    page = Page("t", [Section([table("one")], figure, "") for _ in range(2)])
    assert [path.name for path in page_files(page, Path("p"))] == ["p.html", "p-1.png", "p-2.png"]


def test_without_a_path_nothing_is_drawn() -> None:
    def never() -> Any:
        raise AssertionError

    assert page_files(Page("t", [Section([table("one")], never, "")]), None) == {}


@pytest.mark.skipif(chromium() is None, reason=HOW)
def test_a_page_obeys_its_policy_in_a_browser_and_looks_as_before(tmp_path: Path) -> None:
    title = "t</p><script>document.title = 'run'</script><img src=x>"
    page = Page("the title", [Section([table(title)], figure, "alt")])
    for path, content in page_files(page, tmp_path / "p.html").items():
        path.write_bytes(content)
    browser = Browser(str(chromium()))
    try:
        browser.open(tmp_path / "p.html")
        assert browser.errors == []
        assert browser.ask("document.title") == "the title"
        assert browser.ask("document.querySelector('img').naturalWidth") > 0
        collapsed = "getComputedStyle(document.querySelector('table')).borderCollapse"
        assert browser.ask(collapsed) == "collapse"  # its style is applied
        browser.ask(
            "(() => {const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            "document.body.append(s)})()"
        )
        assert browser.ask("window.ran === undefined")
        assert any("Content Security Policy" in error for error in browser.errors)
    finally:
        browser.close()
