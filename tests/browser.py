"""A headless Chromium without a network, driven through its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # root, as in CI, gets none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)
# The browser listens on descriptor 3 and answers on 4.
WITH_PIPES = 'exec "$0" "$@" 3<&"$TO_BROWSER" 4>&"$FROM_BROWSER"'


def chromium() -> str | None:
    """The browser's path; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page: `asked` are the addresses that it wanted, `errors` what it complained of."""

    def __init__(self, to: int, answers: int) -> None:
        self._to, self._answers = to, os.fdopen(answers, "rb")
        self._number, self._session, self._rest, self._loads = 0, "", b"", 0
        self.asked: list[str] = []
        self.errors: list[str] = []

    def open(self) -> None:
        page = self("Target.createTarget", url="about:blank")["targetId"]
        attached = self("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self(f"{domain}.enable")
        self(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )

    def __call__(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol; raises RuntimeError where the browser refuses."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def show(self, page: Path, width: int = 1280, dark: bool = False, touch: bool = False) -> None:
        """Load a report, and wait until its charts are drawn."""
        self(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=touch,
        )
        self("Emulation.setTouchEmulationEnabled", enabled=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", features=[scheme])
        before = self._loads
        self("Page.navigate", url=page.as_uri())
        while self._loads == before:
            self._note(self._next())
        self.run(
            "new Promise(done => { const look = () => document.documentElement.dataset.drawn"
            " ? done() : setTimeout(look, 20); look(); })"
        )

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression, of a promise once it is kept."""
        found = self(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def picture(self, path: Path) -> None:
        """The whole page as PNG, to be looked at."""
        shot = self("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = self._answers.read1(1 << 16)
            if not chunk:
                raise RuntimeError("the browser has gone")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, message: dict[str, Any]) -> None:
        said = message.get("params", {})
        if message["method"] == "Network.requestWillBeSent":
            self.asked.append(said["request"]["url"])
        elif message["method"] == "Page.loadEventFired":
            self._loads += 1
        elif message["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(said["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(said["entry"]["text"])


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    hear, to = os.pipe()
    answers, say = os.pipe()
    process = subprocess.Popen(
        ["bash", "-c", WITH_PIPES, chromium() or "", *OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(hear, say),
        env={**os.environ, "TO_BROWSER": str(hear), "FROM_BROWSER": str(say), "HOME": str(profile)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(hear)
    os.close(say)
    browser = Browser(to, answers)
    try:
        browser.open()
        yield browser
    finally:
        with suppress(RuntimeError, OSError):
            browser._session = ""
            browser("Browser.close")
        process.kill()
        process.wait()
        os.close(to)
        browser._answers.close()
