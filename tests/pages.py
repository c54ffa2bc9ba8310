"""The pages as tests read them: prose, and fenced blocks with what is said of each."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PRINTED = DOCS / "results" / "tables"  # by programs, which know no line length
PAGES = [README, *(p for p in sorted(DOCS.rglob("*.md")) if PRINTED not in p.parents)]

SHELLS = ("bash", "console", "sh")
FENCE = re.compile(r"^ *```(\w*)(?: title=\"([^\"]+)\")? *$")
MARK = re.compile(r"^\*?Not run by our tests: \S")
LONG = "<!-- long -->"
COMMAND = re.compile(r"^(\$ )?(\S*/)?(coterie|make|pip|python3?|git|flwr|ray) ")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it is, its language, the file it is, its lines, what is above it."""

    page: Path
    line: int
    language: str
    title: str
    lines: tuple[str, ...]
    above: tuple[str, ...]  # the paragraph before it

    @property
    def commands(self) -> list[str]:
        """The commands to type; none if the block is of something else."""
        known = self.language in SHELLS
        if not known and (self.language or not any(map(COMMAND.match, self.lines))):
            return []
        lines = "\n".join(self.lines).replace("\\\n", " ").split("\n")
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        return [line.strip() for line in lines if shlex.split(line, comments=True)]

    @property
    def not_run(self) -> bool:
        """Whether the page says that no test runs it, and why."""
        return any(map(MARK.match, self.above))

    @property
    def long(self) -> bool:
        """Whether it takes too long for every day."""
        return LONG in self.above or self.page == README


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    found: list[Block] = []
    above: list[str] = []  # the last paragraph
    inside: list[str] | None = None  # lines of the block under way
    start, kind, fresh = 0, ("", ""), True
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        fence = FENCE.match(line)
        if inside is not None and fence:
            found.append(Block(page, start, *kind, tuple(inside), tuple(above)))
            inside, above = None, []
        elif inside is not None:
            inside.append(line)
        elif fence:
            inside, start, kind = [], number, (fence[1], fence[2] or "")
        elif line.strip():
            above = [line] if fresh else [*above, line]
        fresh = not line.strip()
    assert inside is None, f"{page}: a block without end"
    return found


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are sentences, with their numbers: no code, no tables."""
    inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside and not line.lstrip().startswith("|"):
            yield number, line


def named(page: Path) -> str:
    """The name of a page in a test's id."""
    return page.relative_to(ROOT).as_posix()
