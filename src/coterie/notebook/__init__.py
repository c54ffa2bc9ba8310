"""Runs, comparisons and plans as values of Python that a notebook shows."""
