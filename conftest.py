"""Without Flower, what imports it is not looked at; the tests that need it say that they skip."""

from importlib.util import find_spec

collect_ignore = []
if find_spec("flwr") is None:
    parts = ("apps", "certificates", "client", "strategy")
    collect_ignore = [f"src/coterie/flower/{name}.py" for name in parts]
    collect_ignore += ["tests/light/light_app.py"]
