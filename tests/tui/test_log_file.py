"""Log files of any size and content, which grow, are truncated or rotated."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrain.tui.data import log_file
from distrain.tui.data.log_file import BLOCK, PIECE, TAIL, LogFile
from distrain.tui.data.log_reader import LogPage, LogReader, LogSearch, PageRequest
from distrain.tui.data.log_text import LIMIT, clean_line


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.log"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[[bytes], LogFile]]:
    """Return a log with this content, read to its end."""
    files = []

    def open_log(content: bytes) -> LogFile:
        path.write_bytes(content)
        files.append(LogFile(path))
        whole(files[-1])
        return files[-1]

    yield open_log
    for file in files:
        file.close()


Opened = Callable[[bytes], LogFile]


def whole(file: LogFile) -> int:
    """Read the rest of the log; return how much line numbers changed."""
    file.update()
    shift = 0
    while file.has_more:
        shift += file.read_earlier()
        file.update()
    return shift


def texts(file: LogFile, first: int = 0, count: int = 1_000) -> list[str]:
    return [line.plain for line in file.lines(first, count)]


def found(file: LogFile, words: str, line: int, backwards: bool = False) -> list[int]:
    return [each for each in file.find(words, line, backwards) if each is not None]


def add(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


# --- a line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"plain", "plain"),
        (b"windows\r", "windows"),
        (b" 10%|#  |\r 50%|## |\r100%|###|", "100%|###|"),
        (b" 10%|#  |\r 50%|## |\r", " 50%|## |"),
        (b"\r\x1b[K 10%\r\x1b[32m 50%\x1b[0m\r\x1b[0m   ", " 50%"),
        (b"1/9\b\b\b2/9", "2/9"),
        (b"a\tb", "a       b"),
        (b"nul\x00bell\x07", "nul·bell·"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        ("right\u202eto left".encode(), "right·to left"),
        (b"\x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "textlink"),
        (b"\x1b[2J\x1b[1;1Hhome\x1b7\x1b(B", "home"),
        (b"cut \x1b[", "cut "),
        (b"cut \x1b", "cut ·"),
        (b"\x1b[" + b"9" * 5_000 + b"mcolour", "colour"),
        (b"", ""),
        ("Übermaß 損失".encode(), "Übermaß 損失"),
    ],
)
def test_a_line_reads_as_a_terminal_would_show_it(raw: bytes, shown: str) -> None:
    assert clean_line(raw).plain == shown


@given(st.binary(max_size=200) | st.text("\x1b[]0123;mKA\r\t\b\\x").map(str.encode))
def test_no_bytes_reach_the_terminal_as_a_command(raw: bytes) -> None:
    shown = clean_line(raw).plain
    assert all(char.isprintable() or unicodedata.category(char) in "Zs Co Cn Cf" for char in shown)
    assert "\x1b" not in shown


def test_colours_become_styles_of_the_text() -> None:
    line = clean_line(b"loss \x1b[1;32m0.5\x1b[0m")
    assert line.plain == "loss 0.5"
    assert [(span.start, span.end, str(span.style)) for span in line.spans] == [
        (5, 8, "bold color(2)")
    ]


def test_a_long_line_is_cut_and_shows_how_much_is_missing() -> None:
    assert clean_line(b"x" * LIMIT).plain == "x" * LIMIT
    assert clean_line(b"x" * (LIMIT + 1_234)).plain == "x" * LIMIT + "… (+1,234 characters)"


@pytest.mark.parametrize(
    ("raw", "colour"),
    [
        (b"Traceback (most recent call last):", "red"),
        (b'[rank1]:   File "train.py", line 3, in main', "red"),
        (b"torch.cuda.OutOfMemoryError: CUDA", "red"),
        (b"2026-11-21 ERROR gone", "red"),
        (b"KeyboardInterrupt", "red"),
        (b"train.py:3: UserWarning: deprecated", "yellow"),
        (b"0 errors, error rate 0.1", None),
        (b"Error bars are 95 %", None),
    ],
)
def test_failures_and_warnings_are_tinted(raw: bytes, colour: str | None) -> None:
    colours = {str(span.style) for span in clean_line(raw).spans}
    assert colours == ({colour} if colour else set())


# --- a file -------------------------------------------------------------------------------------


def test_a_missing_log_is_empty_until_it_exists(path: Path) -> None:
    file = LogFile(path)
    assert (file.update(), file.line_count, file.problem) == ((False, False), 0, "")
    assert texts(file) == []
    path.write_bytes(b"first\n")
    assert file.update() == (True, True)
    assert texts(file) == ["first"]
    path.unlink()
    assert file.update() == (True, True)
    assert (file.update(), file.line_count) == ((False, False), 0)


def test_a_path_that_is_not_a_file_is_a_problem_and_does_not_block(path: Path) -> None:
    os.mkfifo(path)
    file = LogFile(path)
    assert file.update().changed
    assert file.problem == "it is not a regular file"
    assert not file.update().changed


def test_the_last_line_counts_without_its_end_and_grows(opened: Opened, path: Path) -> None:
    file = opened(b"one\ntwo")
    assert texts(file) == ["one", "two"]
    assert file.update() == (False, False)
    add(path, b" and a half\nthree\n")
    assert file.update() == (True, False)
    assert texts(file) == ["one", "two and a half", "three"]
    assert texts(file, 1, 1) == ["two and a half"]


def test_nothing_new_costs_no_more_than_a_stat(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(b"one\n")
    monkeypatch.setattr(os, "pread", lambda *_: pytest.fail("it was read"))
    monkeypatch.setattr(os, "open", lambda *_: pytest.fail("it was opened"))
    assert file.update() == (False, False)


@pytest.mark.parametrize("content", [b"", b"new\n", b"other and longer than before\n" * 9])
def test_a_truncated_or_rewritten_log_is_read_from_its_start(
    opened: Opened, path: Path, content: bytes
) -> None:
    file = opened(b"old line\n" * 5)
    path.write_bytes(content)
    assert file.update() == (True, True)
    assert texts(file) == content.decode().splitlines()


def test_a_rotated_log_is_read_from_its_start(opened: Opened, path: Path) -> None:
    file = opened(b"same\n")
    path.rename(path.with_suffix(".1"))
    path.write_bytes(b"same\nand more\n")
    assert file.update() == (True, True)
    assert texts(file) == ["same", "and more"]


def test_lines_of_any_length_are_found_by_their_number(opened: Opened) -> None:
    lines = [f"{number} " + "x" * (number * 37 % 900) for number in range(1_500)]
    lines[700] = "700 " + "y" * (3 * BLOCK)
    lines[900:950] = [""] * 50
    file = opened("\n".join(lines).encode())
    assert file.line_count == len(lines)
    for number in (0, 1, 699, 700, 701, 899, 925, 950, 1_499):
        start = texts(file, number, 1)[0][:LIMIT]
        assert start == lines[number][:LIMIT]
    assert texts(file, 1_498) == lines[1_498:]
    assert texts(file, 1_500) == []


def test_a_line_of_30_mb_is_not_read(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    length = 30_000_000
    file = opened(b"before\n" + b"z" * length + b"\nafter\n")
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: read.append(n) or pread(fd, n, at))
    before, long, after = texts(file)
    assert (before, after) == ("before", "after")
    match = re.fullmatch(r"z+… \(\+([\d,]+) characters\)", long)
    assert match
    assert int(match[1].replace(",", "")) == length - LIMIT
    assert sum(read) <= 8 * max(BLOCK, PIECE)


def test_a_long_progress_bar_shows_its_last_state(opened: Opened) -> None:
    states = b"".join(b"%6d of 20000 steps done\r" % step for step in range(20_000))
    assert len(states) > PIECE
    assert texts(opened(states + b"\nend\n")) == [" 19999 of 20000 steps done", "end"]
    assert texts(opened(states)) == [" 19999 of 20000 steps done"]


def test_a_big_log_is_read_from_its_end_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 900_000
    path.write_bytes(b"".join(b"step %07d loss 0.1\n" % step for step in range(count)))
    assert path.stat().st_size > 4 * TAIL
    file = LogFile(path)
    read: list[int] = []
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, n, at: read.append(n) or pread(fd, n, at))
    file.update()
    assert sum(read) <= TAIL + BLOCK
    assert not file.is_complete
    known = file.line_count
    assert texts(file, known - 1) == [f"step {count - 1:07} loss 0.1"]
    shift = whole(file)
    assert (file.is_complete, file.line_count, shift) == (True, count, count - known)
    for number in (0, 1, 123_456, count - 1):
        assert texts(file, number, 1) == [f"step {number:07} loss 0.1"]
    assert max(read) <= log_file.STRIDE
    file.close()


# --- search -------------------------------------------------------------------------------------


def test_words_are_found_in_both_directions_from_a_line(opened: Opened) -> None:
    file = opened(b"Loss\nno\nthe LOSS loss\nno\nlos s\nloss")
    assert found(file, "loss", 0) == [0, 2, 5]
    assert found(file, "loss", 1) == [2, 5]
    assert found(file, "LOSS", 5, backwards=True) == [5, 2, 0]
    assert found(file, "loss", 4, backwards=True) == [2, 0]
    assert found(file, "loss", -1, backwards=True) == []
    assert found(file, "loss", 99) == []
    assert found(file, "gain", 0) == []


def test_words_beyond_ascii_are_found_in_capitals_too(opened: Opened) -> None:
    file = opened("Übermaß\nошибка\nОШИБКА\n".encode())
    assert found(file, "über", 0) == [0]
    assert found(file, "Ошибка", 0) == [1, 2]
    assert found(file, "ошибка", 2, backwards=True) == [2, 1]


def test_a_search_finds_only_text_that_is_shown(opened: Opened) -> None:
    file = opened(b"first state\rsecond state\n\x1b[31mred\x1b[0m\nstate.\\d\n")
    assert found(file, "first", 0) == []
    assert found(file, "second", 0) == [0]
    assert found(file, "31m", 0) == []
    assert found(file, "red", 0) == [1]
    assert found(file, "state.\\d", 0) == [2]


def test_a_search_reads_in_windows_and_misses_nothing_between_them(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "WINDOW", 64)
    lines = [b"." * (number % 23) + b"needle" for number in range(200)]
    file = opened(b"\n".join(lines) + b"\n")
    assert found(file, "needle", 0) == list(range(200))
    assert found(file, "needle", 199, backwards=True) == list(range(199, -1, -1))
    assert sum(each is None for each in file.find("nothing", 0)) > 20


# --- what the pane's thread asks ----------------------------------------------------------------


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LogReader]:
    (tmp_path / "logs").mkdir()
    made = LogReader(tmp_path)
    yield made
    made.close()


def look(reader: LogReader, request: PageRequest) -> LogPage:
    """Read until there is a page and nothing more to do."""
    page = None
    for _ in range(100):
        before, page = page, reader.read(request, ["rank-0", "rank-1"]) or page
        if before and page and not page.found:  # the count of the matches follows
            page = page._replace(found=before.found)
        if page is not None and not reader.has_work:
            return page
    pytest.fail("no page came")


def test_a_page_is_returned_once(reader: LogReader, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "rank-0.log"
    log.write_bytes(b"1\n2\n3\n")
    page = look(reader, PageRequest("rank-0", None, 2))
    assert (page.first, page.total, [line.plain for line in page.lines]) == (1, 3, ["2", "3"])
    assert page.empty == {"rank-1"}
    assert reader.read(PageRequest("rank-0", None, 2), []) is None
    add(log, b"4\n")
    page = look(reader, PageRequest("rank-0", None, 2))
    assert (page.first, page.total, page.replaced) == (2, 4, False)
    assert look(reader, PageRequest("rank-1", None, 2)).total == 0


def test_a_search_wraps_around_the_end_and_reports_it(reader: LogReader, tmp_path: Path) -> None:
    (tmp_path / "logs" / "rank-0.log").write_bytes(b"here\nno\nno\n")
    ahead = look(reader, PageRequest("rank-0", None, 2, LogSearch(1, "here", 1))).found
    assert ahead is not None
    assert (ahead.line, ahead.wrapped) == (0, True)
    nowhere = look(reader, PageRequest("rank-0", None, 2, LogSearch(2, "there", 1))).found
    assert nowhere is not None
    assert nowhere.line is None
    onwards = look(
        reader, PageRequest("rank-0", None, 2, LogSearch(3, "here", 1, wraps=False))
    ).found
    assert onwards is not None
    assert onwards.line is None


def test_a_search_in_a_big_log_waits_for_the_numbers_of_lines(
    reader: LogReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "TAIL", 1 << 20)
    monkeypatch.setattr(log_file, "STRIDE", 1 << 21)
    line = b"%08d " + b"." * 90 + b"\n"
    lines = b"".join(line % number for number in range(60_000))
    (tmp_path / "logs" / "rank-0.log").write_bytes(lines)
    first = reader.read(PageRequest("rank-0", None, 5), [])
    assert first is not None
    assert first.total < 60_000
    page = look(
        reader, PageRequest("rank-0", None, 5, LogSearch(1, "00059999", first.total - 1, True))
    )
    assert page.found is not None
    assert (page.found.line, page.found.wrapped, page.total) == (59_999, False, 60_000)
