"""The dispatcher on every CPU that QEMU has a model of, with code really compiled for every target:
what it loads runs, and what it leaves alone would often have killed the process."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.builders.dispatchers import buildable, compile_c, on_x86_64

from tfbuild.planning.dispatcher import (
    HEADER,
    LIBRARY,
    LIBRARY_FOLDER,
    LINK_FLAGS,
    SOURCE,
    list_compile_flags,
    render_header,
)
from tfbuild.planning.plan import KernelsPlan
from tfbuild.planning.render import build_dispatch_target
from tfcore.run import run
from tfcore.settings import TEMPLATES

pytestmark = [on_x86_64, pytest.mark.toolchain, pytest.mark.slow]

COMPILER = "clang-16"
# Loops that compilers turn into what the target has: vectors, fused multiply-adds, bit operations.
KERNELS = """
#include <stdint.h>
enum { SIZE = 512 };
static float a[SIZE], b[SIZE], c[SIZE];
static double d[SIZE];
static uint8_t bytes[SIZE];
static uint32_t words[SIZE];
static uint64_t longs[SIZE], sum;
__attribute__((constructor)) static void compute(void) {
  for (int i = 0; i < SIZE; ++i) {
    a[i] = i % 7, b[i] = i % 5, c[i] = i % 3, d[i] = i, bytes[i] = i;
    words[i] = i * 2654435761u, longs[i] = i * 0x9E3779B97F4A7C15ull;
  }
  for (int i = 0; i < SIZE; ++i) {
    a[i] = a[i] * b[i] + c[i], d[i] = d[i] * a[i] - c[i];
    words[i] = words[i] >> i % 13 | words[i] << 5, bytes[i] = bytes[i] > 7 ? bytes[i] * 3 : 9;
  }
  for (int i = 0; i < SIZE; ++i) {
    const uint64_t x = longs[i], y = words[i];
    sum += (uint64_t)a[i] + (uint64_t)d[i] + bytes[i] + y + (~x & y) + (x & -x) + (x & (x - 1));
    sum += __builtin_popcountll(x) + __builtin_clzll(x | 1) + __builtin_ctzll(x | 1);
    sum += __builtin_bswap64(x) + (x >> (i & 31)) + (uint64_t)((unsigned __int128)x * y >> 64);
  }
}
int tensorwright_kernel_count(void) { return sum != 0; }
"""
# For each target, in a process of its own: load the dispatcher that may take this target only, then
# its library without a dispatcher. Prints what came of both: 1 loaded, 0 not, -N ended by signal N.
HOST = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
static int dispatched(char **words) {
  setenv("TENSORWRIGHT_TARGET", words[0], 1);
  void *dispatcher = dlopen(DISPATCHER, RTLD_LAZY);
  const char *(*loaded)(void);
  *(void **)&loaded = dlsym(dispatcher, "tensorwright_loaded");
  return loaded() != NULL;
}
static int forced(char **words) { return dlopen(words[1], RTLD_NOW) != NULL; }
static int tried(int (*act)(char **), char **words) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(act(words));
  int status;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}
int main(int count, char **words) {
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  for (int i = 1; i + 1 < count; i += 2)
    printf("= %s %d %d\\n", words[i], tried(dispatched, words + i), tried(forced, words + i));
}
"""
SIGILL = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """A target on a model: 1 for loaded, 0 for not, -N for ended by signal N."""

    model: str
    target: str
    dispatched: int
    forced: int


def models() -> Iterator[str]:
    """QEMU's models of x86-64, each in its plainest version."""
    known = run(["qemu-x86_64", "-cpu", "help"], check=False).output  # its exit status is 1
    for name in re.findall(r"^x86 (\S+)", known, re.MULTILINE):
        if re.search(r"-v\d+$|-(IBRS|IBPB|noTSX)", name) or name in {"base", "host"}:
            continue
        started = run(["qemu-x86_64", "-cpu", name, "/bin/true"], check=False)
        if "does not support 64 bit mode" not in started.output:
            yield name


