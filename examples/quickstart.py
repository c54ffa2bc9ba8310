"""Run FedAvg-IC on the embedded images and watch accuracy and simulated time."""

import coterie

config = coterie.make_config({"algorithm": {"name": "fedavg-ic"}, "train": {"lr": 0.5}})
for state in coterie.simulate(config):
    row = state.row
    if row.test_accuracy is not None:
        print(f"step {row.t:3}  {row.seconds:5.2f} s  {row.test_accuracy:.1%}")
print("groups of", row.group_sizes)
