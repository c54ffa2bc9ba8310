"""The engine over many processes; Ray itself is imported in `cluster` alone."""
