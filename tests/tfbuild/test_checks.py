from __future__ import annotations

from pathlib import Path

import pytest

from tfbuild import checks
from tfbuild.checks import ProjectCheck
from tfbuild.upstream.releases import find_release
from tfcore import settings
from tfcore.errors import FailedTests
from tfcore.settings import ROOT


def ran(code: str, *, quiet: bool = False) -> None:
    check = ProjectCheck(name="a check", words=("-c", code))
    checks._require_passed(check, checks._run_check(check, quiet=quiet))


@pytest.mark.parametrize("quiet", [False, True])
def test_a_check_that_fails_is_an_error_with_its_exit_code(quiet: bool) -> None:
    with pytest.raises(FailedTests, match=r"a check .*exit code 3"):
        ran("raise SystemExit(3)", quiet=quiet)


@pytest.mark.parametrize("quiet", [False, True])
def test_checks_run_in_the_checkout(quiet: bool, capfd: pytest.CaptureFixture[str]) -> None:
    ran("import os; print(os.getcwd())", quiet=quiet)
    assert capfd.readouterr().out.strip() == str(ROOT)


def test_python_keeps_what_it_compiles_for_the_tests(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    ran("import sys; print(sys.dont_write_bytecode)")
    assert capfd.readouterr().out.strip() == "False"


def test_a_quiet_check_says_nothing_before_it_has_ended(capfd: pytest.CaptureFixture[str]) -> None:
    """What is installed meanwhile tells of its steps."""
    words = ("-c", "import sys; print('one', flush=True); print('two', file=sys.stderr)")
    check = ProjectCheck(name="a check", words=words)
    ended = checks._run_check(check, quiet=True)
    assert capfd.readouterr() == ("", "")
    checks._require_passed(check, ended)
    output = capfd.readouterr()
    assert output.out == "one\ntwo\n"
    assert output.err.endswith("a check\n")


def test_all_of_our_python_is_checked() -> None:
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "."]
    ours = {folder.name for folder in folders if any(folder.rglob("*.py"))}
    assert ours <= set(checks._CODE)
    assert {path.name for path in ROOT.glob("*.py")} <= set(checks._CODE)


def test_the_tested_release_has_kernels() -> None:
    assert find_release(checks.TESTED_RELEASE).kernels


def test_the_downloads_of_the_tests_are_those_of_the_cache_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "ROOT", tmp_path)
    link = checks.get_test_cache(tmp_path) / "downloads"
    for name in ("one", "other"):
        monkeypatch.setenv("TENSORWRIGHT_CACHE", str(tmp_path / name))
        assert checks.prepare_test_paths().cache == checks.get_test_cache(tmp_path)
        assert link.resolve() == tmp_path / name / "downloads"
    assert checks.prepare_test_paths().cache == checks.get_test_cache(tmp_path)
