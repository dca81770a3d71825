"""Text from the terminal, before Textual makes keys of it."""

from __future__ import annotations

import codecs
import signal

from distrain.runners import formatting

BEGIN, END = "\x1b[200~", "\x1b[201~"  # of a bracketed paste


class TerminalDecoder(codecs.IncrementalDecoder):
    """Decodes what a terminal sends. Bytes that are not UTF-8, such as of a paste in Latin-1, are
    replaced.

    A paste is passed on as a whole and without control sequences: Textual would read those in it
    as keys, and lose its end where the bytes of that arrive one after another.
    """

    def __init__(self) -> None:
        super().__init__()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._passed = ""  # the end of what was passed on: `BEGIN` may continue it
        self._pasted: str | None = None  # what was pasted so far, None outside of a paste

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]
        if not data:
            # The terminal is gone. A process that it does not control, as after `su -c`, gets no
            # signal, and Textual would read again forever.
            signal.raise_signal(signal.SIGHUP)
        text = self._decoder.decode(data, final)
        result: list[str] = []
        while text:
            if self._pasted is None:
                text = self._pass_keys(text, result)
            else:
                text = self._collect(text, result)
        return "".join(result)

    def _pass_keys(self, text: str, result: list[str]) -> str:
        """Pass a text on up to the begin of a paste; return the rest."""
        joined = self._passed + text
        begin = joined.find(BEGIN)
        if begin >= 0:
            split = begin + len(BEGIN) - len(self._passed)
            self._passed, self._pasted = "", ""
        else:
            split = len(text)
            self._passed = joined[-len(BEGIN) + 1 :]
        result.append(text[:split])
        return text[split:]

    def _collect(self, text: str, result: list[str]) -> str:
        """Pass a paste on once its end has arrived; return the text after it."""
        pasted, end, rest = f"{self._pasted}{text}".partition(END)
        if end:
            result.append(formatting.without_escapes(pasted) + END)
        self._pasted = None if end else pasted
        return rest
