"""Who trains with whom: what a planner may see, what it returns, and the planners.

A planner is a function from evidence and a random generator to a grouping; a user's own is named
by its import path, `"my_pkg.groups:plan"`.
"""

from coterie.grouping.evidence import NO_LIMITS, Delays, Evidence, Limits
from coterie.grouping.seating import with_servers
from coterie.grouping.values import Grouping, Planner, check_grouping

__all__ = [
    "NO_LIMITS",
    "Delays",
    "Evidence",
    "Grouping",
    "Limits",
    "Planner",
    "check_grouping",
    "with_servers",
]
