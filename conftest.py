"""What is not looked at for tests: the light app, and without Flower whatever imports it."""

from importlib.util import find_spec

collect_ignore = ["tests/light/light_app.py"]
if find_spec("flwr") is None:
    parts = ("apps", "certificates", "client", "strategy")
    collect_ignore += [f"src/coterie/flower/{name}.py" for name in parts]
