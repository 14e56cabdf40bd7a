from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.builders import locked_wheels, tuned_wheels
from tests.builders.locked_wheels import HERE, TAG
from tests.builders.recompressed import recompress
from tests.builders.selections import ROW

from tfbench.arms.arm import TOLERANCE
from tfbench.arms.installs import (
    ArmChoice,
    WheelSource,
    build_kernel_table,
    choose,
    choose_tolerance,
    describe,
    find_newest_runnable,
    install,
    load_runtime_packages,
    read_exact,
)
from tfbench.arms.lever_table import BFLOAT16_TOLERANCE, LEVERS
from tfbench.arms.lineup import parse_arm, read_lineup
from tfbuild.commands import Request
from tfbuild.packing.tuned import Tuned
from tfbuild.planning.defaults import BF16, Default, load_levers
from tfbuild.upstream import releases
from tfbuild.upstream.download import hash_file
from tfbuild.upstream.kernels import select
from tfbuild.upstream.lock_files import LOCKS
from tfcore import settings
from tfcore.cpus.targets import STOCK_FLAGS
from tfcore.errors import HostError, PythonError, UsageError, WheelError
from tfcore.settings import Paths

# Every CPU that runs the tests has these; none has the other.
RUNS = tuned_wheels.with_library(required_features=())
HOT, QUICK = (
    tuned_wheels.with_library(
        required_features=(), kernels=tuple(unit.name for unit in select(name))
    )
    for name in ("hot", "mini")
)
FOREIGN = tuned_wheels.with_library(target="tomorrow", required_features=("avx99",))
CONTROL = tuned_wheels.with_library(target=STOCK_FLAGS, required_features=())


@pytest.fixture(name="here")
def paths_of_this_test(tmp_path: Path) -> Paths:
    pool = tmp_path / "pool"
    pool.mkdir()
    return dataclasses.replace(settings.paths(), cache=tmp_path / "cache", pool=pool)


def pooled(pool: Path, local: str, tuned_facts: Tuned | None, age_s: int = 0) -> Path:
    path = tuned_wheels.wheel(pool, None if tuned_facts is None else tuned_facts.to_bytes())
    renamed = path.rename(pool / path.name.replace("haswell", local))
    os.utime(renamed, (1_000_000 - age_s, 1_000_000 - age_s))
    return renamed


def chosen(text: str, paths: Paths, candidate: str = "") -> tuple[ArmChoice, ...]:
    return choose(read_lineup(text), candidate, paths)


def sources(choices: Sequence[ArmChoice]) -> list[str | Path]:
    return [choice.source.path or choice.source.requirement for choice in choices]


def test_the_newest_wheel_that_runs_here_is_the_candidate(here: Paths) -> None:
    pooled(here.pool, "foreign", FOREIGN)
    pooled(here.pool, "stock.flags", CONTROL, age_s=5)
    pooled(here.pool, "other", None, age_s=7)
    newest = pooled(here.pool, "newest", RUNS, age_s=10)
    pooled(here.pool, "older", RUNS, age_s=20)
    assert find_newest_runnable(here) == newest
    assert sources(chosen("", here)) == ["tensorflow-cpu==2.14.1", newest]


def test_a_quick_tries_wheel_is_the_candidate_only_where_no_other_fits(here: Paths) -> None:
    pooled(here.pool, "foreign", FOREIGN)
    mini = pooled(here.pool, "mini", QUICK)
    pooled(here.pool, "older", QUICK, age_s=30)
    assert find_newest_runnable(here) == mini
    assert "kernels: mini, two kernels for a quick try" in describe(chosen("", here))
    whole = pooled(here.pool, "whole", RUNS, age_s=60)
    assert find_newest_runnable(here) == whole
    assert describe(chosen("", here)).splitlines()[1].split() == [
        *("tuned", str(whole), "(kernels:", "1", "kernel", "group)")
    ]
    assert "(kernels: hot)" in describe(chosen("", here, str(pooled(here.pool, "hot", HOT))))


def test_an_empty_pool_says_how_to_fill_it(here: Paths) -> None:
    with pytest.raises(WheelError, match="invoke build"):
        chosen("stock,tuned", here)


