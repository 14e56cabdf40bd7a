"""The options of the commands about indexes: each with its default and its help, once."""

from __future__ import annotations

from dataclasses import dataclass

from tfbuild.commands import DRY, PACKAGE, PYTHON
from tfbuild.option import option

_TRUST = "public keys (PEM files) and sigstore:IDENTITY@ISSUER, with commas between"


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishOptions:
    """The options of `invoke publish` as typed; an empty one means the default."""

    to: str = option("", "the index: a folder, or s3://bucket/prefix")
    upload: str = option("", "instead: the address of an index with an upload API")
    simple: str = option("", "with --upload: where that index has its simple pages")
    wheels: str = option(
        "", "paths with commas between; by default those of wheels/ that may be published"
    )
    comparison: str = option(
        "", "comparison.json files or folders that speak for them; by default reports/"
    )
    gate: bool = option(
        True,
        "ask for a verdict (--no-gate: publish without one, or against it: the page says so)",
    )
    near_sources: bool = option(
        False, "publish also what was compiled from other sources than the release's"
    )
    only_tuned: bool = option(False, "without the stock wheel and what TensorFlow depends on")
    dependencies: str = option("", "a folder that has those wheels, instead of pip fetching them")
    stock_wheel: str = option(
        "", "the stock wheel to compare with, or a folder with it; else it is fetched"
    )
    reindex: bool = option(
        False,
        "make the index anew from the wheels in it, all of whose bytes are read",
        old=("rebuild",),
    )
    variants: bool = option(
        False, "experimental: x86-64 level variants (PEP 825) in a tree of their own"
    )
    sign: str = option(
        "",
        "an ed25519 private key, a PEM file, or sigstore for an identity (not run yet: "
        "docs/signing.md): a signed provenance goes beside each wheel",
    )
    trust: str = option("", f"{_TRUST}: the index takes from now on only what they have signed")
    dry_run: bool = option(False, DRY)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    at: str = option("", "the folder of a published tree")
    port: str = option("", "by default 8000, or any that is free")
    trust: str = option("", f"{_TRUST}: only wheels that they have signed are handed out")


@dataclass(frozen=True, kw_only=True, slots=True)
class SnippetOptions:
    """The options of `invoke install-snippet`: what is installed and from where.

    `python` is a version such as 3.11.
    """

    at: str = option("", "the index: a folder, or the address that it is served at")
    version: str = option(
        "", "of TensorFlow, by default the newest there; with a local part for one wheel"
    )
    arch: str = option(
        "", "the target; by default the one that this CPU is (archspec cpu)", old=("target",)
    )
    package: str = option("", PACKAGE)
    python: str = option("3.11", PYTHON)
    trust: str = option("", f"{_TRUST}: with lines that check the wheel before it is installed")
