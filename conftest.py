"""What holds for all tests: one thread each, and which files are not looked at."""

import os
from importlib.util import find_spec

# Tests run beside each other, one process a core; threads of each would only wait for one another.
# It has to be said before NumPy or torch are there, and processes that tests start hear it too.
os.environ.setdefault("OMP_NUM_THREADS", "1")

collect_ignore = ["tests/light/light_app.py"]
if find_spec("flwr") is None:
    parts = ("apps", "certificates", "client", "crew", "strategy")
    collect_ignore += [f"src/coterie/flower/{name}.py" for name in parts]
