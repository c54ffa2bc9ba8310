"""Follow runs under way: what a folder holds at this moment, as data for the page of runs.

Nothing is ever written there: a run is followed by reading what it records anyway.
"""

from coterie.render.watch.live import Answer, Live
from coterie.render.watch.server import Server

__all__ = ["Answer", "Live", "Server"]