def test_a_pool_of_wheels_that_do_not_fit_is_no_answer(here: Paths) -> None:
    pooled(here.pool, "foreign", FOREIGN)
    pooled(here.pool, "stock.flags", CONTROL)
    with pytest.raises(HostError, match="2 wheels"):
        chosen("stock,tuned", here)


def test_a_given_candidate_is_what_tuned_means(here: Paths, tmp_path: Path) -> None:
    pooled(here.pool, "newest", RUNS)
    path = pooled(tmp_path, "given", RUNS)
    assert sources(chosen("", here, str(path))) == ["tensorflow-cpu==2.14.1", path]
    assert sources(chosen("stock,tuned:onednn=off", here, str(path)))[1] == path


def test_stock_is_the_candidates_own_package_version_and_python(here: Paths) -> None:
    path = here.pool / f"tensorflow-2.13.1+haswell-cp39-cp39-{'manylinux_2_17_x86_64'}.whl"
    tuned_wheels.wheel(here.pool, RUNS.to_bytes()).rename(path)
    stock, tuned, other_choice = chosen("stock,tuned,tensorflow-cpu==2.14.1", here)
    assert stock.source == WheelSource(requirement="tensorflow==2.13.1", python="3.9")
    assert tuned.source == WheelSource(path=path, python="3.9")
    assert other_choice.source == WheelSource(requirement="tensorflow-cpu==2.14.1", python="3.9")


def test_without_a_candidate_stock_is_the_default_release(here: Paths) -> None:
    first, second = chosen("stock,stock:onednn=off", here)
    assert first.source == second.source
    request = Request()
    assert first.source.requirement == f"tensorflow-cpu=={request.release}"
    assert first.source.python in releases.find_release(request.release).pythons


def test_a_wheel_by_its_path_says_what_stock_is_where_no_candidate_does(
    here: Paths, tmp_path: Path
) -> None:
    path = tmp_path / "tensorflow-2.12.0-cp310-cp310-manylinux_2_17_x86_64.whl"
    tuned_wheels.wheel(tmp_path, None).rename(path)
    assert sources(chosen(f"stock,mine={path}", here)) == ["tensorflow==2.12.0", path]


def test_the_control_is_the_candidates(here: Paths) -> None:
    tuned = pooled(here.pool, "newest", RUNS)
    with pytest.raises(WheelError, match="invoke build --arch stock"):
        chosen("control", here)
    control = pooled(here.pool, "stock.flags", CONTROL)
    assert sources(chosen("control", here)) == ["tensorflow-cpu==2.14.1", control, tuned]


def test_names_of_packages_are_normalized_so_that_arms_share(here: Paths) -> None:
    choices = chosen("stock,again=tensorflow_cpu==2.14.1,more=TensorFlow.CPU==2.14.1", here)
    assert len({choice.source for choice in choices}) == 1


def test_another_runtime_has_an_environment_of_its_own(here: Paths) -> None:
    text = "stock,x=stock:runtime=openvino,y=stock:runtime=openvino:intra=1"
    stock, x, y = chosen(text, here)
    assert x.source == y.source == dataclasses.replace(stock.source, runtime="openvino")
    assert x.source.title == f"{stock.source.title} with openvino"
    assert x.env == (("TENSORWRIGHT_RUNTIME", "openvino"),)


def test_a_runtime_is_refused_for_a_python_that_it_does_not_support(here: Paths) -> None:
    path = here.pool / "tensorflow-2.14.1-cp310-cp310-manylinux_2_17_x86_64.whl"
    tuned_wheels.wheel(here.pool, RUNS.to_bytes()).rename(path)
    with pytest.raises(UsageError, match=r"arm ort: .* Python 3\.11 .* Python 3\.10"):
        chosen("runtimes", here)


def test_jax_is_refused_for_a_release_that_it_does_not_support(here: Paths) -> None:
    text = "stock,x=tensorflow-cpu=={}:backend=jax"
    with pytest.raises(
        UsageError, match=r"arm x: jax needs TensorFlow 2\.20 or newer, not .*2\.14\.1"
    ):
        chosen(text.format("2.14.1"), here)
    *_, choice = chosen(text.format("2.20.0"), here)
    assert choice.source.title == "tensorflow-cpu==2.20.0 with jax"
    assert choice.env == (("KERAS_BACKEND", "jax"),)


