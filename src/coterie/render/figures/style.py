"""How figures look: fonts, colours that are told apart in any print, and files without dates."""

import io
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from coterie.analysis.palette import COLOURS, look_numbers

WIDTHS = {"column": 3.5, "page": 7.2}  # inches
# What to leave out or fix, so that the same runs give the same bytes.
METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}
RC: dict[Any, Any] = {
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.labelsize": 7,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "legend.columnspacing": 1.2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.2,
    "hatch.linewidth": 0.5,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.4,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # whole TrueType fonts, as publishers ask
    "svg.fonttype": "path",
    "svg.hashsalt": "coterie",
    "text.parse_math": False,  # names are a user's
}
DASHES: tuple[tuple[float, ...], ...] = (
    *((), (5, 1.5), (1.2, 1.2), (5, 1.5, 1.2, 1.5), (8, 2)),
    *((3, 1.2, 3, 3), (5, 1.5, 1.2, 1.5, 1.2, 1.5), (8, 1.5, 3, 1.5), (1.2, 3)),
)
MARKERS = ("o", "s", "^", "D", "X", "v", "P", "<", ">", "*", "p")
# Parts of a bar: fills from dark to light, so that grey print keeps them apart, and hatches.
FILLS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#BBBBBB")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "||||", "----", "oooo")
LONGEST = 48  # characters of a name


@dataclass(frozen=True)
class Look:
    """How the line of an algorithm is drawn, the same in every figure."""

    colour: str
    dashes: tuple[float, ...]
    marker: str
    number: int

    def line(self) -> dict[str, Any]:
        """Return what matplotlib calls it; markers of different lines are not above each other."""
        return {
            "color": self.colour,
            "dashes": self.dashes or (None, None),
            "marker": self.marker,
            "markevery": (0.02 + 0.017 * (self.number % 8), 0.14),
            "markerfacecolor": "white" if self.number % 2 else self.colour,
            "markeredgewidth": 0.7,
        }


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Give every name a look of its own; 8 colours, 9 dashes and 11 markers repeat after 792."""
    return {
        name: Look(
            COLOURS[at % len(COLOURS)], DASHES[at % len(DASHES)], MARKERS[at % len(MARKERS)], at
        )
        for name, at in look_numbers(names).items()
    }


@contextmanager
def styled() -> Iterator[None]:
    """Draw by these rules alone, whatever a user's matplotlibrc says."""
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box is drawn
        mpl.rcdefaults()
        mpl.rcParams.update(RC)
        yield


def save(figure: Any, suffix: str) -> bytes:
    """Return a figure as a file, the same bytes for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=METADATA[suffix])
    return buffer.getvalue()


def short(text: str) -> str:
    r"""Write a user's name on one line, the middle left out where it is long.

    >>> short("two\nlines"), short("m" * 60)[20:28]
    ('two lines', 'mmm…mmmm')
    """
    line = _on_one_line(text)
    half = LONGEST // 2
    return line if len(line) <= LONGEST else f"{line[: half - 1]}…{line[-half:]}"


def _on_one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", " ", text)


def legend(figure: Any, handles: Sequence[Any], names: Sequence[str]) -> None:
    """Put a legend below everything, in as many columns as fit, and make the figure higher by it.

    The names are set afterwards: matplotlib leaves out those that begin with an underscore.
    """
    width, height = figure.get_size_inches()
    columns = legend_columns(names, width)
    rows = -(-len(names) // columns)
    figure.set_size_inches(width, height + 0.13 * rows + 0.06)
    made = figure.legend(
        handles, [f"{at}" for at in range(len(names))], loc="outside lower center", ncols=columns
    )
    for text, name in zip(made.get_texts(), names, strict=True):
        text.set_text(short(name))


def label_below(figure: Any, axis: Any, text: str) -> None:
    """Label x, on as many lines as the figure's width asks for, and make the figure higher by them.

    Layouts leave room for the height of a label, not for its width.
    """
    line = _on_one_line(text)
    axis.set_xlabel(line)
    figure.draw_without_rendering()
    middle = (axis.bbox.x0 + axis.bbox.x1) / 2
    room = 2 * min(middle, figure.bbox.width - middle)
    for letters in range(len(line), 9, -1):
        axis.set_xlabel(textwrap.fill(line, letters, break_on_hyphens=False))
        if axis.xaxis.label.get_window_extent().width < room:
            break
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.13 * axis.get_xlabel().count("\n"))


def legend_columns(names: Sequence[str], width: float) -> int:
    """Columns of a legend of so many inches, by how long the names are.

    >>> legend_columns(["fedavg", "fedavg-ic", "hierfavg"], 3.5), legend_columns(["x" * 40], 3.5)
    (3, 1)
    """
    each = 0.42 + 0.055 * max((len(short(name)) for name in names), default=1)
    most = max(1, int(width / each))
    rows = -(-len(names) // most)
    return -(-len(names) // rows)  # as even as the rows allow


def log_seconds(axis: Any) -> None:
    """Make x a logarithmic axis of simulated seconds, with plain numbers."""
    axis.set_xscale("log")
    axis.set_xlabel("simulated seconds")
    plain_log(axis.xaxis)


def plain_log(axis: Any) -> None:
    """Write the numbers of a logarithmic axis in full, and 2 and 5 between few decades."""
    low, high = axis.get_view_interval()
    few = high < 1e3 * low
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(lambda x, _: f"{x:g}" if few and f"{x:.0e}"[0] in "25" else "")
    axis.set_tick_params(which="minor", labelsize=5.5)
