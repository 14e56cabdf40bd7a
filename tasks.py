"""The front door: `invoke TASK`. Options are read, one function is called, errors become a line.

A line that cannot be read is refused by tfbuild.commandline.
"""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

from invoke import Collection, Context, Exit, task  # type: ignore[attr-defined]

Options = ParamSpec("Options")

ROOT = Path(__file__).resolve().parent
for folder in ("benchmarks", "wheels", "build"):
    if str(ROOT / folder) not in sys.path:
        sys.path.insert(0, str(ROOT / folder))

ARCH = (
    "a target (invoke targets), NAME+FEATURE+…, native, or several with commas between for one "
    "wheel; stock: as the stock wheel, the control"
)
JSON = "answer in JSON on standard output"
DRY = "say what would be done, and do nothing"
RELEASE = "a TensorFlow release (invoke releases); by default the newest whose sources can be had"
KERNELS = "hot, mini, all, or names of kernel sources and of ops with commas between"
PYTHON = "Python version of the wheel, such as 3.11"
PYTHONS = "Python version of the wheel; several with commas between, or all: a wheel for each"
PACKAGE = "the stock package; by default tensorflow-cpu, on aarch64 the one that has its wheels"
COMPILER = "clang-16, g++, … or clang@16.0.6 for one that need not be here (plan, render)"
SCOPE = "kernels: tuned kernels in the stock wheel; full: the whole tree"
PLAN_HELP = {
    "arch": ARCH,
    "release": RELEASE,
    "scope": SCOPE,
    "kernels": KERNELS,
    "without": "of the chosen kernels those that stay stock, with commas between",
    "python": PYTHON,
    "package": PACKAGE,
    "compiler": COMPILER,
    "lto": "link-time optimization (ThinLTO), for --scope full",
    "pgo": "profile-guided optimization, for --scope full: workloads, or a program to learn from",
    "selection": "selection.json of invoke select: its kernels with its flags, instead of "
    "--kernels; several with commas between, one per target",
    "flags": "compiler flags of kernels beside the target's, such as -O3 -mprefer-vector-width=256",
    "bf16": "let oneDNN round to bfloat16 on CPUs with AMX: faster, and other results",
    "trust-emulated": "take run-time defaults that were measured by emulation only",
    "evidence": "comparison.json files that speak for or against run-time defaults",
}
FOR = "a workload (sizes behind it, as in resnet50:image=64:batch=8), or a model of your own"
ARMS = "wheels with commas between: stock, tuned, a path, NAME==VERSION"
OWN = "instead: one of your own, PATH.py with build(), .keras, .h5 or a SavedModel"
PHASE = "train, or infer: requests"
NETS = "workloads with commas between, sizes behind them as in resnet50:image=64:batch=8"
VCPUS = "how many vCPUs; all that are usable by default"
PRICES = "a price book: its name, or a .toml or .csv file"
MACHINE = "what this machine is called in the price book"
MODE = "how it is paid for, if the book has it in several: on_demand, spot, reserved_1y, monthly"
REGION = "where it stands, if the book has it in several regions"
OUT = "the folder for samples and reports"
TRUST = "public keys, PEM files with commas between"
SEED = "of data, parameters and orders"
KERNEL_PLAN = ("arch", "release", "scope", "kernels", "python", "package", "compiler")
TREE_HELP = {
    "tree": "a checkout of TensorFlow to build, instead of the release's sources",
    "vendor": "build without a network from a folder that invoke vendor made",
    "remote-cache": "a shared cache: https://, http://, grpcs://, grpc:// or unix:",
    "remote-executor": "a cluster that compiles: grpcs:// or grpc://",
    "remote-instance": "the instance name that the service wants",
    "remote-headers": "a file of lines NAME: VALUE for the service; its secrets stay out of argv",
    "remote-ca": "the service's CA certificate, a PEM file",
    "remote-certificate": "our certificate for the service, a PEM file",
    "remote-key": "the key of that certificate, a PEM file",
    "remote-property": "NAME=VALUE,… that the cluster chooses its workers by",
    "remote-timeout": "seconds per call to the service; 60 by default",
    "remote-cache-read-only": "take results from the cache, put none into it",
    "define": "NAME=VALUE,… for Bazel's --define",
    "auto-fix": "apply the remedy of a failure that has one, and try again",
    "preflight": "look at the machine before the build (--no-preflight to leave out)",
}


def stop_on_signals() -> None:
    """SIGTERM, and SIGHUP without nohup, stop a task as Ctrl-C does: what it runs ends with it."""

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(128 + number)

    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_DFL:
            signal.signal(each, stop)


def command(
    help: dict[str, str] | None = None,  # noqa: A002  (Invoke's own name for it)
    positional: tuple[str, ...] = (),
) -> Callable[[Callable[Options, None]], Callable[Options, None]]:
    """A task whose errors become one line and an exit code of their own."""

    def decorate(function: Callable[Options, None]) -> Callable[Options, None]:
        @functools.wraps(function)
        def guarded(*args: Options.args, **options: Options.kwargs) -> None:
            from tfbuild.errors import TensorwrightError

            stop_on_signals()
            try:
                function(*args, **options)
                sys.stdout.flush()
            except TensorwrightError as error:
                raise Exit(f"error: {error}", error.exit_code) from None
            except KeyboardInterrupt as stop:
                code = stop.args[0] if stop.args else 128 + signal.SIGINT
                raise Exit("stopped. The next run continues where this one was", code) from None
            except BrokenPipeError:  # (of OSErrors the one that is the program's to tell)
                raise
            except OSError as error:
                where = f" ({error.filename})" if error.filename else ""
                raise Exit(f"error: {error.strerror or error}{where}", 18) from None

        made: Any = task(help=help or {}, positional=positional)(guarded)
        return made  # type: ignore[no-any-return]

    return decorate


