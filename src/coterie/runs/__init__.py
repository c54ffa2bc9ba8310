"""Runs on disk: begun, recorded, checkpointed, resumed, swept, timed again."""
