"""Import paths: whose functions can be named, and whose cannot."""

import sys
from pathlib import Path

import pytest

from coterie.core.errors import CoterieError
from coterie.core.plugins import import_by_path

NO_PLUGIN = "is no plug-in: it is of Python's standard library; name a function of your own module"


@pytest.mark.parametrize(
    "path",
    ["os:system", "posix:system", "builtins:exec", "subprocess:run", "os.path:exists", "this:s"],
)
def test_a_function_of_python_itself_is_no_plugin(path: str) -> None:
    with pytest.raises(CoterieError) as refused:
        import_by_path(path, CoterieError)
    assert str(refused.value) == f"{path!r} {NO_PLUGIN}"


def test_a_module_of_python_is_refused_before_it_is_imported() -> None:
    sys.modules.pop("this", None)  # which prints a poem when it is imported
    with pytest.raises(CoterieError, match="no plug-in"):
        import_by_path("this:poem", CoterieError)
    assert "this" not in sys.modules


def test_a_function_of_python_is_none_of_the_module_that_imported_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = "from functools import partial\nfrom os import system\nmine = partial(len, 'abc')\n"
    (tmp_path / "borrows_of_os.py").write_text(text, encoding="utf-8")
    with pytest.raises(CoterieError, match="no plug-in"):
        import_by_path("borrows_of_os:system", CoterieError)
    assert import_by_path("borrows_of_os:mine", CoterieError)() == 3


def test_the_command_line_is_no_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "borrows_a_command.py").write_text("from coterie.cli import main\n")
    for path in ("coterie.cli:main", "coterie.__main__:main", "borrows_a_command:main"):
        with pytest.raises(CoterieError, match="is no plug-in: it is of coterie's command line"):
            import_by_path(path, CoterieError)
