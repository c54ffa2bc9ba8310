"""What a clock knows of TCP and of the queues it meets."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Tcp:
    """Sizes in bytes, windows in segments or bytes, and whether queues drop.

    Queues that do not drop serve the flows of a link in turn; the others are what ns-3 installs by
    itself, and what they lose shows as retransmissions, the last of them after a time-out.
    """

    about: str
    segment: int = 1448  # payload of a full segment
    header: int = 54  # link, IP, TCP with time stamps
    shake: int = 60  # a segment of the handshake
    first_window: int = 10  # segments
    second_window: int = 18  # so ns-3's TCP grows
    growth: float = 2.0  # of the window, every round trip from there
    largest_window: int = 4 << 20
    drops: bool = False


PROFILES: dict[str, Tcp] = {
    "lossless": Tcp("large windows, fair queues that drop nothing: a well-tuned network"),
    "tuned": Tcp("large windows, ordinary queues: many to one loses packets (incast)", drops=True),
    "default": Tcp(
        "ns-3's own: segments of 536 bytes, windows of 128 KiB, ordinary queues",
        segment=536,
        largest_window=128 << 10,
        drops=True,
    ),
    "ns-3.30": Tcp(
        "as ns-3 was for the paper: small segments, a window of one that grows by half; flow only",
        segment=536,
        first_window=1,
        second_window=1,
        growth=1.5,
        largest_window=128 << 10,
    ),
}