def compile_all(site: Path, plans: tuple[KernelsPlan, ...]) -> None:
    (site / LIBRARY_FOLDER).mkdir()
    for plan in plans:
        library = site / LIBRARY_FOLDER / plan.library
        compile_c(COMPILER, KERNELS, library, "-O3", "-shared", "-fPIC", *plan.flags)
    rows = [build_dispatch_target(plan) for plan in plans]
    (site / HEADER).write_text(render_header(rows, TEMPLATES), encoding="utf-8")
    flags = (*list_compile_flags("x86_64"), f"-I{site}")
    run([COMPILER, *flags, SOURCE, "-o", site / LIBRARY, *LINK_FLAGS])
    compile_c("gcc", HOST, site / "host", f'-DDISPATCHER="{site / LIBRARY}"', "-ldl")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, ...]:
    site = tmp_path_factory.mktemp("emulated")
    plans = tuple(buildable(COMPILER))
    compile_all(site, plans)
    libraries = [(p.target.local, str(site / LIBRARY_FOLDER / p.library)) for p in plans]
    words = [word for pair in libraries for word in pair]

    def emulate(model: str) -> list[Outcome]:
        emulator = ("qemu-x86_64", "-cpu", model)
        done = run(
            [*emulator, site / "host", *words],
            env={"PATH": os.environ["PATH"]},
            cwd=site,
            timeout_s=300,
        )
        actual = re.findall(r"^= (\S+) (-?\d+) (-?\d+)$", done.output, re.MULTILINE)
        assert len(actual) == len(plans), done.output
        return [
            Outcome(model=model, target=target, dispatched=int(mine), forced=int(theirs))
            for target, mine, theirs in actual
        ]

    with ThreadPoolExecutor(max_workers=2) as pool:
        return tuple(
            outcome for model_outcomes in pool.map(emulate, models()) for outcome in model_outcomes
        )


def test_no_model_dies_of_any_target(outcomes: tuple[Outcome, ...]) -> None:
    assert not [outcome for outcome in outcomes if outcome.dispatched < 0]
    assert len({outcome.model for outcome in outcomes}) >= 25
    assert len({outcome.target for outcome in outcomes}) >= 25


def test_without_the_dispatcher_many_would_have_died(outcomes: tuple[Outcome, ...]) -> None:
    killed = [outcome for outcome in outcomes if outcome.forced == -SIGILL]
    assert len(killed) > len(outcomes) / 4
    assert not any(outcome.dispatched for outcome in killed)


@pytest.mark.parametrize(
    ("model", "runs", "leaves"),
    [
        ("Penryn", {"core2"}, {"nehalem", "x86.64.v2"}),
        ("SandyBridge", {"sandybridge", "x86.64.v2"}, {"ivybridge", "x86.64.v3", "bulldozer"}),
        ("IvyBridge", {"ivybridge"}, {"haswell", "piledriver"}),
        ("Opteron_G5", {"sandybridge"}, {"haswell", "x86.64.v3"}),
        ("Haswell", {"haswell", "x86.64.v3"}, {"skylake.avx512", "zen", "x86.64.v4"}),
        ("EPYC", {"haswell", "x86.64.v3"}, {"skylake.avx512", "zen4"}),
        ("Skylake-Client", {"haswell"}, {"skylake.avx512"}),
        # QEMU 7.2 has no AVX-512, whatever the model's name promises.
        ("Skylake-Server", {"haswell"}, {"skylake.avx512", "cascadelake", "x86.64.v4"}),
    ],
)
def test_a_model_runs_its_own_line_and_nothing_later(
    outcomes: tuple[Outcome, ...], model: str, runs: set[str], leaves: set[str]
) -> None:
    counts = {outcome.target: outcome.dispatched for outcome in outcomes if outcome.model == model}
    assert {target for target in runs | leaves if counts[target]} == runs