def test_the_packages_of_a_runtime_are_locked_and_none_of_tensorflows(here: Paths) -> None:
    names = {
        line.partition("==")[0]
        for path in LOCKS.glob("*.txt")
        for line in path.read_text("utf-8").splitlines()
    }
    for runtime in (*LEVERS["runtime"].words, *LEVERS["backend"].words):
        for python in ("3.11", "3.13"):
            lines = load_runtime_packages(runtime, python).splitlines()
            found = [line.partition("==")[0] for line in lines if "==" in line]
            assert runtime in found
            assert not names & {*found}
            assert all(line.strip().startswith((*found, "--hash=sha256:")) for line in lines)
    assert load_runtime_packages("", "3.11") == ""


@pytest.mark.parametrize(
    ("text", "candidate", "error", "message"),
    [
        ("stock,x=no-such.whl", "", WheelError, "no-such.whl"),
        ("stock,x=~no-one/x.whl", "", UsageError, "~no-one/x.whl: there is no such home folder"),
        ("", "no-such.whl", WheelError, "no-such.whl"),
        ("a==1,b==1", "any.whl", UsageError, "any.whl"),
        ("stock,x=stock:env.LD_PRELOAD=/no/such.so", "", UsageError, "/no/such.so"),
        ("stock,x=stock:malloc=/etc/passwd", "", UsageError, "arm x: /etc/passwd"),
    ],
)
def test_what_cannot_be_had_is_told_in_one_line(
    text: str, candidate: str, error: type[Exception], message: str, here: Paths
) -> None:
    with pytest.raises(error, match=re.escape(message)) as caught:
        chosen(text, here, candidate)
    assert len(str(caught.value).splitlines()) == 1


def test_a_wheel_that_this_cpu_cannot_run_is_refused_by_name_and_feature(
    here: Paths, tmp_path: Path
) -> None:
    path = pooled(tmp_path, "tomorrow", FOREIGN)
    for text, candidate in (("", str(path)), (f"stock,x={path}", "")):
        with pytest.raises(HostError, match=r"tomorrow, .* avx99"):
            chosen(text, here, candidate)


def libc() -> str:
    """The path of the C library that this process has: it can be preloaded anywhere."""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return next(match[0] for match in re.finditer(r"/\S+/libc[.-]\S+", maps))


def test_a_library_that_can_be_preloaded_is(here: Paths) -> None:
    _, arm = chosen(f"stock,x=stock:malloc={libc()}:intra=1", here)
    assert arm.env[0] == ("LD_PRELOAD", libc())
    assert dict(arm.env)["OMP_NUM_THREADS"] == "1"


def test_a_dry_run_names_wheels_and_environment(here: Paths) -> None:
    tuned = pooled(here.pool, "newest", RUNS)
    description = describe(chosen("stock,off=tuned:onednn=off:env.TF_X='a b'", here))
    stock, off = description.splitlines()
    assert stock.split() == ["stock", "tensorflow-cpu==2.14.1"]
    assert (
        off
        == f"off    {tuned} (kernels: 1 kernel group)  TF_ENABLE_ONEDNN_OPTS=0 TF_DISABLE_MKL=1 "
        "'TF_X=a b'"
    )
    assert not here.cache.exists()


def test_the_published_version_has_no_local_part() -> None:
    path = Path("tensorflow_cpu-2.14.1+x86.64.v4-cp311-cp311-manylinux_2_17_x86_64.whl")
    assert str(read_exact(path)) == "tensorflow-cpu==2.14.1"


@pytest.fixture(name="index")
def folder_that_pip_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return locked_wheels.asked_folder(tmp_path / "index", monkeypatch)


