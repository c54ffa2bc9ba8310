"""A real browser for tests: headless Chromium, spoken to over a pipe, with nothing to install.

Chromium takes commands of the DevTools protocol as JSON on file descriptor 3 and answers on 4.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = (
    "NO BROWSER, so the report's page is not tested: install Chromium (Debian: apt-get install "
    "chromium; macOS: brew install --cask chromium), or set CHROMIUM to its path"
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
START = (
    "import os, sys\nfor end, at in zip(sys.argv[1:3], (3, 4)): os.dup2(int(end), at)\n"
    "os.execvp(sys.argv[3], sys.argv[3:])"
)
PATIENCE_S = 600.0  # only what fails takes so long
Json = dict[str, Any]


def chromium() -> str | None:
    """Path of a Chromium, if there is one."""
    wanted = os.environ.get("CHROMIUM")
    return wanted or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One Chromium with one tab; `errors` and `requests` are what the tab has had since `open`."""

    def __init__(self, program: str) -> None:
        self.home = tempfile.TemporaryDirectory(
            prefix="coterie-browser", ignore_cleanup_errors=True
        )
        self.downloads = Path(self.home.name) / "downloads"
        self.downloads.mkdir()
        theirs_in, self._to = _pipe()
        self._from, theirs_out = _pipe()
        words = [program, *FLAGS, f"--user-data-dir={self.home.name}/profile", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs_in), str(theirs_out), *words],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._buffer, self._last, self._session = b"", 0, ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        tabs = self.call("Target.getTargets")["targetInfos"]
        tab = next(t["targetId"] for t in tabs if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=tab, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        where = {"behavior": "allow", "downloadPath": str(self.downloads)}
        self.call("Browser.setDownloadBehavior", **where)

    def close(self) -> None:
        """End the browser and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self.home.cleanup()

    def call(self, method: str, **parameters: object) -> Json:
        """Send a command and return its result."""
        self._last += 1
        message: Json = {"id": self._last, "method": method, "params": parameters}
        if self._session and not method.startswith(("Target.", "Browser.")):
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']['message']}"
                result: Json = answer["result"]
                return result

    def _next(self, deadline: float) -> Json:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], deadline - time.monotonic())
            assert ready, "the browser does not answer"
            more = os.read(self._from, 1 << 20)
            assert more, "the browser has ended"
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: Json = json.loads(line)
        self._hear(message.get("method", ""), message.get("params", {}))
        return message

    def _hear(self, event: str, said: Json) -> None:
        if event == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(str(said["args"]))
        elif event == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {said['message']}")
        elif event == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])

    def open(
        self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False
    ) -> float:
        """Open a page in a window of some size, and return the seconds until it was loaded."""
        self.errors, self.requests = [], []
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=path.as_uri())
        self.wait("document.readyState === 'complete' && !!document.querySelector('main h1')")
        timing = "performance.getEntriesByType('navigation')[0]"
        return float(self.ask(f"{timing}.loadEventEnd || performance.now()")) / 1e3

    def ask(self, expression: str) -> Any:
        """Evaluate JavaScript in the page and return its value."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, f"{expression}: {found['exceptionDetails']}"
        return found["result"].get("value")

    def wait(self, expression: str) -> None:
        """Wait until JavaScript is true."""
        self.until(lambda: bool(self.ask(expression)), expression)

    def until(self, test: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not test():
            assert time.monotonic() < deadline, f"never came true: {what}"
            time.sleep(0.02)

    def middle(self, css: str) -> tuple[float, float]:
        """Bring an element into sight, and say where its middle is once nothing moves any more.

        Figures draw themselves when they come into sight, and may push others down.
        """
        element = f"document.querySelector({json.dumps(css)})"
        self.wait(f"!!{element}")
        places: list[list[float]] = []

        def rests() -> bool:
            places.append(
                self.ask(
                    f"(() => {{const e = {element}; const b = (e.scrollIntoView({{block: 'center', "
                    "behavior: 'instant'}), e.getBoundingClientRect());"
                    "return [b.left + b.width / 2, b.top + b.height / 2]})()"
                )
            )
            return places[-2:-1] == places[-1:]

        self.until(rests, f"{css} rests")
        x, y = places[-1]
        return x, y

    def mouse(self, kind: str, x: float, y: float) -> None:
        """Move the mouse, press it or let it go."""
        button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def hover(self, css: str, dx: float = 0.0, dy: float = 0.0) -> None:
        """Put the mouse on an element, or beside its middle."""
        x, y = self.middle(css)
        self.mouse("mouseMoved", x + dx, y + dy)

    def click(self, css: str) -> None:
        """Click on an element."""
        x, y = self.middle(css)
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y)
        self.mouse("mouseReleased", x, y)

    def key(self, name: str) -> None:
        """Press a key such as Tab, Enter or ArrowRight."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
        also = {"text": "\r"} if name == "Enter" else {}
        about = {"key": name, "code": name, "windowsVirtualKeyCode": codes[name], **also}
        self.call("Input.dispatchKeyEvent", type="keyDown", **about)
        self.call("Input.dispatchKeyEvent", type="keyUp", **about)

    def download(self, css: str) -> bytes:
        """Click on what saves a file, and return the file."""
        before = set(self.downloads.iterdir())
        self.click(css)
        new: list[Path] = []

        def there() -> bool:
            self.ask("1")
            new[:] = [
                path
                for path in set(self.downloads.iterdir()) - before
                if path.suffix != ".crdownload" and path.stat().st_size
            ]
            return bool(new)

        self.until(there, f"{css} saves a file")
        return new[0].read_bytes()

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """Write a screenshot, of the whole page or of what is in sight."""
        if whole:  # figures draw themselves when they come into sight
            self.ask("coterie.draw()")
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))


def _pipe() -> tuple[int, int]:
    """Both ends of a pipe, away from the numbers that the browser's ends will have."""
    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]
