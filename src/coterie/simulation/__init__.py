"""Algorithm 1: whose turn it is, the clock, who takes part, and who plans."""
