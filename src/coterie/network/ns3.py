"""Transfers timed by ns-3, packet by packet: what the flow clock is held against.

ns-3 is GPL-2.0-only, so it stays in a program of its own, `ns3_driver.cc`: compiled on first use
against the `ns3` wheel, kept in the cache folder, and run as a subprocess.
"""

import hashlib
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from coterie.core.arrays import Floats, Ints
from coterie.core.cache_folder import cache_folder
from coterie.core.errors import NetworkError, unknown
from coterie.core.files import replacing
from coterie.network.tcp import PROFILES, Tcp
from coterie.network.values import Flows
from coterie.topology import Topology

SOURCE = Path(__file__).with_name("ns3_driver.cc")
MODULES = ("core", "network", "internet", "point-to-point", "traffic-control")
FLAGS = ("-O2", "-std=c++20")
COMPILE_LIMIT_S = 600.0
ROUTES = ("given", "global")


@dataclass(frozen=True, eq=False)
class Measured:
    """What ns-3 says of some flows.

    `finish_s` [F] is when the last byte reached the receiving program, in simulated seconds;
    `drops` counts packets that queues threw away; `cpu_s` is what the simulation took.
    """

    finish_s: Floats
    drops: int
    cpu_s: float
    profile: str
    version: str
    congestion: str


def measure(
    topology: Topology,
    flows: Flows,
    *,
    profile: str = "lossless",
    routes: str = "given",
    time_limit_s: float = 600.0,
) -> Measured:
    """Time every flow with ns-3's TCP, along its own route or the one ns-3 picks ("global").

    A flow of no bytes, or from a vertex to itself, has arrived when it starts.
    """
    if profile not in PROFILES:
        raise NetworkError(unknown("TCP profile", profile, PROFILES))
    if PROFILES[profile].growth != Tcp("").growth:
        raise NetworkError(
            f"the installed ns-3 cannot behave like {profile}; use network.clock = 'flow'"
        )
    if routes not in ROUTES:
        raise NetworkError(unknown("ns-3 routes", routes, ROUTES))
    driver = driver_path()
    finish_s = flows.start_s.astype(np.float64)  # a copy
    sent = np.flatnonzero((flows.nbytes > 0) & (flows.src != flows.dst))
    if np.any(flows.n_hops[sent] == 0):
        f = int(sent[flows.n_hops[sent] == 0][0])
        raise NetworkError(f"flow {f}, {_ends(topology, flows, f)}, has no route")
    scenario = _scenario(topology, flows, sent, PROFILES[profile], routes)
    said = _run(driver, scenario, time_limit_s)
    arrived = np.array(said["finish_s"], dtype=np.float64)
    lost = sent[arrived < 0]
    if len(lost):
        raise NetworkError(
            f"ns-3's TCP gave up on {len(lost)} of {len(flows)} flows, the first "
            f"{_ends(topology, flows, int(lost[0]))}; use network.tcp = 'lossless', or faster links"
        )
    finish_s[sent] = arrived
    version = importlib.metadata.version("ns3")
    return Measured(
        finish_s, int(said["drops"]), float(said["cpu_s"]), profile, version, said["congestion"]
    )


def _ends(topology: Topology, flows: Flows, f: int) -> str:
    return f"from {topology.name(int(flows.src[f]))} to {topology.name(int(flows.dst[f]))}"


