# mypy: ignore-errors
"""A whole run by pfl: its simulated backend and FederatedAveraging, set up as in run_pfl.py.

On several cores it runs as pfl's guide for distributed simulations has it, where that is quicker
for the case: one worker a core, PFL_WORKER_ADDRESSES and PFL_WORKER_RANK, gloo over loopback.

pfl evaluates the cohort of the first round whatever its settings are. Scores on the test part are
taken by a callback after a round, as its own CentralEvaluationCallback does: every worker scores a
part, and the first writes the row.
"""

import os
import socket
import subprocess
import sys

from case import asked

ADDRESSES, RANK = "PFL_WORKER_ADDRESSES", "PFL_WORKER_RANK"


def start_workers(number: int) -> list[subprocess.Popen]:
    """Start all workers but the first, which we are."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        first = free.getsockname()[1]
    os.environ[ADDRESSES] = ",".join([f"127.0.0.1:{first}"] * number)  # only the first is used
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    started = [
        subprocess.Popen([sys.executable, *sys.argv], env=os.environ | {RANK: str(rank)})
        for rank in range(1, number)
    ]
    os.environ[RANK] = "0"
    return started


def main() -> None:
    """Run the case, or a worker's part of it."""
    task = asked(__doc__)
    number = min(task.cores, task.case.processes)
    others = start_workers(number) if number > 1 and RANK not in os.environ else []
    # pfl joins the other workers when it is imported.
    from whole_pfl_worker import work

    work(task, threads=1 if number > 1 else min(task.cores, task.case.threads))
    codes = [worker.wait() for worker in others]
    if any(codes):
        raise SystemExit("a worker failed")


if __name__ == "__main__":
    main()
