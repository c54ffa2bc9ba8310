"""Ray, which nothing else here imports: a cluster, its actors and tasks, and its faults in words.

A cluster that is started here listens on the loopback address alone, wants a token that nobody
else has, has no dashboard and tells nobody that it is there.
"""

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from warnings import catch_warnings

from coterie.core.errors import ClusterError, CoterieError

LOCAL, AUTO, CLIENT = "local", "auto", "ray://"
LOOPBACK = ("127.0.0.1", "localhost")
TOKEN = "; if it wants a token: export RAY_AUTH_MODE=token"
STARTS = 3  # of a cluster here, which on a busy machine may not be up in the 30 s that Ray waits
REACH_S = 5.0  # for a cluster to answer at all
LOOK_S = 5.0  # at a flag


@dataclass(frozen=True)
class Size:
    """What an actor or a task asks a cluster for."""

    cpus: float
    gpus: float = 0.0


@dataclass(frozen=True)
class Knobs:
    """Who uses a cluster, and what to change when memory, or that of a GPU, runs out."""

    who: str
    memory: str
    gpu: str


ACTORS = Knobs(
    "an actor", "lower ray.actors", "raise ray.gpus_per_actor, so that fewer share a GPU"
)


class Cluster:
    """A connection to Ray; a process has one."""

    def __init__(
        self,
        address: str = LOCAL,
        cpus: int = 1,
        store_mbytes: int | None = None,
        knobs: Knobs = ACTORS,
    ) -> None:
        """Start a cluster of so many CPUs here, or join the one at an address."""
        self._ray, self._knobs = _import_ray(), knobs
        self.local = address == LOCAL
        if not self._ray.is_initialized():
            _connect(self._ray, address, cpus, store_mbytes)
        self.address = address

    def total(self, what: str) -> float:
        """How many of 'CPU' or 'GPU' there are on all machines."""
        return float(self._ray.cluster_resources().get(what, 0.0))

    def largest(self, what: str) -> float:
        """How many of 'CPU' or 'GPU' the best machine has."""
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return max((float(found.get(what, 0.0)) for found in alive), default=0.0)

    def has_free(self, what: str, number: float, wait_s: float) -> bool:
        """Whether so many of 'CPU' or 'GPU' are free, now or within some seconds."""
        deadline = time.monotonic() + wait_s
        while float(self._ray.available_resources().get(what, 0.0)) < number:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.2)
        return True

    def check(self, size: Size, number: int, keys: Mapping[str, str]) -> None:
        """Refuse what can never fit; `keys` names the settings of 'CPU', 'GPU' and the number."""
        for what, each in (("GPU", size.gpus), ("CPU", 0.0 if self.local else size.cpus)):
            if not each or (self.largest(what) >= each and self.total(what) >= each * number):
                continue
            there, key = self.total(what), keys[what]
            if not there:
                raise ClusterError(
                    f"{key} is {each:g} and the cluster has no {what}; set {key} = 0, or start a "
                    f"machine that has one: ray start --address ... --num-{what.lower()}s 1"
                )
            raise ClusterError(
                f"{keys['number']} = {number} with {key} = {each:g} needs {number * each:g} "
                f"{what}s, and the cluster has {there:g} ({self.largest(what):g} on its largest "
                f"machine); lower either, or add machines"
            )

    def put(self, value: Any) -> Any:
        """Place a value in the object store."""
        with _faults(self._knobs):
            return self._ray.put(value)

    def pack(self, value: Any) -> bytes:
        """Pickle a value, its class too if that cannot be imported."""
        found: bytes = self._ray.cloudpickle.dumps(value)
        return found

    def actor(self, kind: Callable[..., Any], size: Size, *given: Any) -> Any:
        """Start an actor."""
        made = self._ray.remote(kind).options(
            num_cpus=size.cpus,
            num_gpus=size.gpus,
            max_restarts=0,
            scheduling_strategy="SPREAD",
        )
        return made.remote(*given)

    def task(self, work: Callable[..., Any], size: Size, *given: Any) -> Any:
        """Start a task, which is not begun again if it dies."""
        made = self._ray.remote(work).options(
            num_cpus=size.cpus, num_gpus=size.gpus, max_retries=0, scheduling_strategy="SPREAD"
        )
        return made.remote(*given)

    def first(self, waiting: Sequence[Any], seconds: float | None = None) -> list[Any]:
        """Wait for the first of some answers, or so long; return those that are there."""
        return list(self._ray.wait(list(waiting), num_returns=1, timeout=seconds)[0])

    def result(self, answer: Any) -> Any:
        """Return an answer, or raise what its actor or task raised; Lost if it died."""
        errors = self._ray.exceptions
        gone = (errors.RayActorError, errors.ObjectLostError, errors.NodeDiedError)
        try:
            with _faults(self._knobs):
                return self._ray.get(answer)
        except (*gone, errors.WorkerCrashedError, errors.LocalRayletDiedError) as error:
            raise Lost(_why(str(error))) from error
        except errors.OutOfMemoryError as error:
            raise Lost("out of memory") from error

    def flag(self) -> "Flag":
        """Return a flag that is down, for all processes of the cluster; it is where we are."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self._ray.get_runtime_context().get_node_id()
        made = self._ray.remote(_Pole).options(
            num_cpus=0,
            max_restarts=-1,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        return Flag(made.remote())

    def end(self, actor: Any) -> None:
        """End an actor, if it is there; without a cluster, Ray would start one for that."""
        if self._ray.is_initialized():
            with suppress(Exception):  # it may be gone
                self._ray.kill(actor)


class _Pole:
    """Holds a flag."""

    def __init__(self) -> None:
        self._up = False

    def look(self) -> bool:
        return self._up

    def hoist(self) -> None:
        self._up = True


@dataclass(frozen=True)
class Flag:
    """What one process sets and all see."""

    pole: Any

    def set(self) -> None:
        """Set it; to be said again and again, as one whose process was lost is down."""
        ray = _import_ray()
        with suppress(ray.exceptions.RayError):
            ray.get(self.pole.hoist.remote(), timeout=LOOK_S)

    def is_set(self) -> bool:
        """Whether it was set, as far as can be seen."""
        ray = _import_ray()
        try:
            return bool(ray.get(self.pole.look.remote(), timeout=LOOK_S))
        except ray.exceptions.RayError:  # its process is lost, or about to be there again
            return False


class Lost(Exception):  # noqa: N818
    """An answer that will not come, as who should give it has died; says why."""


def _why(message: str) -> str:
    """Say in a few words what Ray says in many about a death.

    >>> _why("Task was killed due to the node running low on memory.")
    'out of memory'
    >>> _why("It may have been killed by SIGKILL by OOM killer due to high memory usage.")
    'its process is gone'
    """
    plain = message.lower()
    if "low on memory" in plain or "memory monitor" in plain or "out of memory" in plain:
        return "out of memory"
    if "node died" in plain or "node is dead" in plain or "node was terminated" in plain:
        return "its machine is gone"
    return "its process is gone"


@contextmanager
def _faults(knobs: Knobs) -> Iterator[None]:
    """Say what ran out, and the knob to turn; an error of our own comes as it was raised."""
    ray = _import_ray()
    errors = ray.exceptions
    try:
        yield
    except (errors.ObjectStoreFullError, errors.OutOfDiskError) as error:
        raise ClusterError(
            "Ray's object store is full, and so is the disk that it spills to; raise "
            f"ray.object_store_mbytes (or ray start --object-store-memory), or {knobs.memory}"
        ) from error
    except errors.RayTaskError as error:
        cause = getattr(error, "cause", None)
        text = str(cause or error)
        if isinstance(cause, MemoryError) or "allocate memory" in text or "out of memory" in text:
            way = knobs.gpu if "CUDA" in text else knobs.memory
            raise ClusterError(
                f"{knobs.who} is out of memory; {way}, or lower train.batch_size"
            ) from error
        if isinstance(cause, CoterieError):
            raise cause from None
        raise


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ClusterError("Ray is not installed; pip install 'coterie[ray]'") from error
    return ray


def _connect(ray: Any, address: str, cpus: int, store_mbytes: int | None) -> None:
    """Start a cluster on the loopback address, or join one; the way to ask is Ray's own."""
    from ray._private import ray_constants

    host = check_address(address)
    inside = address == LOCAL or host in LOOPBACK
    usual = ray_constants.env_bool("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", default=True)
    ray_constants.ENABLE_RAY_CLUSTER = usual and not inside  # else Ray takes the network's address
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == LOCAL:
        options |= {
            "num_cpus": cpus,
            "include_dashboard": False,
            "_node_ip_address": "127.0.0.1",
            "_system_config": {"worker_niceness": 0},
        }
        if store_mbytes:
            options["object_store_memory"] = store_mbytes << 20
    for left in reversed(range(STARTS if address == LOCAL else 1)):
        try:
            with _environment(inside, token=address == LOCAL), _own_signals():
                _look_for_token(ray)
                ray.init(address=address, **options)
            break
        except Exception as error:  # of whatever kind: Ray has many, and plain ones
            ray.shutdown()
            reason = str(error).strip().partition("\n")[0]
            if not left:
                hint = "" if address == LOCAL or "RAY_AUTH_MODE" in os.environ else TOKEN
                raise ClusterError(f"no Ray cluster at {address!r}: {reason}{hint}") from error
    if address == LOCAL and ray.util.get_node_ip_address() not in LOOPBACK:
        ray.shutdown()
        raise ClusterError(
            "this Ray does not stay on the loopback address; start one yourself, and name it "
            "with --ray-address"
        )


