"""What a person asks of recorded runs: comparing, aligning, ranking, exporting."""