def trained_by(pgo: str) -> str:
    """The program that --pgo names: our six workloads', or the user's own."""
    return str(ROOT / "benchmarks/tfbench/inside/training.py") if pgo == "workloads" else pgo


@command({"json": JSON})
def detect(_: Context, json: bool = False) -> None:
    """Say what this CPU is, what to build for it, and what the stock wheel leaves unused."""
    from tfbuild import listing

    print(listing.detected(as_json=json), end="")


@command({"json": JSON, "family": "x86_64 or aarch64; both by default"})
def targets(_: Context, family: str = "", json: bool = False) -> None:
    """List what --arch accepts."""
    from tfbuild import listing

    print(listing.targets(family or None, as_json=json), end="")


@command({"json": JSON})
def releases(_: Context, json: bool = False) -> None:
    """List what --release accepts, and what was verified of each."""
    from tfbuild import listing

    print(listing.releases(as_json=json), end="")


@command(
    PLAN_HELP | {"python": PYTHONS, "json": JSON, "jobs": "compiles at once, for the estimate"}
)
def plan(
    _: Context,
    arch: str = "native",
    release: str = "",
    scope: str = "kernels",
    kernels: str = "hot",
    without: str = "",
    python: str = "",
    package: str = "",
    compiler: str = "",
    lto: bool = False,
    pgo: str = "",
    selection: str = "",
    flags: str = "",
    bf16: bool = False,
    trust_emulated: bool = False,
    evidence: str = "",
    jobs: str = "",
    json: bool = False,
) -> None:
    """Resolve everything, do nothing: flags, compiler, sources, kernels, commands, estimates."""
    from tfbuild import front

    request = front.Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        without=without,
        python=python,
        package=package,
        compiler=compiler,
        lto=lto,
        pgo=trained_by(pgo),
        selection=selection,
        flags=flags,
        bf16=bf16,
        trust_emulated=trust_emulated,
        evidence=evidence,
    )
    print(front.describe_plan(request, jobs, as_json=json), end="")


@command(
    PLAN_HELP
    | {"out": "the folder to write to", "check": "compare with what is there, write nothing"}
)
def render(
    _: Context,
    arch: str = "native",
    release: str = "",
    scope: str = "kernels",
    kernels: str = "hot",
    without: str = "",
    python: str = "",
    package: str = "",
    compiler: str = "",
    lto: bool = False,
    pgo: str = "",
    selection: str = "",
    flags: str = "",
    bf16: bool = False,
    trust_emulated: bool = False,
    evidence: str = "",
    out: str = "",
    check: bool = False,
) -> None:
    """Write the Bazel workspace (kernels) or configuration (full) of a plan."""
    from tfbuild import front

    request = front.Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        without=without,
        python=python,
        package=package,
        compiler=compiler,
        lto=lto,
        pgo=trained_by(pgo),
        selection=selection,
        flags=flags,
        bf16=bf16,
        trust_emulated=trust_emulated,
        evidence=evidence,
    )
    print(front.render_plan(request, out, check=check))


@command(
    {name: PLAN_HELP[name] for name in (*KERNEL_PLAN, "lto")}
    | {"vcpus": "CPUs that the run lines give", "out": "the folder to write to"}
)
def containers(
    _: Context,
    arch: str = "native",
    release: str = "",
    scope: str = "kernels",
    kernels: str = "hot",
    python: str = "3.11",
    package: str = "",
    compiler: str = "",
    lto: bool = False,
    vcpus: str = "",
    out: str = "",
) -> None:
    """Write container files that build a plan's wheel, and that compare it."""
    from tfbuild import front

    request = front.Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        python=python,
        package=package,
        compiler=compiler,
        lto=lto,
    )
    print(front.write_containers(request, vcpus, out))


