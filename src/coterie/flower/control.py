"""A SuperLink's Control API from this process: keys, apps and nodes, without a program for each.

`flwr supernode register` and `flwr list` say the same, at a Python process a question.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coterie.core.errors import short
from coterie.core.types import Say
from coterie.flower import FlowerError
from coterie.flower.edge import edge_name
from coterie.flower.hosts import COORDINATOR

if TYPE_CHECKING:
    from coterie.flower.deploy import Deployment

AT_ONCE = 8  # registrations that are under way at a time
KNOWN = 412  # what a SuperLink answers to a key that it knows
UNFINISHED = ("pending", "starting", "running")


@dataclass(frozen=True)
class App:
    """An app that was started on a SuperLink: its number and how it is, such as finished:failed."""

    number: int
    status: str

    @property
    def unfinished(self) -> bool:
        """Whether the SuperLink takes it to run, or to begin."""
        return self.status in UNFINISHED


@dataclass(frozen=True)
class Registered:
    """How many keys became known to a SuperLink, how many were, and whose are not here."""

    new: int
    known: int
    missing: tuple[str, ...] = ()


@contextmanager
def _client(d: "Deployment", place: str) -> Iterator[Any]:
    """Connect to the SuperLink of a place; whatever it answers but what was asked is one line."""
    import httpx
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

    path = d.folder / "certificates" / "ca.crt"
    try:
        ca = path.read_bytes() if d.secure else None
        client = ControlHttpClient.from_server_address(
            d.address(place), not d.secure, ca, [RuntimeVersionHttpInterceptor("flwr CLI")]
        )
    except (OSError, ValueError) as error:  # also of TLS
        why = error.strerror if isinstance(error, OSError) else error
        raise FlowerError(f"{path}: is no certificate that can be used ({why})") from error
    try:
        yield client
    except httpx.HTTPStatusError as error:
        said = short(error.response.text.strip())
        raise FlowerError(f"the SuperLink of {place} refuses: {said}") from error
    except httpx.HTTPError as error:
        why = str(error) or type(error).__name__
        raise FlowerError(
            f"the SuperLink of {place} does not answer at {d.address(place)} ({why}); start it "
            f"with ./start.sh {place}"
        ) from error
    except (httpx.InvalidURL, ValueError, RuntimeError) as error:
        raise FlowerError(
            f"what answers at {d.address(place)} is not the SuperLink of {place} ({error})"
        ) from error
    finally:
        client.close()


def apps(d: "Deployment", place: str) -> list[App]:
    """Return the apps that were started on a place's SuperLink, the last one first.

    One that runs is the last, whatever the clock said: it may have been set back meanwhile.
    """
    from flwr.common.serde import run_from_proto
    from flwr.proto.control_pb2 import ListRunsRequest

    with _client(d, place) as client:
        found = client.ListRuns(ListRunsRequest()).run_dict.values()
    runs = sorted(map(run_from_proto, found), key=lambda run: str(run.pending_at), reverse=True)
    begun = [App(int(run.run_id), _status(run.status)) for run in runs]
    return sorted(begun, key=lambda app: not app.unfinished)


def _status(status: Any) -> str:
    return ":".join(filter(None, [str(status.status), str(status.sub_status)]))


def end_app(d: "Deployment", place: str, number: int) -> None:
    """Have a SuperLink take an app for stopped."""
    from flwr.proto.control_pb2 import StopRunRequest

    with _client(d, place) as client:
        client.StopRun(StopRunRequest(run_id=number))


def online(d: "Deployment", place: str) -> int:
    """Return how many SuperNodes are connected to a place's SuperLink."""
    from flwr.proto.control_pb2 import ListNodesRequest

    with _client(d, place) as client:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
    return sum(node.status == "online" for node in nodes)


def keys_of(d: "Deployment", place: str) -> list[str]:
    """Name the SuperNodes that connect to a place: the edges, or the nodes of a group."""
    if place == COORDINATOR:
        return d.places[1:]
    return [d.key(i) for i, n in enumerate(d.plan.nodes) if edge_name(n.group) == place]


def register(d: "Deployment", place: str) -> Registered:
    """Make the keys of a place's SuperNodes known to its SuperLink, several at a time.

    A key that it knows already is no error, so that this can be done again whenever keys were added
    to the folder.
    """
    if not d.secure:
        return Registered(0, 0)
    paths = {name: d.folder / "keys" / f"{name}.pub" for name in keys_of(d, place)}
    there = {name: path for name, path in paths.items() if path.exists()}
    missing = tuple(name for name in paths if name not in there)
    keys = {name: public_key(path) for name, path in there.items()}
    _check_different(keys)
    with _client(d, place) as client, ThreadPoolExecutor(AT_ONCE) as pool:
        new = sum(pool.map(lambda key: _register(client, key), keys.values()))
    return Registered(new, len(keys) - new, missing)


def _register(client: Any, key: bytes) -> bool:
    """Make a key known; return whether it was not."""
    import httpx
    from flwr.proto.control_pb2 import RegisterNodeRequest

    try:
        client.RegisterNode(RegisterNodeRequest(public_key=key))
    except httpx.HTTPStatusError as error:
        if error.response.status_code == KNOWN and "already in use" in error.response.text:
            return False
        raise
    return True


def public_key(path: Path) -> bytes:
    """Read a public key as `coterie flower key` writes it; refuse what is none, in one line."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    try:
        key = serialization.load_ssh_public_key(path.read_bytes())
    except OSError as error:
        raise FlowerError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, NotImplementedError, UnsupportedAlgorithm) as error:
        raise FlowerError(f"{path}: is not a public key as OpenSSH has it ({error})") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp384r1":
        raise FlowerError(f"{path}: must be a P-384 key; make one with: coterie flower key")
    written: bytes = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return written


def _check_different(keys: Mapping[str, bytes]) -> None:
    owners: dict[bytes, str] = {}
    for name, key in keys.items():
        if key in owners:
            raise FlowerError(
                f"keys/{name}.pub and keys/{owners[key]}.pub are one key; every node needs its own"
            )
        owners[key] = name


def register_all(d: "Deployment", places: Sequence[str], say: Say) -> Registered:
    """Register at several places, and say what came of each."""
    new = known = 0
    missing: list[str] = []
    for place in places:
        done = register(d, place)
        say(f"{place}: {done.new} keys registered, {done.known} known before")
        new, known = new + done.new, known + done.known
        missing += done.missing
    if missing:
        say(f"{len(missing)} public keys are not in keys/ yet, such as {missing[0]}.pub")
    return Registered(new, known, tuple(missing))