def _scenario(topology: Topology, flows: Flows, sent: Ints, tcp: Tcp, routes: str) -> str:
    """Write what the driver reads; given routes need only the links that some flow crosses."""
    paths = [flows.links[flows.first[f] : flows.first[f + 1]] for f in sent]
    if routes == "given":
        used = np.unique(np.concatenate([np.zeros(0, np.int64), *paths]) // 2)
        paths = [2 * np.searchsorted(used, path // 2) + path % 2 for path in paths]
    else:
        used = np.arange(len(topology.ends))
        paths = [path[:0] for path in paths]
    vertices, ends = np.unique(topology.ends[used], return_inverse=True)
    if topology.bytes_per_s.min() < 1 or topology.bytes_per_s.max() > 1e17:
        raise NetworkError("ns-3 takes speeds from 1 byte/s to 1e17; use network.clock = 'flow'")
    if topology.latency_s.max() > 1e6:
        raise NetworkError("ns-3 takes latencies up to 1e6 s; use network.clock = 'flow'")
    bits = np.rint(8 * topology.bytes_per_s).astype(np.int64).reshape(-1, 2)[used]
    latency_ns = np.rint(1e9 * topology.latency_s[used]).astype(np.int64)
    queues = "own" if tcp.drops else "fair"
    lines = [
        f"{tcp.segment} {tcp.largest_window} {queues} {routes}",
        f"{len(vertices)} {len(used)} {len(sent)}",
    ]
    for (a, b), (there, back), ns in zip(ends.reshape(-1, 2), bits, latency_ns, strict=True):
        lines.append(f"{a} {b} {there} {back} {ns}")
    src, dst = np.searchsorted(vertices, flows.src), np.searchsorted(vertices, flows.dst)
    start_ns = np.rint(1e9 * flows.start_s).astype(np.int64)
    for f, path in zip(sent, paths, strict=True):
        crossed = " ".join(map(str, path.tolist()))
        lines.append(f"{src[f]} {dst[f]} {flows.nbytes[f]} {start_ns[f]} {len(path)} {crossed}")
    return "\n".join(lines) + "\n"


def _run(driver: Path, scenario: str, time_limit_s: float) -> dict[str, Any]:
    """Run the driver to its end, or end it and all it started."""
    try:
        code, out, err = _finish([str(driver)], scenario, time_limit_s)
    except OSError as error:
        raise NetworkError(
            f"{driver}: cannot be run ({error.strerror}); set $COTERIE_DATA to another folder"
        ) from error
    if code is None:
        raise NetworkError(
            f"ns-3 was stopped after {time_limit_s:g} s; raise network.time_limit_s, or send less"
        )
    if code:
        last = (err.strip().splitlines() or ["it said nothing"])[-1]
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        raise NetworkError(f"ns-3 ended {how}: {last}")
    try:
        said: dict[str, Any] = json.loads(out)
    except ValueError as error:
        raise NetworkError(f"ns-3 ended with something that is no result: {out[:60]!r}") from error
    return said


def _finish(command: list[str], stdin: str, time_limit_s: float) -> tuple[int | None, str, str]:
    """Return a command's exit code, output and errors; the code is None if its time ran out."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # a process group of its own, to be killed as one
    ) as process:
        try:
            out, err = process.communicate(stdin, timeout=time_limit_s)
        except subprocess.TimeoutExpired:
            return None, "", ""
        finally:
            if process.returncode is None:  # out of time, or interrupted
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return process.returncode, out, err


def driver_path() -> Path:
    """Return the compiled driver, compiling it if this ns-3 and compiler have not yet."""
    if not sys.platform.startswith("linux"):
        raise NetworkError(f"ns-3 runs on Linux only, this is {sys.platform}")
    try:
        wheel = importlib.metadata.distribution("ns3")
    except importlib.metadata.PackageNotFoundError:
        raise NetworkError("ns-3 is not installed; pip install 'coterie[ns3]'") from None
    compiler = shutil.which("g++")
    if compiler is None:
        raise NetworkError("ns-3 needs the compiler g++, which is not there; apt-get install g++")
    home = Path(str(wheel.locate_file("ns3")))
    asked = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    # the folder too: the driver looks for ns-3's libraries where they were when it was compiled
    made_of = [SOURCE.read_text(), *FLAGS, wheel.version, str(home), asked.stdout]
    key = hashlib.sha256("\0".join(made_of).encode(errors="surrogateescape")).hexdigest()
    driver = cache_folder() / "ns3" / f"driver-{key[:16]}"
    if not driver.is_file():
        _compile(compiler, home, driver)
    return driver


def _compile(compiler: str, home: Path, driver: Path) -> None:
    """Compile the driver against the headers and libraries in ns-3's folder."""
    found = sorted(home.glob("lib*/libns3*-core.so"))
    if not found:
        raise NetworkError(f"{home}: has no ns-3 libraries; pip install --force-reinstall ns3")
    libraries = found[0].parent
    names = [found[0].stem.removeprefix("lib").removesuffix("core") + name for name in MODULES]
    command = [compiler, *FLAGS, "-isystem", str(home / "include"), str(SOURCE)]
    command += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", *(f"-l{name}" for name in names)]
    try:
        driver.parent.mkdir(parents=True, exist_ok=True)
        with replacing(driver, 0o755) as scratch:
            code, _, err = _finish([*command, "-o", str(scratch)], "", COMPILE_LIMIT_S)
            if code is None:
                raise NetworkError(f"compiling the ns-3 driver took over {COMPILE_LIMIT_S:g} s")
            if code:
                lines = err.strip().splitlines() or [f"{compiler} ended with code {code}"]
                first = next((line for line in lines if "error" in line), lines[-1])
                raise NetworkError(f"the ns-3 driver does not compile: {first.strip()}")
    except OSError as error:
        raise NetworkError(
            f"{driver.parent}: cannot be written ({error.strerror}); set $COTERIE_DATA"
        ) from error
