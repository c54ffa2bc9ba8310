"""Fetch a file from the web, going on where a broken download stopped, or a package from npm."""

import http.client
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from coterie.core.errors import DataError
from coterie.data.files import file_sha256

MAX_BYTES = 1 << 33
CHUNK = 1 << 16
CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
NPM_REASON = re.compile(r"npm (?:error|ERR!) (?!code |errno |syscall |path )(\S.*)")
Tick = Callable[[int, int | None], None]


def download(
    url: str,
    to: Path,
    *,
    sha256: str | None = None,
    max_bytes: int = MAX_BYTES,
    timeout_s: float = 30.0,
    tick: Tick = lambda n_bytes, total: None,
) -> None:
    """Download `url` to the file `to`, through `to` + ".part", which a later call goes on with.

    `timeout_s` bounds each wait for the server. Without `sha256`, a file that changed on the
    server between two calls is not noticed. `tick` gets the bytes so far and, if known, in total.
    """
    part = to.with_name(to.name + ".part")
    try:
        check_address(url)
        to.parent.mkdir(parents=True, exist_ok=True)
        have = part.stat().st_size if part.exists() else 0
        if not _fetch(url, part, have, max_bytes, timeout_s, tick):
            _fetch(url, part, 0, max_bytes, timeout_s, tick)
        if sha256 is not None:
            got = file_sha256(part)
            if got != sha256.lower():
                part.unlink()
                raise DataError(f"{url}: sha256 must be {sha256[:12]}..., got {got[:12]}...")
        part.replace(to)
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
        if isinstance(error, HTTPError):
            error.close()
            raise DataError(f"{url}: the server answered {error.code} {why}") from error
        raise DataError(f"{url}: cannot be downloaded ({why}); try again to go on") from error


def _fetch(url: str, part: Path, have: int, max_bytes: int, timeout_s: float, tick: Tick) -> bool:
    """Bring `part` from `have` bytes to the end; False if the server cannot go on from there."""
    headers = {"User-Agent": "coterie"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = build_opener(Redirects).open(Request(url, headers=headers), timeout=timeout_s)
    except HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
            raise
        error.close()
        return False
    with response:
        total = response.length
        if response.status == http.HTTPStatus.PARTIAL_CONTENT and have:
            span = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if span is None or int(span[1]) != have:
                return False
            total = int(span[2]) if span[2] != "*" else total and have + total
        elif response.status == http.HTTPStatus.OK:
            have = 0
        else:
            raise DataError(f"{url}: the server answered {response.status}, not 200")
        end = max_bytes + 1 if total is None else total
        too_long = max(have, total or 0) > max_bytes
        with part.open("ab" if have else "wb") as file:
            tick(have, total)
            while not too_long and (chunk := response.read1(max(0, min(CHUNK, end - have)))):
                have += len(chunk)
                too_long = have > max_bytes
                if not too_long:
                    file.write(chunk)
                    tick(have, total)
            file.flush()
            os.fsync(file.fileno())
    if too_long:
        part.unlink()
        raise DataError(f"{url}: has {total or 'more'} bytes, at most {max_bytes} are allowed")
    if total is not None and have != total:
        raise DataError(f"{url}: broke off after {have} of {total} bytes; try again to go on")
    return True


def check_address(url: str, before: str = "") -> None:
    """Refuse what is neither http nor https, and to go from https back to http.

    >>> check_address("https://example.org/images.zip")
    >>> check_address("file:///images.zip")
    Traceback (most recent call last):
    coterie.core.errors.DataError: file:///images.zip: must be an http or https address
    """
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https"):
        raise DataError(f"{url}: must be an http or https address")
    if scheme == "http" and urlsplit(before).scheme == "https":
        raise DataError(f"{before}: must not redirect to {url}, which is not https")


class Redirects(HTTPRedirectHandler):
    """Follow a redirect where `check_address` allows it."""

    def redirect_request(
        self,
        req: Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> Request | None:
        """Check the new address before it is asked for anything."""
        try:
            check_address(newurl, req.full_url)
        except DataError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def npm_pack(package: str, folder: Path, timeout_s: float = 300.0) -> Path | None:
    """Let the `npm` client fetch a package's .tgz into `folder`; None if there is no such client.

    It works in a folder of its own in there, so that a failure leaves nothing behind.
    """
    npm = shutil.which("npm")
    if npm is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder, prefix=".npm-") as name:
            own = Path(name).resolve()
            # Not --silent, under which npm does not say why it fails.
            options = ["--ignore-scripts", "--loglevel=error", f"--pack-destination={own}"]
            done = subprocess.run(
                [npm, "pack", *options, "--", package],
                cwd=own,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
            files = list(own.glob("*.tgz"))
            if done.returncode != 0 or len(files) != 1:
                raise DataError(f"npm pack {package}: {npm_reason(done.stderr)}")
            return files[0].replace(folder / files[0].name)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"npm pack {package}: took longer than {timeout_s:g} s") from error
    except (OSError, ValueError) as error:
        raise DataError(f"npm pack {package}: {error}") from error


def npm_reason(stderr: bytes) -> str:
    """Pick the line that says why; npm goes on with hints, a stack trace and where its log is.

    >>> npm_reason(b"npm error code E404\\nnpm error 404 Not Found\\nnpm error A complete log ...")
    '404 Not Found'
    """
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    said = [match[1] for line in lines if (match := NPM_REASON.match(line))]
    return (said or lines[-1:] or ["it made no .tgz and gave no reason"])[0]
