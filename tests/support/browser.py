"""A headless Chromium without a network, driven through its DevTools protocol over two pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
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
    """Return the path of an installed Chromium, or None."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    return None


class Browser:
    """Controls one page.

    `requests` are the addresses that the page requested, `errors` its errors.
    """

    def __init__(self, commands: int, answers: BufferedReader) -> None:
        self._commands = commands
        self._answers = answers
        self._number = 0
        self._session = ""
        self._unparsed = b""
        self._loads = 0
        self.requests: list[str] = []
        self.errors: list[str] = []

    def open(self) -> None:
        """Open an empty page that has no network."""
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
        """Call a method of the protocol. Raise RuntimeError if the browser reports an error."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._note(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def show(self, page: Path, width: int = 1280, dark: bool = False, touch: bool = False) -> None:
        """Load a report and wait until its charts are drawn."""
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
        """Return the value of a JavaScript expression, or what its promise resolves to."""
        found = self(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def picture(self, path: Path) -> None:
        """Save the whole page as PNG, for inspection."""
        shot = self("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """Ask the browser to exit."""
        self._session = ""  # the command is not for the page
        with suppress(RuntimeError, OSError):
            self("Browser.close")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unparsed:
            chunk = self._answers.read1(1 << 16)
            if not chunk:
                raise RuntimeError("the browser has exited")
            self._unparsed += chunk
        line, _, self._unparsed = self._unparsed.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, message: dict[str, Any]) -> None:
        details = message.get("params", {})
        if message["method"] == "Network.requestWillBeSent":
            self.requests.append(details["request"]["url"])
        elif message["method"] == "Page.loadEventFired":
            self._loads += 1
        elif message["method"] == "Runtime.exceptionThrown":
            self.errors.append(str(details["exceptionDetails"]))
        elif message["method"] == "Log.entryAdded" and details["entry"]["level"] == "error":
            self.errors.append(details["entry"]["text"])


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """Run a browser with its own profile until the end of the block."""
    browser_input, commands = os.pipe()
    answers, browser_output = os.pipe()
    process = subprocess.Popen(
        ["bash", "-c", WITH_PIPES, chromium() or "", *OPTIONS, f"--user-data-dir={profile}"],
        pass_fds=(browser_input, browser_output),
        env={
            **os.environ,
            "TO_BROWSER": str(browser_input),
            "FROM_BROWSER": str(browser_output),
            "HOME": str(profile),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(browser_input)
    os.close(browser_output)
    with os.fdopen(commands, "wb"), os.fdopen(answers, "rb") as answer_file:
        browser = Browser(commands, answer_file)
        try:
            browser.open()
            yield browser
        finally:
            browser.close()
            process.kill()
            process.wait()
