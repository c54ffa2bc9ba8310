import subprocess
import sys

PRINTS = """
import ctypes, os
from coterie.core.quiet import quiet
print("before")
with quiet():
    os.write(1, b"by a descriptor")
    ctypes.CDLL(None).printf(b"by the C library")
print("after")
"""


def test_what_native_code_prints_is_dropped_and_nothing_else() -> None:
    done = subprocess.run([sys.executable, "-c", PRINTS], capture_output=True, check=True)
    assert done.stdout.split() == [b"before", b"after"]
