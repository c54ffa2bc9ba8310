"""Units that keep the processes of a deployment: one for systemd and one for Docker Compose.

Each is for any process, by its name: `coterie@node-17`, or `NAME=node-17 docker compose up`.
"""

from pathlib import Path

from coterie.core.files import write_atomically

SYSTEMD, COMPOSE = "units/coterie@.service", "units/compose.yaml"
STOP_S = 30


def write_units(folder: Path, programs: Path) -> list[Path]:
    """Write the units of a deployment; `programs` is the folder of `coterie` and Flower."""
    home = str(folder.absolute())
    (folder / "units").mkdir(exist_ok=True)
    write_atomically(folder / SYSTEMD, systemd(home, str(programs)).encode())
    write_atomically(folder / COMPOSE, compose(home).encode())
    return [folder / SYSTEMD, folder / COMPOSE]


def systemd(home: str, programs: str) -> str:
    """Return a template unit: `%i` is the name of the process.

    >>> print(systemd("/opt/100% sure", "/opt/venv/bin").splitlines()[10])
    ExecStart="/opt/100%% sure/start.sh" %i
    """
    return f"""\
# systemctl enable --now coterie@edge-0 coterie@node-17: one unit for every process
[Unit]
Description=Coterie on Flower, %i
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
WorkingDirectory={home.replace("%", "%%")}
ExecStart={_escaped(f"{home}/start.sh").replace("$", "$$")} %i
Environment={_escaped(f"PATH={programs}:/usr/local/bin:/usr/bin:/bin")}
EnvironmentFile=-/etc/default/coterie
Restart=always
RestartSec=5
KillMode=mixed
TimeoutStopSec={STOP_S}
NoNewPrivileges=yes
PrivateTmp=yes
ProtectSystem=full

[Install]
WantedBy=multi-user.target
"""


def _escaped(text: str) -> str:
    """Write a word as systemd reads it: in quotes, with % as itself."""
    for letter, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%")):
        text = text.replace(letter, written)
    return f'"{text}"'


def compose(home: str) -> str:
    """Return a Compose file with one service: `NAME` is the name of the process."""
    there = _yaml(home)
    return f"""\
# NAME=node-17 docker compose -f {COMPOSE} -p coterie-node-17 up -d: one file for every process
services:
  process:
    image: ${{COTERIE_IMAGE:?an image with coterie[flower]}}
    command: [./start.sh, "${{NAME:?a process, such as node-0}}"]
    working_dir: {there}
    volumes:
      - type: bind
        source: {there}
        target: {there}
    network_mode: host
    init: true
    restart: unless-stopped
    stop_grace_period: {STOP_S}s
"""


def _yaml(text: str) -> str:
    """Write a text in quotes as YAML has it, with $ as itself."""
    return "'" + text.replace("'", "''").replace("$", "$$") + "'"
