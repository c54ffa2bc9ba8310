"""Draw the house: write house.md and house.svg in docs/explanation from the imports of the sources.

python scripts/house.py            write both
python scripts/house.py --check    say whether they are as they would be written
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "coterie"
PAGES = ROOT / "docs" / "explanation"
LIST = ROOT / "tests" / "test_architecture.py"
WIDTH, ROW, BOX, HIGH = 1000, 74, 118, 30
Arrows = dict[str, set[str]]  # the packages that each imports


def read() -> tuple[dict[str, str], Arrows]:
    """Return what every package says it is, and the packages that it imports."""
    packages = sorted(p.parent for p in SOURCE.glob("*/__init__.py"))
    about = {p.name: _first_sentence(p / "__init__.py") for p in packages}
    arrows: Arrows = {name: set() for name in about}
    for package in packages:
        for path in package.rglob("*.py"):
            arrows[package.name] |= _imported(path) & (about.keys() - {package.name})
    return about, arrows


def _first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("coterie"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found


def levels() -> list[list[str]]:
    """Return the packages on every level, the lowest first, as the test of the house lists them."""
    for node in ast.parse(LIST.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LEVELS":
            return [sorted(level) for level in ast.literal_eval(node.value)]
    raise SystemExit(f"{LIST} has no LEVELS")


def direct(package: str, arrows: Arrows) -> list[str]:
    """Imports of a package that none of its other imports imports too: enough arrows to draw."""

    def below(name: str) -> set[str]:
        return arrows[name].union(*map(below, arrows[name])) if arrows[name] else set()

    others = arrows[package]
    return sorted(p for p in others if not any(p in below(q) for q in others - {p}))


def page(about: dict[str, str], arrows: Arrows, floors: list[list[str]]) -> str:
    """Write the page."""
    rows = [
        f"| {n} | `{package}` | {about[package]} | {', '.join(sorted(arrows[package])) or '-'} |"
        for n, floor in reversed(list(enumerate(floors)))
        for package in floor
    ]
    return "\n".join(
        [
            "# The house: packages and what they import",
            "",
            "Packages stand on levels. A package imports lower levels alone, never one beside or",
            "above it. `tests/test_architecture.py` lists the levels and checks that.",
            "`python scripts/house.py` draws this page.",
            "",
            "![Packages on their levels, with arrows to what they import](house.svg)",
            "",
            "| level | package | what it is | imports |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            "An arrow is left out where another way leads there, too.",
            "",
        ]
    )


def picture(arrows: Arrows, floors: list[list[str]]) -> str:
    """Draw boxes on levels, the lowest at the bottom, and arrows to what they need directly."""
    high = ROW * len(floors) + 10
    at: dict[str, tuple[float, float]] = {}
    for n, floor in enumerate(floors):
        for k, package in enumerate(floor):
            at[package] = WIDTH * (k + 1) / (len(floor) + 1), high - ROW * n - ROW / 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {high}" '
        'font-family="sans-serif" font-size="15">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for package, (x, y) in at.items():
        for other in direct(package, arrows):
            x2, y2 = at[other]
            top, end = y + HIGH / 2, y2 - HIGH / 2
            lines.append(
                f'<path d="M{x:.0f} {top:.0f}C{x:.0f} {top + 30:.0f} {x2:.0f} {end - 30:.0f} '
                f'{x2:.0f} {end:.0f}" fill="none" stroke="#9aa5b1"/>'
            )
    for package, (x, y) in at.items():
        lines.append(
            f'<rect x="{x - BOX / 2:.0f}" y="{y - HIGH / 2:.0f}" width="{BOX}" height="{HIGH}" '
            'rx="5" fill="#eef4fb" stroke="#4a7fb5"/>'
            f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle">{package}</text>'
        )
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    """Write the page and the picture, or check them."""
    about, arrows = read()
    floors = levels()
    files = {"house.md": page(about, arrows, floors), "house.svg": picture(arrows, floors)}
    for name, text in files.items():
        path = PAGES / name
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            raise SystemExit(f"{path} is not as it would be drawn; python scripts/house.py")


if __name__ == "__main__":
    main()
