"""What the dispatcher decides on CPUs that are not here: the real source, fed with their CPUID.

A driver includes dispatcher.c. Two headers of its own stand before the compiler's: their CPUID and
XGETBV answer from a table that the driver reads, so one process is every CPU in turn.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.builders.dispatchers import KERNELS, buildable, compile_c, on_x86_64
from tests.builders.later import later
from tests.builders.recorded_cpus import COMPLETE, cpu_of

from tfbuild.packing.tuned import KernelLibrary, Tuned, choose_build, list_nearest_missing
from tfbuild.planning.dispatcher import HEADER, LIBRARY_FOLDER, SOURCE, render_header
from tfbuild.planning.fleet import build_fleet
from tfbuild.planning.plan import KernelsPlan
from tfbuild.planning.render import build_dispatch_target
from tfcore.cpus.cpu import Cpu
from tfcore.cpus.features import load_features
from tfcore.run import run
from tfcore.settings import TEMPLATES

pytestmark = [on_x86_64, pytest.mark.toolchain]

PLACES = 40
"""Rows of the largest fleet that the driver can hold."""
REGISTERS = ("eax", "ebx", "ecx", "edx")
ONES = 0xFFFFFFFF
OSXSAVE = 1 << 27

# As the compilers' own <cpuid.h>, but for the instruction.
CPUID_H = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define bit_OSXSAVE (1 << 27)
static struct { uint32_t leaf, subleaf, registers[4]; } rows[64];
static int row_count;
static uint64_t saved_by_system;
static const uint32_t *row_of(uint32_t leaf, uint32_t subleaf) {
  for (int i = 0; i < row_count; ++i)
    if (rows[i].leaf == leaf && rows[i].subleaf == subleaf) return rows[i].registers;
  return NULL;
}
/* Intel SDM volume 2A, CPUID: a leaf above the last one answers as the last basic one does. */
static void run_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]) {
  static const uint32_t nothing[4];
  if (leaf > row_of(leaf & 0x80000000u, 0)[0]) leaf = row_of(0, 0)[0];
  const uint32_t *row = row_of(leaf, subleaf);
  memcpy(registers, row == NULL ? nothing : row, 16);
}
static int __get_cpuid_count(uint32_t leaf, uint32_t subleaf, uint32_t *eax, uint32_t *ebx,
                             uint32_t *ecx, uint32_t *edx) {
  uint32_t registers[4];
  run_cpuid(leaf & 0x80000000u, 0, registers);
  if (registers[0] == 0 || registers[0] < leaf) return 0;
  run_cpuid(leaf, subleaf, registers);
  *eax = registers[0], *ebx = registers[1], *ecx = registers[2], *edx = registers[3];
  return 1;
}
static int __get_cpuid(uint32_t leaf, uint32_t *eax, uint32_t *ebx, uint32_t *ecx, uint32_t *edx) {
  return __get_cpuid_count(leaf, 0, eax, ebx, ecx, edx);
}
static uint64_t _xgetbv(uint32_t index) {
  if (index != 0 || !(row_of(1, 0)[2] & bit_OSXSAVE)) abort(); /* the instruction would trap */
  return saved_by_system;
}
"""
DRIVER = """
#include "dispatcher.c"
int main(int count, char **words) {
  if (count != 3) return 2;
  FILE *questions = fopen(words[1], "r");
  char word[16];
  while (fscanf(questions, "%15s", word) == 1) {
    if (strcmp(word, "cpu") == 0) {
      if (fscanf(questions, "%lx %d", &saved_by_system, &row_count) != 2) return 2;
      for (int i = 0; i < row_count; ++i) {
        uint32_t *to = rows[i].registers;
        if (fscanf(questions, "%x %x %x %x %x %x", &rows[i].leaf, &rows[i].subleaf, &to[0], &to[1],
                   &to[2], &to[3]) != 6)
          return 2;
      }
    } else if (strcmp(word, "each") == 0) {
      for (size_t i = 0; i < COUNT(tw_all); ++i) {
        reason.bytes[reason.used = 0] = 0;
        printf("%d %s\\n", cpu_runs(&tw_all[i]), reason.bytes);
      }
    } else {
      size_t size, row = 0;
      if (fscanf(questions, "%zu", &size) != 1) return 2;
      for (size_t i = 0; i < COUNT(tw_targets); ++i) {
        if (i < size && fscanf(questions, "%zu", &row) != 1) return 2;
        tw_targets[i] = tw_all[row]; /* the last one again, up to the end */
      }
      const struct tw_target *first = NULL;
      reason.bytes[reason.used = 0] = 0;
      printf("%s\\n", choose(NULL, words[2], &first) != NULL ? first->name : "-");
    }
  }
  return 0;
}
"""

