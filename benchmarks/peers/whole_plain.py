# mypy: ignore-errors
"""A whole run by a plain PyTorch loop: rounds, scores, rows in a file."""

import torch
from case import asked
from run_plain import run_round
from torch_case import Nodes, make_net, score, test_part


def main() -> None:
    """Run the case."""
    task = asked(__doc__)
    case = task.case
    torch.manual_seed(0)
    torch.set_num_threads(min(task.cores, case.threads))
    net, nodes, part, seen = make_net(task), Nodes(task), test_part(task), 0
    task.record(0, *score(net, part), seen)
    for done in range(1, case.rounds + 1):
        chosen = task.cohort(done)
        p = nodes.sizes[chosen] / nodes.sizes[chosen].sum()
        mini = (nodes.batches(int(i)) for i in chosen)
        seen += run_round(net, mini, p.tolist(), case.lr, case.epochs, case.momentum)
        if task.due(done):
            task.record(done, *score(net, part), seen)


if __name__ == "__main__":
    main()