def check_address(address: str) -> str:
    """Return the host of an address, if it has one; refuse what is none, or where nobody is.

    >>> check_address("local")
    ''
    """
    if address in (LOCAL, AUTO):
        return ""
    host, colon, port = address.removeprefix(CLIENT).rpartition(":")
    if not colon or not port.isdigit() or not host or "/" in host:
        raise ClusterError(
            f"ray.address must be local, auto, HOST:PORT or ray://HOST:PORT, got {address!r}"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        option = "--ray-client-server-port" if CLIENT in address else "--port"
        raise ClusterError(
            f"nobody answers at {address} ({error}); start a cluster there with: "
            f"ray start --head {option} {port}"
        ) from error
    return host


@contextmanager
def _environment(inside: bool, token: bool) -> Iterator[None]:
    """What Ray and the processes it starts read while it starts them; no token is written down."""
    wanted = {"RAY_USAGE_STATS_ENABLED": "0"}
    if inside:
        wanted["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    if token:
        wanted |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    before = {key: os.environ[key] for key in wanted if key in os.environ}
    os.environ.update(wanted)
    try:
        with catch_warnings(action="ignore", category=FutureWarning):  # tips on Ray's next versions
            yield
    finally:
        for key in wanted:
            del os.environ[key]
        os.environ.update(before)


def _look_for_token(ray: Any) -> None:
    """Let Ray read again whether a token is wanted, and which: it keeps both once it has."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our answer to SIGTERM, which Ray replaces by its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
