"""A Flower app that trains in groups."""
