from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.builders.processes import gone

from tfcore.errors import CommandError, TimeLimitError, ToolError
from tfcore.run import TAIL_LINES, resolve_program, run
from tfcore.settings import ROOT

BUILD = ROOT / "build"
# A grandchild that outlives its parent, keeps the output open, and says who it is.
LEAVES_A_GRANDCHILD = "sleep 300 & echo $!; "


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_both_streams_come_back_in_order(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "x.log"
    lines: list[str] = []
    done = run(["sh", "-c", "echo one; echo two >&2; echo three"], log=log, on_line=lines.append)
    assert done.output == "one\ntwo\nthree\n"
    assert lines == ["one", "two", "three"]
    assert log.read_text() == done.output
    assert done.returncode == 0
    assert done.argv == ("sh", "-c", "echo one; echo two >&2; echo three")
    assert not log.with_name("x.log.sh").exists()


def test_much_on_stderr_does_not_hang() -> None:
    code = "import sys; sys.stderr.write(('x' * 99 + '\\n') * 4000); print('end')"
    done = run(python(code), timeout_s=60)
    assert len(done.output) == 400_000 + len("end\n")


def test_bytes_that_are_no_text_do_no_harm() -> None:
    assert run(["printf", r"\377ok"]).output == "\N{REPLACEMENT CHARACTER}ok"


def test_nothing_waits_for_a_keyboard() -> None:
    assert run(["cat"], timeout_s=30).output == ""


def test_paths_environment_and_folder_are_passed_on(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "ONLY": "this"}
    done = run(["sh", "-c", 'pwd; echo "$ONLY:$HOME"'], cwd=tmp_path, env=env)
    assert done.output == f"{tmp_path}\nthis:\n"
    assert run(["ls", tmp_path]).argv == ("ls", str(tmp_path))


def test_an_unknown_program_is_a_tool_error(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="no-such-program"):
        run(["no-such-program"])
    with pytest.raises(ToolError, match=r"^sh "):
        resolve_program("sh", {"PATH": str(tmp_path)})
    assert Path(resolve_program("sh")).name == "sh"


def test_a_program_that_is_none_is_a_tool_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF, cut short")
    broken.chmod(0o755)
    with pytest.raises(ToolError, match=r"broken: Exec format error"):
        run([broken])


def test_the_error_names_command_log_and_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with pytest.raises(CommandError) as caught:
        run(["sh", "-c", "seq 100; exit 3"], log=log)
    first, *remainder = caught.value.message.splitlines()
    assert first.startswith("sh exited with 3 ")
    assert str(log) in first
    assert remainder == [str(number) for number in range(101 - TAIL_LINES, 101)]
    assert len(log.read_text().splitlines()) == 100


def test_a_program_that_a_signal_ended_is_said_to_be() -> None:
    with pytest.raises(CommandError, match=r"^sh .*SIGSEGV$"):
        run(["sh", "-c", "kill -SEGV $$"])


def test_the_caller_may_look_at_the_return_code_itself(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    done = run(["sh", "-c", "echo no; exit 3"], check=False, log=log)
    assert (done.returncode, done.output) == (3, "no\n")
    assert not log.with_name("x.log.sh").exists()


def test_a_failure_leaves_a_script_that_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "inherited-secret")
    monkeypatch.setenv("DROPPED", "set in the shell")
    folder = tmp_path / "a folder"
    folder.mkdir()
    log = tmp_path / "x.log"
    env = {name: value for name, value in os.environ.items() if name != "DROPPED"}
    env["OURS"] = 'it\'s $HOME; `no` "harm"'
    code = 'pwd; printf "%s\\n" "$OURS" "$1" "${DROPPED-unset}"; exit 7'
    with pytest.raises(CommandError):
        run(["sh", "-c", code, "sh", "an 'odd' word"], cwd=folder, env=env, log=log)
    script = tmp_path / "x.log.sh"
    text = script.read_text()
    assert "inherited-secret" not in text
    assert "API_TOKEN" not in text
    again = subprocess.run([script], check=False, capture_output=True, text=True)
    assert again.returncode == 7
    assert again.stdout == log.read_text()
    assert again.stdout.splitlines() == [str(folder), env["OURS"], "an 'odd' word", "unset"]


def test_a_timeout_ends_grandchildren_too(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    started = time.monotonic()
    with pytest.raises(TimeLimitError, match=r"sh .* 0\.5 s"):
        run(["sh", "-c", LEAVES_A_GRANDCHILD + "sleep 300"], timeout_s=0.5, log=log)
    assert time.monotonic() - started < 30
    assert gone(int(log.read_text()))
    assert log.with_name("x.log.sh").exists()


def test_a_timeout_ends_what_a_finished_program_left_behind(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with pytest.raises(TimeLimitError):
        run(["sh", "-c", LEAVES_A_GRANDCHILD + "exit 0"], timeout_s=0.5, log=log)
    assert gone(int(log.read_text()))


@pytest.mark.parametrize("then", ["sleep 300", "exit 0"])
def test_ctrl_c_ends_grandchildren_too(tmp_path: Path, then: str) -> None:
    """Only our own process gets the signal: the program runs in a session of its own."""
    log = tmp_path / "x.log"
    code = (
        "import sys, pathlib; from tfcore.run import run\n"
        f"try: run(['sh', '-c', {LEAVES_A_GRANDCHILD + then!r}], log=pathlib.Path({str(log)!r}))\n"
        "except KeyboardInterrupt: sys.exit(99)"
    )
    env = os.environ | {"PYTHONPATH": str(BUILD)}
    with subprocess.Popen(python(code), env=env) as ours:
        try:
            deadline = time.monotonic() + 30
            while not (log.exists() and log.read_text().endswith("\n")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            ours.send_signal(signal.SIGINT)
            assert ours.wait(30) == 99
        finally:
            ours.kill()
    assert gone(int(log.read_text()))


def test_an_error_while_reading_ends_the_program(tmp_path: Path) -> None:
    def refuse(line: str) -> None:
        raise RuntimeError(line)

    with pytest.raises(RuntimeError) as caught:
        run(["sh", "-c", LEAVES_A_GRANDCHILD + "sleep 300"], on_line=refuse)
    assert gone(int(str(caught.value)))
