"""Options of the commands for package indexes, each with its default and help text."""

from __future__ import annotations

from dataclasses import dataclass

from tfbuild.commands import DRY, PACKAGE, PYTHON
from tfcore.option import option

_TRUST = "public keys (PEM), comma-separated"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishOptions:
    """The options of `invoke publish` as typed; an empty one means the default."""

    to: str = option("", "index to publish to: a folder or s3://bucket/prefix")
    upload: str = option("", "address of an index with an upload API, instead of --to")
    simple: str = option("", "with --upload: address of that index's simple API, which pip reads")
    wheels: str = option(
        "", "comma-separated paths of wheels (default: those in wheels/ that pass the checks)"
    )
    comparison: str = option(
        "", "comparison.json files or their folders, comma-separated (default: reports/)"
    )
    gate: bool = option(
        True,
        "require a comparison in which the wheel is not slower (--no-gate: publish anyway; the "
        "index page says so)",
    )
    near_sources: bool = option(
        False, "also publish wheels built from sources whose headers differ from the stock wheel's"
    )
    require_results: bool = option(
        False,
        "refuse a wheel unless selfcheck --results ran its fused ops in at least 600 random "
        "programs and found no wrong result",
    )
    only_tuned: bool = option(False, "exclude the stock wheel and the dependencies of TensorFlow")
    dependencies: str = option(
        "",
        "folder with the stock wheel and TensorFlow's dependencies, instead of downloads with pip",
    )
    stock_wheel: str = option(
        "", "stock wheel, or its folder, to audit wheels against (default: downloaded with pip)"
    )
    reindex: bool = option(
        False,
        "read every wheel in the index again, and rewrite the catalog and the pages",
        old=("rebuild",),
    )
    yank: str = option(
        "",
        "mark these wheels as yanked (PEP 592), so that only exact pins still install them: file "
        "names or PACKAGE==VERSION, comma-separated; needs --reason",
    )
    quarantine: str = option("", "take these wheels off all pages; needs --reason")
    restore: str = option("", "undo --yank or --quarantine for these wheels")
    reason: str = option("", "why the wheels are withdrawn, for users, in one line")
    variants: bool = option(
        False,
        "experimental: write variants (PEP 825) for x86-64 levels and Arm versions to variants/",
    )
    sign: str = option("", "sign wheels with this ed25519 private key (PEM)")
    trust: str = option(
        "", f"from now on accept only wheels signed by these keys in this index: {_TRUST}"
    )
    rebuilt_by: str = option(
        "", f"refuse a tuned wheel that none of these rebuilders has rebuilt: {_TRUST}"
    )
    renew: bool = option(False, "sign the catalog again, although nothing changed; needs --sign")
    dry_run: bool = option(False, DRY)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    at: str = option("", "folder of an index")
    port: str = option("", "port (default: 8000, or a free one if it is taken)")
    trust: str = option("", f"serve only wheels signed by one of these keys: {_TRUST}")


@dataclass(frozen=True, kw_only=True, slots=True)
class SnippetOptions:
    """The options of `invoke install-snippet`: what to install, and from where.

    `python` is a version such as 3.11.
    """

    at: str = option("", "folder or address of the index")
    version: str = option(
        "", "TensorFlow version (default: the newest); 2.14.1+skylake selects that tuned wheel"
    )
    arch: str = option(
        "",
        "target in the form that `archspec cpu` prints, for example skylake (default: that of this "
        "CPU)",
        old=("target",),
    )
    package: str = option("", PACKAGE)
    python: str = option("3.11", PYTHON)
    trust: str = option("", f"verify the wheel before installing: {_TRUST}")


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckIndexOptions:
    at: str = option("", "folder or address of the index")
    trust: str = option("", f"the keys that may sign the index: {_TRUST}")
    arch: str = option(
        "", "with an address: check the pages of this target (default: that of this CPU)"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckInstalledOptions:
    at: str = option("", "folder or address of the index")
    environment: str = option(
        "", "folder of the environment that has TensorFlow (default: that of python3)"
    )
    trust: str = option("", f"first verify that one of these keys signed the index: {_TRUST}")
    arch: str = option("", "choose a replacement for this target (default: that of this CPU)")