@command(
    PLAN_HELP
    | TREE_HELP
    | {
        "python": PYTHONS,
        "for": "instead of --kernels, what a program spends its time in: one of the workloads, "
        "or your own .py with build(), .keras, .h5 or SavedModel",
        "jobs": "compiles at once; by default what CPUs and memory allow",
        "source": "TensorFlow's sources: an archive, or for kernels a checkout",
        "stock-wheel": "the stock wheel, fetched elsewhere, or a folder that has it",
        "install": "install the compiler and Bazel from Debian's packages if they are missing",
        "keep-going": "a kernel that does not compile stays stock, the rest is built",
        "dry-run": DRY,
        "json": JSON,
    }
)
def build(
    _: Context,
    arch: str = "native",
    release: str = "",
    scope: str = "kernels",
    kernels: str = "hot",
    without: str = "",
    python: str = "",
    package: str = "",
    compiler: str = "",
    lto: bool = False,
    pgo: str = "",
    selection: str = "",
    flags: str = "",
    bf16: bool = False,
    trust_emulated: bool = False,
    evidence: str = "",
    for_: str = "",
    jobs: str = "",
    source: str = "",
    tree: str = "",
    vendor: str = "",
    remote_cache: str = "",
    remote_executor: str = "",
    remote_instance: str = "",
    remote_headers: str = "",
    remote_ca: str = "",
    remote_certificate: str = "",
    remote_key: str = "",
    remote_property: str = "",
    remote_timeout: str = "",
    remote_cache_read_only: bool = False,
    define: str = "",
    auto_fix: bool = False,
    preflight: bool = True,
    stock_wheel: str = "",
    install: bool = False,
    keep_going: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Make a tuned wheel in wheels/, from sources to the try in a real TensorFlow."""
    from tfbuild import front

    request = front.Request(
        arch=arch,
        release=release,
        scope=scope,
        kernels=kernels,
        without=without,
        python=python,
        package=package,
        compiler=compiler,
        lto=lto,
        pgo=trained_by(pgo),
        selection=selection,
        flags=flags,
        bf16=bf16,
        trust_emulated=trust_emulated,
        evidence=evidence,
    )
    wanted = front.Wanted(
        jobs=jobs,
        source=source,
        tree=tree,
        vendor=vendor,
        remote_cache=remote_cache,
        remote_executor=remote_executor,
        remote_instance=remote_instance,
        remote_headers=remote_headers,
        remote_ca=remote_ca,
        remote_certificate=remote_certificate,
        remote_key=remote_key,
        remote_property=remote_property,
        remote_timeout=remote_timeout,
        remote_cache_read_only=remote_cache_read_only,
        define=define,
        auto_fix=auto_fix,
        preflight=preflight,
    )
    if for_:
        from tfbench.kernels import front as programs

        if dry_run:
            print(programs.describe_for_program(for_, request), end="")
            return
        request = programs.for_program(for_, request)
    if dry_run:
        print(front.dry_run(request, wanted, as_json=json), end="")
        return
    built = front.build_wheel(
        request,
        wanted,
        stock_wheel=stock_wheel,
        keep_going=keep_going or bool(for_),  # nobody named the kernels
        install=install,
    )
    print(front.describe_built(built, as_json=json), end="")


@command(
    {name: PLAN_HELP[name] for name in ("arch", "release", "python", "package", "compiler")}
    | {
        "source": "TensorFlow's source archive, fetched elsewhere",
        "tree": TREE_HELP["tree"],
        "out": "the folder to fill; an unfinished one goes on",
        "dry-run": "list the archives that the tree declares, and do nothing",
        "json": JSON,
    }
)
def vendor(
    _: Context,
    arch: str = "native",
    release: str = "",
    python: str = "",
    package: str = "",
    compiler: str = "",
    source: str = "",
    tree: str = "",
    out: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Fetch all that a full build needs into one folder, for a build without a network."""
    from tfbuild import whole
    from tfbuild.planning.request import Request

    request = Request(
        arch=arch,
        release=release,
        scope="full",
        python=python,
        package=package,
        compiler=compiler,
    )
    wanted = whole.Wanted(source=source, tree=tree)
    if dry_run:
        print(whole.declared(request, wanted, as_json=json), end="")
        return
    print(whole.vendor(request, wanted, out, as_json=json), end="")


@command(
    {name: PLAN_HELP[name] for name in ("arch", "release", "python", "package", "compiler")}
    | {
        "budget": "minutes of work; the next run goes on",
        "jobs": "compiles at once; by default what CPUs and memory allow",
        "source": "TensorFlow's sources: an archive, or a checkout",
        "stock-wheel": "the stock wheel, fetched elsewhere",
    }
)
def survey(
    _: Context,
    arch: str = "native",
    release: str = "",
    python: str = "",
    package: str = "",
    compiler: str = "",
    budget: str = "60",
    jobs: str = "",
    source: str = "",
    stock_wheel: str = "",
) -> None:
    """Compile and try every kernel source of a release, and write the table of them."""
    from tfbuild import front

    request = front.Request(
        arch=arch,
        release=release,
        kernels="all",
        python=python,
        package=package,
        compiler=compiler,
    )
    wanted = front.Wanted(jobs=jobs, source=source)
    print(front.survey_kernels(request, wanted, budget, stock_wheel=stock_wheel))


@command(
    {
        "workloads": "names and sets (six, modern) with commas between; all are the six",
        "for": "instead: one workload, or your own: .py with build(), .keras, .h5 or SavedModel",
        "phase": f"{PHASE} of 1 and of 32 examples",
        "steps": "steps to look at",
        "out": "the file to write",
        "dry-run": DRY,
        "json": JSON,
    }
)
def profile(
    _: Context,
    workloads: str = "all",
    for_: str = "",
    phase: str = "train",
    steps: str = "20",
    out: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Say which ops, at which shapes, a step's time goes to on the stock wheel."""
    from tfbench.kernels import front

    wanted = front.ToProfile(workloads=workloads, program=for_, phase=phase, steps=steps, out=out)
    if dry_run:
        print(front.describe_profiling(wanted), end="")
        return
    _record, text = front.profile(wanted, as_json=json)
    print(text, end="")


@command(
    {
        "candidate": "the wheel whose kernels are timed; by default the newest that runs here",
        "profile": "a file that invoke profile wrote; by default that of the six workloads",
        "for": "instead: profile this first, a workload or your own .py, .keras, .h5, SavedModel",
        "phase": f"{PHASE} of 1 and of 32 examples, which are profiled first",
        "vcpus": "numbers of threads with commas between",
        "launches": "processes per arm, in the search and again in the confirmation",
        "rate": "the false discovery rate that is allowed, a share such as 0.05",
        "budget": "minutes",
        "out": "the folder for timings and selection; an unfinished one goes on",
        "seed": "of the order of launches, places and samples",
        "dry-run": DRY,
        "json": JSON,
    }
)
def select(
    _: Context,
    candidate: str = "",
    profile: str = "",
    for_: str = "",
    phase: str = "train",
    vcpus: str = "",
    launches: str = "6",
    rate: str = "0.05",
    budget: str = "",
    out: str = "",
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Time a wheel's kernels against the stock ones, and keep those that are faster."""
    from tfbench.kernels import front

    wanted = front.ToSelect(
        candidate=candidate,
        profile=profile,
        program=for_,
        phase=phase,
        vcpus=vcpus,
        launches=launches,
        rate=rate,
        budget=budget,
        seed=seed,
        out=out,
    )
    if dry_run:
        print(front.describe_selecting(wanted), end="")
        return
    _record, text = front.select(wanted, as_json=json)
    print(text, end="")


@command(
    {name: PLAN_HELP[name] for name in KERNEL_PLAN if name != "scope"}
    | {
        "compiler": "clang-16, g++, …; several with commas between are held against each other, "
        "and the best goes on",
        "variants": "flags to try beside the target's, with semicolons between; by default -O3, "
        "and -mno-avx512f for a CPU with AVX-512; -flto=thin optimizes in the link",
        "pgo": "try what the compiler learns from a run, too: workloads, or a program",
        "profile": "a file that invoke profile wrote; by default that of the six workloads",
        "vcpus": "numbers of threads with commas between",
        "launches": "processes per arm",
        "budget": "minutes; no variant begins that would end after them",
        "out": "the folder for timings and selection",
        "seed": "of the order of launches, places and samples",
        "dry-run": DRY,
        "json": JSON,
    }
)
def flags(
    _: Context,
    arch: str = "native",
    release: str = "",
    kernels: str = "hot",
    python: str = "",
    package: str = "",
    compiler: str = "",
    variants: str = "",
    pgo: str = "",
    profile: str = "",
    vcpus: str = "1",
    launches: str = "4",
    budget: str = "",
    out: str = "",
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Find the compiler, and the flags that each kernel source is fastest with."""
    from tfbench.kernels import flag_search
    from tfbuild.front import Request

    wanted = flag_search.ToSearch(
        request=Request(
            arch=arch,
            release=release,
            kernels=kernels,
            python=python,
            package=package,
            compiler=compiler,
        ),
        variants=variants,
        pgo=trained_by(pgo),
        profile=profile,
        vcpus=vcpus,
        launches=launches,
        budget=budget,
        seed=seed,
        out=out,
    )
    if dry_run:
        print(flag_search.describe(wanted), end="")
        return
    _record, text = flag_search.search(wanted, as_json=json)
    print(text, end="")


@command(
    {
        "workloads": f"{NETS}; resnet50 by default",
        "workload": OWN,
        "batches": "examples in a step, as in 16,32,64",
        "image": "pixels of a side, instead of the published ones",
        "augmentation": "off, on or both",
        "arms": ARMS,
        "vcpus": VCPUS,
        "steps": "timed steps of each process",
        "launches": "fresh processes per cell",
        "prices": PRICES,
        "machine": MACHINE,
        "mode": MODE,
        "region": REGION,
        "out": OUT,
        "seed": SEED,
        "dry-run": DRY,
        "json": JSON,
    }
)
def throughput(
    _: Context,
    workloads: str = "resnet50",
    workload: str = "",
    batches: str = "16,32,64",
    image: str = "",
    augmentation: str = "off",
    arms: str = "",
    vcpus: str = "",
    steps: str = "100",
    launches: str = "3",
    prices: str = "",
    machine: str = "",
    mode: str = "",
    region: str = "",
    out: str = "",
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Measure images per second of a net at each batch size, and per dollar."""
    from tfbench.throughput import command as throughputs

    wanted = throughputs.Wanted(
        workloads=workloads,
        workload=workload,
        batches=batches,
        image=image,
        augmentation=augmentation,
        arms=arms,
        vcpus=vcpus,
        steps=steps,
        launches=launches,
        prices=prices,
        machine=machine,
        mode=mode,
        region=region,
        out=out,
        seed=seed,
    )
    if dry_run:
        print(throughputs.describe(wanted), end="")
        return
    print(throughputs.THROUGHPUT.answer(wanted, as_json=json)[1], end="")


@command(
    {
        "workloads": NETS,
        "workload": OWN,
        "phases": "train, infer, preprocess",
        "inputs": "memory, cached, cold, or a disk's speed such as 40MB/s@500IOPS",
        "data": "a folder of your own images, in a folder per class, instead of generated ones",
        "image": "pixels of a side, instead of the published ones",
        "vcpus": "numbers of vCPUs, as in 1,2; by default 1, 2, 4 and so on",
        "memory": "limits in MB, as in 0,4000,1000; 0 is none",
        "seconds": "of timed steps in each process",
        "launches": "fresh processes per cell",
        "within": "percent of the fastest that count as as fast",
        "arms": "one wheel: stock, tuned, a path, NAME==VERSION",
        "prices": PRICES,
        "out": OUT,
        "seed": SEED,
        "dry-run": DRY,
        "json": JSON,
    }
)
def sizing(
    _: Context,
    workloads: str = "alexnet:batch=32,ptb_lstm_small",
    workload: str = "",
    phases: str = "train,infer,preprocess",
    inputs: str = "memory,cached,cold",
    data: str = "",
    image: str = "",
    vcpus: str = "",
    memory: str = "",
    seconds: str = "5",
    launches: str = "2",
    within: str = "5",
    arms: str = "",
    prices: str = "",
    out: str = "",
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Find the smallest machine that is as fast: vCPUs, memory and disk."""
    from tfbench.sizing import command as sizes

    wanted = sizes.Wanted(
        workloads=workloads,
        workload=workload,
        phases=phases,
        inputs=inputs,
        data=data,
        image=image,
        vcpus=vcpus,
        memory=memory,
        seconds=seconds,
        launches=launches,
        within=within,
        arms=arms,
        prices=prices,
        out=out,
        seed=seed,
    )
    if dry_run:
        print(sizes.describe(wanted), end="")
        return
    print(sizes.measure_sizing(wanted, as_json=json)[1], end="")


@command({"out": "the file to write", "read": "samples.jsonl files to show instead", "json": JSON})
def kit(_: Context, out: str = "", read: str = "", json: bool = False) -> None:
    """Write one file that times the workloads wherever Keras is, or read what it brought."""
    from tfbench.kit import command as kits

    print(kits.read_kit(read, as_json=json) if read else kits.write_kit(out), end="")


@command(
    {
        "strategies": "central, server, ring, one_device, hierarchical, nccl, independent; all by "
        "default",
        "workloads": "names with sizes, batch per device: alexnet:image=64:batch=16,…",
        "devices": "how many, with commas between; 1,2 by default",
        "kind": "of devices: cpu (logical ones), gpu, or auto for GPUs where there are any",
        "launches": "processes per cell; 3 by default",
        "seconds": "of timed steps per launch; 10 by default",
        "arms": "wheels with commas between; stock by default",
        "out": "the folder for results; a run that was stopped there goes on",
        "seed": "of the data, the parameters and the order of cells",
        "dry-run": DRY,
        "json": JSON,
    }
)
def strategies(
    _: Context,
    strategies: str = "",
    workloads: str = "",
    devices: str = "",
    kind: str = "auto",
    launches: str = "",
    seconds: str = "",
    arms: str = "",
    out: str = "",
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Measure where variables may live and how gradients meet, on several devices."""
    from tfbench.strategies import command as placing

    wanted = placing.Wanted(
        strategies=strategies,
        workloads=workloads,
        devices=devices,
        kind=kind,
        launches=launches,
        seconds=seconds,
        arms=arms,
        out=out,
        seed=seed,
    )
    if dry_run:
        print(placing.describe(wanted), end="")
        return
    print(placing.STRATEGIES.answer(wanted, as_json=json)[1], end="")


@command(
    {
        "for": FOR,
        "arms": ARMS,
        "device": "where the model is computed, such as GPU:0; the CPU by default",
        "epochs": "epochs of the script whose time is explained",
        "vcpus": VCPUS,
        "launches": "fresh processes per arm",
        "out": OUT,
        "seed": SEED,
        "dry-run": DRY,
        "json": JSON,
    }
)
def overhead(
    _: Context,
    for_: str = "iris_mlp",
    arms: str = "",
    device: str = "",
    epochs: str = "20",
    vcpus: str = "",
    launches: str = "5",
    out: str = "",
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Say what epochs, calls and steps of a tiny model cost, and how to be rid of the dispatch."""
    from tfbench.overhead import command as dispatching

    wanted = dispatching.Wanted(
        workload=for_,
        arms=arms,
        device=device,
        epochs=epochs,
        vcpus=vcpus,
        launches=launches,
        out=out,
        seed=seed,
    )
    if dry_run:
        print(dispatching.describe(wanted), end="")
        return
    print(dispatching.OVERHEAD.answer(wanted, as_json=json)[1], end="")


@command(
    {
        "for": "one of the workloads, or your own model: .py, .keras, .h5 or a SavedModel",
        "phase": f"{PHASE} of one example, or of as many as NAME:batch=32 says, from one client",
        "wheels": "wheels with commas between, the baseline first; by default stock, and tuned "
        "where there is one",
        "candidate": "the wheel that tuned means",
        "levers": "what to try, with commas between: wheel, onednn, intra, inter, malloc, bf16, "
        "steps_per_execution, jit_compile",
        "vcpus": "how many CPUs; by default all usable ones",
        "budget": "minutes",
        "allow-bf16": "also try bfloat16, which changes results",
        "out": "the folder for samples and results; an unfinished run there goes on",
        "seed": "of the data, the parameters and the order of samples",
        "dry-run": DRY,
        "json": JSON,
    }
)
def tune(
    _: Context,
    for_: str = "",
    phase: str = "train",
    wheels: str = "",
    candidate: str = "",
    levers: str = "",
    vcpus: str = "",
    budget: str = "20",
    allow_bf16: bool = False,
    out: str = "",
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Find the wheel and the settings that are fastest for one model, and confirm the gain."""
    from tfbench.tuning import command as tuning

    wanted = tuning.Wanted(
        workload=for_,
        phase=phase,
        wheels=wheels,
        candidate=candidate,
        levers=levers,
        vcpus=vcpus,
        budget=budget,
        allow_bf16=allow_bf16,
        out=out,
        seed=seed,
    )
    if dry_run:
        print(tuning.describe(wanted), end="")
        return
    _record, text = tuning.tune(wanted, as_json=json)
    print(text, end="")


@command(
    {
        "arms": "a line-up: ladder, levers, mallocs, control, a .toml file, or stock,tuned,… "
        "(stock:onednn=off, old=tensorflow-cpu==2.13.1, path.whl); by default stock,tuned",
        "candidate": "what tuned means; by default the newest wheel that this CPU can run",
        "baseline": "the first arm's wheel where --arms gives none: stock, a path, NAME==VERSION",
        "workloads": "names and sets (six, modern) with commas between; all are the six",
        "workload": OWN,
        "phase": f"{PHASE} of 1 and of 32 examples, from one client and from as many as vCPUs",
        "vcpus": "numbers of vCPUs with commas between; by default all usable ones",
        "out": "the folder for samples, comparison and reports; an unfinished run there goes on",
        "thorough": "until ±0.5%, five minutes per cell, and the phases of a whole training run",
        "budget": "seconds per cell, a workload at a number of vCPUs",
        "precision": "stop a cell when all intervals are as narrow as ± this many percent",
        "threshold": "the least gain or loss, in percent, that counts as one",
        "gate": "fail with exit code 31 where an arm is slower, 32 where there is no answer",
        "seed": "of the data, the parameters and the order of samples",
        "dry-run": DRY,
        "json": JSON,
    }
)
def compare(
    _: Context,
    arms: str = "",
    candidate: str = "",
    baseline: str = "stock",
    workloads: str = "all",
    workload: str = "",
    phase: str = "train",
    vcpus: str = "",
    out: str = "",
    thorough: bool = False,
    budget: str = "",
    precision: str = "",
    threshold: str = "0",
    gate: bool = False,
    seed: str = "1",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Run identical Keras models on each arm and say which is faster, and how sure that is."""
    from tfbench import front
    from tfbench.measuring.comparison import judge

    wanted = front.Wanted(
        arms=arms,
        candidate=candidate,
        baseline=baseline,
        workloads=workloads,
        workload=workload,
        phase=phase,
        vcpus=vcpus,
        out=out,
        thorough=thorough,
        budget=budget,
        precision=precision,
        threshold=threshold,
        seed=seed,
    )
    if dry_run:
        print(front.describe_comparison(wanted), end="")
        return
    comparison, text = front.compare_wheels(wanted, as_json=json)
    print(text, end="", flush=True)
    judge(comparison, gate=gate)


@command(
    {
        "quick": "a few minutes, with too few trials to prove anything",
        "out": "the folder for trials and result; a check that was stopped there goes on",
        "seed": "of the data, the parameters and the order of samples",
        "json": JSON,
    }
)
def selfcheck(
    _: Context, quick: bool = False, out: str = "", seed: str = "1", json: bool = False
) -> None:
    """Prove the harness on itself: stock against stock, and against known slowdowns (2 h)."""
    from tfbench import front

    check, text = front.check_harness(quick=quick, out=out, seed=seed, as_json=json)
    print(text, end="", flush=True)
    front.judge_harness(check)


@command(
    {
        "comparison": "comparison.json files or their folders, with commas between; by default the "
        "newest. Those of several machines of one kind become one report",
        "samples": "instead: the folder of a recorded run (run.json; samples.jsonl, or .jsonl.xz), "
        "computed again with the statistics of this version",
        "totals": "instead: a CSV of whole training runs, or 2017 for the article's",
        "logs": "instead: MODEL/BUILD/MACHINE=LOG.csv,… with the columns epoch and elapsed",
        "pyperf": "instead: two JSON files of pyperf, BASELINE,CANDIDATE",
        "out": "the folder for the report; by default beside the comparison",
        "prices": "price books with commas between: 2017-07-gce, 2018-04-riseml, .toml, .csv",
        "as-of": "the day of a CSV's prices, as 2026-11-21",
        "region": "of the prices",
        "mode": "of the prices: on_demand, spot, reserved_1y or monthly",
        "mix-dates": "let prices of different days stand together",
        "machines": "the machine of the book for each number of vCPUs: 1=NAME,2=NAME",
        "relative-to": "the run that time and cost are relative to: ARM or ARM@VCPUS",
        "build-usd": "what a build costs, for its break-even",
        "kit": "runs elsewhere, such as on a GPU: SAMPLES.jsonl=MACHINE,… that the kit measured",
        "runs-per-day": "how often the training runs, for the break-even in days",
        "line": "print one line, write nothing",
        "json": JSON,
    }
)
def report(
    _: Context,
    comparison: str = "",
    samples: str = "",
    totals: str = "",
    logs: str = "",
    pyperf: str = "",
    out: str = "",
    prices: str = "",
    as_of: str = "",
    region: str = "",
    mode: str = "",
    mix_dates: bool = False,
    machines: str = "",
    relative_to: str = "",
    build_usd: str = "",
    runs_per_day: str = "",
    kit: str = "",
    line: bool = False,
    json: bool = False,
) -> None:
    """Write the report of a comparison, with costs, as Markdown, HTML with plots, CSV, pyperf."""
    from tfbench.reports import reporting

    wanted = reporting.Wanted(
        comparison=comparison,
        samples=samples,
        totals=totals,
        logs=logs,
        pyperf=pyperf,
        out=out,
        prices=prices,
        as_of=as_of,
        region=region,
        mode=mode,
        mix_dates=mix_dates,
        machines=machines,
        relative_to=relative_to,
        build_usd=build_usd,
        runs_per_day=runs_per_day,
        kit=kit,
    )
    print(reporting.report_again(wanted, line=line, as_json=json), end="")


@command(
    {
        "wheel": "the path of a wheel",
        "stock": "the stock wheel to compare with; by default the pinned one, fetched if need be",
        "no-fetch": "do not compare it where the stock wheel is not in the cache",
        "rebuild": "make a wheel of kernels again of its tuned.json and compare the bytes; what "
        "this user has compiled before comes from the cache, with TENSORWRIGHT_CACHE=/an/empty/"
        "folder nothing does",
        "source": "for --rebuild: the sources, where they are not the release's own",
        "jobs": "for --rebuild: how many compiles at once",
        "dry-run": "for --rebuild: say what would be made and how long it takes, and do nothing",
        "json": JSON,
    },
    positional=("wheel",),
)
def audit(
    _: Context,
    wheel: str,
    stock: str = "",
    no_fetch: bool = False,
    rebuild: bool = False,
    source: str = "",
    jobs: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Say what a wheel really contains, and fail if that is not what it claims."""
    from tfbuild import front
    from tfbuild.auditing import audit as auditing
    from tfbuild.kernelbuild import proof

    if not rebuild:
        front.need_no_rebuild(source, jobs, dry_run=dry_run)
    if dry_run:
        print(front.would_rebuild(wheel, source, jobs, as_json=json), end="")
        return
    found, text = front.audit_wheel(wheel, stock, fetch=not no_fetch, as_json=json)
    if not (json and rebuild):
        print(text, end="", flush=True)
    made = front.rebuild_wheel(wheel, stock, source, jobs) if rebuild else None
    if made:
        print(front.describe_rebuilt(found, made, as_json=json), end="", flush=True)
    auditing.judge(found)
    if made:
        proof.judge(made)


@command(
    {"wheel": "the path of a wheel of tuned kernels", "dry-run": DRY, "json": JSON},
    positional=("wheel",),
)
def admit(_: Context, wheel: str, dry_run: bool = False, json: bool = False) -> None:
    """Run a finished wheel's kernels on this CPU against the stock ones, and record what came."""
    from tfbuild import front
    from tfbuild.packing import admitted

    found, text = front.admit_wheel(wheel, as_json=json, dry_run=dry_run)
    print(text, end="", flush=True)
    admitted.judge(wheel, found)


@command(
    {
        "to": "the index: a folder, or s3://bucket/prefix",
        "upload": "instead: the address of an index with an upload API",
        "simple": "with --upload: where that index has its simple pages",
        "wheels": "paths with commas between; by default those of wheels/ that may be published",
        "comparison": "comparison.json files or folders that speak for them; by default reports/",
        "no-gate": "publish without a verdict, or against it: the page says so",
        "near-sources": "publish also what was compiled from other sources than the release's",
        "only-tuned": "without the stock wheel and what TensorFlow depends on",
        "dependencies": "a folder that has those wheels, instead of pip fetching them",
        "stock-wheel": "the stock wheel to compare with, or a folder with it; else it is fetched",
        "rebuild": "make the index anew from the wheels in it, all of whose bytes are read",
        "variants": "experimental: x86-64 level variants (PEP 825) in a tree of their own",
        "sign": "an ed25519 private key, a PEM file: a signed provenance goes beside each wheel",
        "trust": TRUST + ": the index takes from now on only what they have signed",
        "dry-run": DRY,
        "json": JSON,
    }
)
def publish(
    _: Context,
    to: str = "",
    upload: str = "",
    simple: str = "",
    wheels: str = "",
    comparison: str = "",
    no_gate: bool = False,
    near_sources: bool = False,
    only_tuned: bool = False,
    dependencies: str = "",
    stock_wheel: str = "",
    rebuild: bool = False,
    variants: bool = False,
    sign: str = "",
    trust: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Put tuned wheels into a private index that hands every CPU the best one that it can run."""
    from tfwheels import front

    wanted = front.Wanted(
        to=to,
        upload=upload,
        simple=simple,
        wheels=wheels,
        comparison=comparison,
        gate=not no_gate,
        near_sources=near_sources,
        only_tuned=only_tuned,
        dependencies=dependencies,
        stock_wheel=stock_wheel,
        rebuild=rebuild,
        variants=variants,
        sign=sign,
        trust=trust,
        dry_run=dry_run,
    )
    print(front.publish_wheels(wanted, as_json=json), end="")


@command(
    {
        "at": "the folder of a published tree",
        "port": "by default 8000, or any that is free",
        "trust": TRUST + ": only wheels that they have signed are handed out",
    }
)
def serve(_: Context, at: str = "", port: str = "", trust: str = "") -> None:
    """Try a published tree on this machine, until Ctrl-C."""
    from tfwheels import serve as server

    server.serve(at, port, trust)


@command(
    {
        "at": "the index: a folder, or the address that it is served at",
        "version": "of TensorFlow, by default the newest there; with a local part for one wheel",
        "target": "by default the one that this CPU is (archspec cpu)",
        "package": PACKAGE,
        "python": PYTHON,
        "trust": TRUST + ": with lines that check the wheel before it is installed",
        "json": JSON,
    }
)
def install_snippet(
    _: Context,
    at: str = "",
    version: str = "",
    target: str = "",
    package: str = "",
    python: str = "3.11",
    trust: str = "",
    json: bool = False,
) -> None:
    """Print what installs from an index: pip, uv and requirements lines, pinned by hash."""
    from tfwheels import front

    print(
        front.describe_install(
            at,
            version=version,
            target=target,
            package=package,
            python=python,
            trust=trust,
            as_json=json,
        ),
        end="",
    )


@command(
    {
        "quick": "a small form of everything, 20 minutes on 2 vCPUs",
        "arms": ARMS,
        "out": OUT,
        "dry-run": DRY,
    }
)
def articles(
    _: Context, quick: bool = False, arms: str = "", out: str = "", dry_run: bool = False
) -> None:
    """Run the experiments of five articles here, and write one page of what came out."""
    from tfbench.articles import command as reproducing

    if dry_run:
        print(reproducing.describe(quick=quick, arms=arms, out=out), end="")
        return
    print(reproducing.measure_articles(quick=quick, arms=arms, out=out), end="")


@command(
    {
        "candidate": "the tuned wheel; by default the newest that this CPU can run",
        "rounds": "each imports every arm twice; 20 by default, about 4 minutes",
        "out": "the folder for startup.json; by default a new one in reports/",
        "json": JSON,
    }
)
def startup(
    _: Context, candidate: str = "", rounds: str = "", out: str = "", json: bool = False
) -> None:
    """Measure what the tuned wheel adds to the time of `import tensorflow`."""
    from tfbench.startup import command as starting

    found = starting.measure_startup(candidate=candidate, rounds=rounds, out=out, as_json=json)
    print(found[1], end="")


@command(
    {
        "data": "what is trained on: digits (scikit-learn's), mnist or cifar10; by default digits",
        "data-file": "where MNIST or CIFAR-10 lie, if they cannot be fetched: an .npz as Keras's "
        "mnist.npz, or cifar-10-python.tar.gz",
        "target": "the share of test examples to be told, 0.97 or 97%",
        "seeds": "trainings of each arm; by default 5",
        "epochs": "how long a training goes on without the target",
        "batch": "examples in a batch; by default the model's own",
        "arms": "wheels that train, as compare takes them; by default stock",
        "vcpus": "how many vCPUs; by default all usable ones",
        "seed": "the first training's seed, those of the others follow it; by default 1",
        "prices": "a price book: 2017-07-gce, 2018-04-riseml, or a .toml or .csv file",
        "machine": "the machine of the book that is paid for",
        "mode": MODE,
        "region": REGION,
        "import": "read a curve instead: a DAWNBench TSV, or a CSV with epoch,seconds,accuracy",
        "column": "the column of its accuracy, such as top5Accuracy",
        "article": "compute an article's times and costs again from its figures: 2018",
        "out": "the folder for accuracy.json and reports; an unfinished run there goes on",
        "dry-run": DRY,
        "json": JSON,
    }
)
def accuracy(
    _: Context,
    data: str = "",
    data_file: str = "",
    target: str = "",
    seeds: str = "",
    epochs: str = "",
    batch: str = "",
    arms: str = "",
    vcpus: str = "",
    seed: str = "",
    prices: str = "",
    machine: str = "",
    mode: str = "",
    region: str = "",
    import_: str = "",
    column: str = "",
    article: str = "",
    out: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Train real data to an accuracy: how long it takes, and what it costs."""
    from tfbench.accuracy import command as training

    wanted = training.Wanted(
        data=data,
        data_file=data_file,
        target=target,
        seeds=seeds,
        epochs=epochs,
        batch=batch,
        arms=arms,
        vcpus=vcpus,
        seed=seed,
        prices=prices,
        machine=machine,
        mode=mode,
        region=region,
        curve=import_,
        column=column,
        article=article,
        out=out,
    )
    if dry_run:
        print(training.describe(wanted), end="")
        return
    _record, text = training.accuracy(wanted, as_json=json)
    print(text, end="")


@command(
    {
        "tests": "what the project's own tests need, too",
        "wheel": "instead: a Python, an environment or a folder of packages where a tuned wheel is "
        "installed: which kernels run there, and why not its own",
        "json": JSON,
    }
)
def doctor(_: Context, tests: bool = False, wheel: str = "", json: bool = False) -> None:
    """Say what this machine lacks, and the commands that mend it."""
    from tfbuild import listing, settings

    if wheel:
        from tfbuild.cpus.cpu import read_cpu
        from tfbuild.tools import installed

        found, text = listing.kernels_of(wheel, as_json=json)
        print(text, end="", flush=True)
        installed.judge(found, read_cpu())
        return
    text, complete = listing.needs(settings.places(), tests=tests, as_json=json)
    print(text, end="")
    if not complete:
        raise Exit(code=15)


@command()
def quickstart(_: Context) -> None:
    """Set up, detect, build the hot kernels, compare two workloads, report."""
    from tfbench import front

    front.quickstart()


@command(
    {
        "all": "the second tier too: every model, cache and failure, 40 to 60 minutes on 2 cores",
    }
)
def test(_: Context, all: bool = False) -> None:  # noqa: A002
    """Run the project's own checks: lint, types, and the tests."""
    from tfbuild import checks

    checks.lint()
    checks.test(every=all)


@command()
def lint(_: Context) -> None:
    """Run ruff and mypy, warnings as errors."""
    from tfbuild import checks

    checks.lint()


def take_over() -> None:
    """Go on as our own program where Invoke's was started: that one refuses a line that it cannot
    read in few words and with exit code 1, and ends in a traceback when its reader goes away."""
    if "invoke.main" in sys.modules and "tfbuild.commandline" not in sys.modules:
        from tfbuild.commandline import CommandLine

        CommandLine().run()
        sys.exit()


take_over()
ns = Collection(
    *(detect, targets, releases, plan, render, containers, build, admit, vendor, survey, audit),
    *(profile, flags, select, tune, compare, startup, selfcheck, report),
    *(throughput, accuracy, sizing, strategies, overhead, articles, kit),
    *(publish, serve, install_snippet, doctor, quickstart, test, lint),
)
ns.configure({"run": {"echo": False}})