def says(python: Path, code: str) -> str:
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.mark.toolchain
def test_each_wheel_is_installed_once_and_its_arms_share_it(
    index: Path, here: Paths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wheel that was made here needs what the published one of its name needs."""
    locked_wheels.wheel(index, "dependency")
    published = locked_wheels.wheel(
        index, "tiny", needs="dependency", tag=f"{TAG}-{TAG}-manylinux2014_x86_64"
    )
    mine = recompress(published, tmp_path / published.name, zipfile.ZIP_DEFLATED)
    text = f"stock=tiny==1.0,off=tiny==1.0:onednn=off,mine={mine},half={mine}:bf16=on"
    stock, off, own_arm, half = install(chosen(text, here), here)
    assert (stock.python, own_arm.python) == (off.python, half.python)
    assert stock.python != own_arm.python
    folders = {path.name.partition("-")[0] for path in here.arms.iterdir()}
    assert len(folders) == 3  # (one of them is bare: what both wheels need)
    assert "bare" in folders
    for arm in (stock, own_arm):
        code = "import tiny, dependency; print(tiny.answer + dependency.answer)"
        assert says(arm.python, code) == "84"
    assert own_arm.wheel_sha256 == hash_file(mine) != stock.wheel_sha256 == hash_file(published)
    assert off.env == (("TF_ENABLE_ONEDNN_OPTS", "0"), ("TF_DISABLE_MKL", "1"))
    assert (stock.label, off.label) == (published.name, f"{published.name} onednn=off")
    assert (stock.tolerance, half.tolerance) == (TOLERANCE, BFLOAT16_TOLERANCE)
    assert [arm.name for arm in (stock, off, own_arm, half)] == ["stock", "off", "mine", "half"]
    assert not any(arm.tuned for arm in (stock, off, own_arm, half))
    assert "stock, off: tiny==1.0" in capsys.readouterr().err


@pytest.mark.parametrize(("on", "expected"), [(True, BFLOAT16_TOLERANCE), (False, TOLERANCE)])
def test_a_wheel_that_rounds_to_bfloat16_may_differ_as_far(on: bool, expected: float) -> None:
    lever = next(default_lever for default_lever in load_levers() if default_lever.name == BF16)
    rounding = dataclasses.replace(tuned_wheels.LIBRARY, defaults=(Default(lever=lever, on=on),))
    assert choose_tolerance(parse_arm("tuned"), rounding) == expected
    assert choose_tolerance(parse_arm("tuned"), None) == TOLERANCE
    for narrow in (1e-9, 0.01):
        assert choose_tolerance(parse_arm(f"tuned:tolerance={narrow}"), rounding) == narrow
        assert choose_tolerance(parse_arm(f"tuned:bf16=on:tolerance={narrow}"), None) == narrow


def test_an_arm_knows_what_its_kernels_were_chosen_by() -> None:
    measured = dataclasses.replace(tuned_wheels.LIBRARY, measured=(ROW,), measured_on="a CPU")
    kernel_table = build_kernel_table(measured)
    assert kernel_table is not None
    assert (kernel_table.rows, kernel_table.measured_on) == ((ROW,), "a CPU")
    assert kernel_table.library == Path(measured.file).name
    assert build_kernel_table(tuned_wheels.LIBRARY) is None
    assert build_kernel_table(None) is None


@pytest.mark.toolchain
def test_the_stock_wheel_is_the_pinned_one_with_the_shipped_lock(paths: Paths) -> None:
    """In the user's own cache, where the other tests have it too."""
    stock, off = install(chosen("stock,stock:onednn=off", paths), paths)
    pinned = [wheel.sha256 for release in releases.load_releases() for wheel in release.wheels]
    assert stock.wheel_sha256 in pinned
    assert stock.python == off.python
    assert off.label == f"{stock.label} onednn=off"


def test_a_python_that_is_not_here_is_an_error(here: Paths) -> None:
    path = here.pool / "tensorflow-2.14.1-cp398-cp398-manylinux_2_17_x86_64.whl"
    tuned_wheels.wheel(here.pool, RUNS.to_bytes()).rename(path)
    with pytest.raises(PythonError, match=r"Python 3\.98"):
        install(chosen(f"a={path},b={path}", here), here)


def test_this_python_is_what_stock_is_installed_for(here: Paths) -> None:
    if HERE not in releases.find_release(Request().release).pythons:
        pytest.skip(f"the default release has no wheel for {sys.version}")
    assert chosen("stock,stock:intra=1", here)[0].source.python == HERE