Rows = dict[tuple[int, int], dict[str, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A CPU under an operating system, as CPUID (leaf, subleaf → register → bits) and XCR0 show it,
    and the features that code may use there."""

    name: str
    rows: Rows
    xcr0: int
    cpu: Cpu

    @property
    def command(self) -> str:
        lines = [f"cpu {self.xcr0:x} {len(self.rows)}"]
        for (leaf, subleaf), row in self.rows.items():
            values = " ".join(f"{row.get(register, 0):x}" for register in REGISTERS)
            lines.append(f"{leaf:x} {subleaf:x} {values}")
        return "\n".join(lines)


def recorded(name: str) -> Host:
    """A recorded CPU: its features at the places where CPUID shows them."""
    cpu = cpu_of(name)
    rows: Rows = {(0, 0): {"eax": 13}, (0x80000000, 0): {"eax": 0x80000008}}
    for feature in cpu.features:
        bit = load_features("x86_64")[feature].cpuid
        assert bit is not None
        row = rows.setdefault((bit.leaf, bit.subleaf), {})
        row[bit.register] = row.get(bit.register, 0) | 1 << bit.bit
    rows[1, 0]["ecx"] |= OSXSAVE
    # EAX of leaf 7 is its last subleaf.
    rows.setdefault((7, 0), {})["eax"] = 1
    xcr0 = 0x3 | 0xE6 * ("avx512f" in cpu.features) | 0x6 * ("avx" in cpu.features)
    return Host(name=name, rows=rows, xcr0=xcr0 | 0x60000 * ("amx_tile" in cpu.features), cpu=cpu)


def without(host: Host, label: str, *hidden: str, rows: Rows | None = None, xcr0: int = -1) -> Host:
    """The host with features that cannot be used, for a reason that `rows` or `xcr0` are."""
    return Host(
        name=f"{host.name}, {label}",
        rows=host.rows | (rows or {}),
        xcr0=host.xcr0 & xcr0,
        cpu=dataclasses.replace(host.cpu, features=host.cpu.features.difference(hidden)),
    )


def features_where(*, state: int = 0, leaf: int = -1, subleaf: int = -1) -> list[str]:
    """The features that need any of the state, or that stand in the leaf, or in its subleaf."""
    actual = []
    for row in load_features("x86_64").values():
        assert row.cpuid is not None
        matches = row.cpuid.leaf == leaf and subleaf in {-1, row.cpuid.subleaf}
        if row.xcr0 & state or matches:
            actual.append(row.name)
    return actual


def variants(host: Host) -> Iterator[Host]:
    """The same CPU under older systems and hypervisors, which hide things in other ways."""
    yield host
    for label, state in (("no AMX state", 0x60000), ("no AVX-512 state", 0xE0), ("no AVX", 0xE4)):
        yield without(host, label, *features_where(state=state), xcr0=~state)
    no_xsave = {**host.rows[1, 0], "ecx": host.rows[1, 0]["ecx"] & ~OSXSAVE}
    needing = features_where(state=ONES)
    yield without(host, "a system without XSAVE", *needing, rows={(1, 0): no_xsave})
    # What lies beyond the last leaf or subleaf has every bit set, to fool who does not look.
    full = dict.fromkeys(REGISTERS, ONES)
    leaves = {(7, 0): {**host.rows[7, 0], "eax": 0}, (7, 1): full}
    yield without(host, "leaf 7 alone", *features_where(leaf=7, subleaf=1), rows=leaves)
    last = {(0, 0): {"eax": 6}, (6, 0): full, (7, 0): full}
    high = [*features_where(leaf=7), *features_where(leaf=13)]
    yield without(host, "leaf 6 is the last", *high, rows=last)
    few = {(0x80000000, 0): {"eax": 0x80000000}, (13, 0): full, (0x80000001, 0): full}
    extended = [*features_where(leaf=0x80000001), *features_where(leaf=0x80000008)]
    yield without(host, "no extended leaf", *extended, rows=few)


HOSTS = tuple(recorded(name) for name in COMPLETE if cpu_of(name).architecture == "x86_64")


def tuned_for(plans: Iterable[KernelsPlan]) -> Tuned:
    """What a wheel for these plans says of itself, as far as a decision needs it."""
    libraries = (
        KernelLibrary(
            name=plan.target.local,
            target=plan.target.spec,
            file=plan.library,
            size=0,
            sha256="",
            plan_key=plan.key,
            required_features=plan.required,
            flags=plan.flags,
            kernels=(),
            admission={},
            registrations=(),
            stay_stock={},
            floors={},
            census={},
        )
        for plan in plans
    )
    return Tuned(
        key="",
        release="",
        compiler="",
        bazel="",
        libraries=tuple(libraries),
        source_file="",
        source_sha256="",
        stock_sha256="",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    """The compiled driver, and the plans whose targets it knows."""

    folder: Path
    plans: tuple[KernelsPlan, ...]

    def answers(self, questions: Iterable[str]) -> list[str]:
        question_file = self.folder / "questions"
        question_file.write_text("\n".join(questions), encoding="utf-8")
        env = {"PATH": os.environ["PATH"], "TENSORWRIGHT_TARGET": "off"}
        words = [self.folder / "driver", question_file, self.folder]
        return run(words, env=env, timeout_s=300).output.splitlines()


@pytest.fixture(scope="module", params=["clang-16", *later("gcc")])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Driver:
    compiler, folder = request.param, tmp_path_factory.mktemp("driver")
    plans = tuple(buildable({"gcc": "g++"}.get(compiler, compiler)))
    all_rows = render_header([build_dispatch_target(plan) for plan in plans], TEMPLATES)
    header = all_rows.replace("tw_targets[]", "tw_all[]")
    header += f"static struct tw_target tw_targets[{PLACES}];\n"
    for name, text in ((HEADER, header), ("cpuid.h", CPUID_H), ("immintrin.h", "")):
        (folder / name).write_text(text, encoding="utf-8")
    shims = (f"-I{folder}", f"-I{SOURCE.parent}", "-std=c11", "-Wall", "-Wno-unused-function")
    compile_c(compiler, DRIVER, folder / "driver", *shims, "-Werror", "-ldl")
    (folder / LIBRARY_FOLDER).mkdir()
    kernels = compile_c(compiler, KERNELS, folder / "kernels.so", "-shared", "-fPIC").read_bytes()
    for plan in plans:
        (folder / LIBRARY_FOLDER / plan.library).write_bytes(kernels)
    return Driver(folder=folder, plans=plans)


def test_each_target_on_each_cpu_runs_or_names_exactly_what_is_missing(driver: Driver) -> None:
    hosts = [variant for host in HOSTS for variant in variants(host)]
    answers = iter(driver.answers(f"{host.command}\neach" for host in hosts))
    counts = {True: 0, False: 0}
    for host, plan in itertools.product(hosts, driver.plans):
        absent = list_nearest_missing(tuned_for([plan]), host.cpu)
        needs = f"{plan.target.local} needs {', '.join(absent)}, which this CPU lacks"
        expected = f"0 {needs}" if absent else "1 "
        assert next(answers) == expected, (host.name, plan.target.spec)
        counts[not absent] += 1
    assert next(answers, None) is None
    assert len(driver.plans) >= 25
    assert min(counts.values()) > 1000


def fleets(plans: Sequence[KernelsPlan]) -> Iterator[tuple[KernelsPlan, ...]]:
    """Every pair in either order, many larger ones, and all targets as a real wheel has them."""
    yield from itertools.permutations(plans, 2)
    drawn = random.Random(20)  # noqa: S311  (the same fleets in every run)
    yield from (tuple(drawn.sample(plans, drawn.randint(3, 8))) for _ in range(300))
    yield build_fleet(plans).plans


def test_a_fleet_gives_each_cpu_the_first_target_that_it_runs(driver: Driver) -> None:
    numbers = {plan.target.spec: number for number, plan in enumerate(driver.plans)}
    wheels = list(fleets(driver.plans))
    rows = [" ".join(str(numbers[plan.target.spec]) for plan in wheel) for wheel in wheels]
    text = "\n".join(f"fleet {len(wheel)} {row}" for wheel, row in zip(wheels, rows, strict=True))
    answers = iter(driver.answers(f"{host.command}\n{text}" for host in HOSTS))
    facts = [tuned_for(wheel) for wheel in wheels]
    for host, tuned in itertools.product(HOSTS, facts):
        best = choose_build(tuned, host.cpu)
        assert next(answers) == ("-" if best is None else best.name), (host.name, tuned.targets)
    assert next(answers, None) is None
