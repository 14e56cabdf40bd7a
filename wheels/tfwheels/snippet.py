"""Install commands for pip and uv, pinned by version and hash.

They prevent dependency confusion. pip merges all configured indexes and takes the highest version
(pip's "pip install", --extra-index-url). So a command either pins every file by its hash, or names
one index and ignores pip's settings. uv takes a package from the first index that has it; the index
here is explicit: uv uses it only for the packages that are pinned to it (uv's "Package indexes").
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from simple_repository.model import File
from simple_repository.parser import parse_json_project_page

from tfbuild.tools.requirement import ExactRequirement
from tfbuild.upstream import lock_files, releases
from tfcore import settings
from tfcore.cpus.targets import Target, parse_target
from tfcore.errors import HostError, PublishError, UsageError, WheelError
from tfwheels import check_wheel
from tfwheels.commands import SnippetOptions
from tfwheels.dependencies import PinnedPackage, parse_lock
from tfwheels.entry import Entry
from tfwheels.keys import PublicKey, read_public_keys
from tfwheels.layout import JSON, PROVENANCE, build_folder_key, build_pool_key, is_sha256
from tfwheels.pages import list_page
from tfwheels.provenance import verify_provenance
from tfwheels.reader import IndexReader, find_folder, find_target, open_reader, parse_address
from tfwheels.remote import Credentials, check_url, is_localhost, open_index
from tfwheels.signed_catalog import read_catalog
from tfwheels.wheel_choice import explain_absence, find_missing_features

_ONE_INDEX = "PIP_CONFIG_FILE=/dev/null pip --isolated --disable-pip-version-check install"
"""pip without its settings, because they may name other indexes."""
_BY_HASH = "pip install --require-hashes --no-deps"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._+!-]+")
_NAME = "tensorwright"
_PROGRAM, _PEM = "check_wheel.py", "publisher.pem"
_CHECKS_WITH = "Python 3 and openssl 3"


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedWheel:
    """A wheel on a page."""

    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """What to install, and from where.

    `base` is the address of the index's tree, `target` names a page, `version` may omit the local
    part, `python` is a version such as 3.11.
    """

    base: str
    target: str
    package: str
    version: str
    python: str

    @property
    def page(self) -> str:
        return f"{self.base}/{build_folder_key(self.target)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """The commands and files that install the wheel `file` with the hash `sha256`.

    `requirements` and `pyproject` are texts of files; `pip`, `uv` and `fleet` are shell lines.
    `lock` names the file of tfbuild/upstream/locks to install first if the index does not contain
    TensorFlow's dependencies. `check` are shell lines that verify the signature of the key
    `signer`, and install with pip or uv; `checks_with` names the programs that they need. All
    three are empty if there are no trusted signers.
    """

    target: str
    page: str
    requirement: str
    file: str
    sha256: str
    lock: str
    pip: tuple[str, ...]
    requirements: str
    uv: tuple[str, ...]
    pyproject: str
    fleet: tuple[str, ...]
    notes: tuple[str, ...]
    signer: str = ""
    checks_with: str = ""
    check: tuple[str, ...] = ()


def resolve_snippet(options: SnippetOptions) -> Snippet:
    """Return the commands that install the version from the index.

    The default is the index's newest version, for this host's target. With trusted keys,
    one of them must have signed the wheel. Raises UsageError, TargetError,
    PublishError, and HostError for a target whose CPUs cannot run TensorFlow's wheels.
    """
    trusted = read_public_keys(options.trust)
    target = find_target(options.arch)
    folder = find_folder(options.at)
    newest = releases.list_kernel_releases()[-1]
    query = Query(
        base=parse_address(options.at) if folder is None else folder.resolve().as_uri(),
        target=target.name,
        package=canonicalize_name(
            options.package or releases.choose_cpu_package(newest, target.family)
        ),
        version=options.version,
        python=options.python,
    )
    if not trusted:
        return _resolve_version(query, functools.partial(_read_pages, query, folder))
    with open_reader(options.at) as reader:
        now, history = datetime.now(UTC), settings.paths().indexes
        signed, _ = read_catalog(reader, trusted, now=now, history=history)
        snippet = _resolve_version(query, functools.partial(_list_signed, signed.entries, target))
        return _add_check(snippet, query, reader, trusted)


def _resolve_version(
    query: Query, read_pages: Callable[[Sequence[str]], Mapping[str, Sequence[ListedWheel]]]
) -> Snippet:
    """Return the commands for the query, whose version may be empty.

    `read_pages` returns the wheels that the target's pages of these projects list.
    """
    if not query.version:
        wheels = read_pages([query.package]).get(query.package, ())
        query = dataclasses.replace(query, version=_find_newest(query, wheels))
    lock, needs = _find_lock(query)
    listed = read_pages([query.package, *(need.exact.name for need in needs)])
    return make_snippet(query, listed, needs, lock)


def _list_signed(
    entries: Sequence[Entry], target: Target, projects: Iterable[str]
) -> dict[str, tuple[ListedWheel, ...]]:
    """Return the wheels that the target's pages list, from a verified catalog.

    So a changed page has no effect.
    """
    return {
        name: tuple(
            ListedWheel(file=entry.file, sha256=entry.sha256)
            for entry in list_page([entry for entry in entries if entry.name == name], target)
            if entry.withdrawal is None
        )
        for name in projects
    }


def _add_check(
    snippet: Snippet, query: Query, reader: IndexReader, trusted: Sequence[PublicKey]
) -> Snippet:
    """Add the lines that verify the wheel to a snippet.

    Raises PublishError if no trusted signer signed it.
    """
    key = build_pool_key(query.package, snippet.file)
    data = reader.read(key + PROVENANCE)
    if data is None:
        raise PublishError(f"{snippet.file} is unsigned: {query.base} has no {key}{PROVENANCE}")
    signer_id = verify_provenance(data, snippet.file, snippet.sha256, trusted)
    (signer,) = (candidate for candidate in trusted if candidate.id == signer_id)
    return dataclasses.replace(
        snippet,
        signer=signer_id,
        checks_with=_CHECKS_WITH,
        check=tuple(_format_check(snippet, f"{query.base}/{quote(key)}", signer)),
    )


def _format_check(snippet: Snippet, url: str, signer: PublicKey) -> Iterator[str]:
    """Yield the shell lines that verify the wheel and then install it.

    They write the program and the signer's key to files.
    """
    yield _format_file(_PROGRAM, Path(check_wheel.__file__).read_text(encoding="utf-8"))
    yield _format_file(_PEM, signer.pem)
    check = shlex.join(("python3", _PROGRAM, url, _PEM, snippet.sha256))
    needs = f"{_BY_HASH} -r {shlex.quote(snippet.lock or 'requirements.txt')}"
    for tool in ("", "uv "):
        install = f"{tool}pip install --no-deps {shlex.quote(f'./{snippet.file}')}"
        yield f"{check} && {install} && {tool}{needs}"


def _format_file(name: str, text: str) -> str:
    return f"cat > {name} <<'END'\n{text}END"


def _read_pages(
    query: Query, folder: Path | None, projects: Sequence[str]
) -> Mapping[str, Sequence[ListedWheel]]:
    """Return the wheels of the projects that the target's pages list."""
    return (
        _read_folder_pages(folder, query.target, projects)
        if folder
        else _read_server_pages(query, projects)
    )


def make_snippet(
    query: Query,
    listed: Mapping[str, Sequence[ListedWheel]],
    needs: Sequence[PinnedPackage],
    lock: str = "",
) -> Snippet:
    """Build the snippet from the wheels that the pages list; `needs` are the packages of `lock`.

    Raises UsageError if the page has no such wheel, HostError if the target's CPUs can run none.
    """
    wheel = _choose_wheel(query, listed.get(query.package, ()))
    version = parse_wheel_filename(wheel.file)[1]
    requirement = f"{query.package}=={version}"
    carried = [_select_hashes(package, listed.get(package.exact.name, ())) for package in needs]
    all_hashed = bool(needs) and all(package.sha256s for package in carried)
    pinned = PinnedPackage(
        exact=ExactRequirement(name=query.package, version=str(version)),
        sha256s=frozenset((wheel.sha256,)),
    )
    before = () if all_hashed or not lock else (f"{_BY_HASH} -r {shlex.quote(lock)}",)
    alone = "" if all_hashed else "--no-deps "
    pages = f"{query.base}/{build_folder_key()}$(archspec cpu)/"
    fleet = f"{_ONE_INDEX} {alone}--index-url \"{pages}\" '{query.package}=={version.public}'"
    return Snippet(
        target=query.target,
        page=query.page,
        requirement=requirement,
        file=wheel.file,
        sha256=wheel.sha256,
        lock="" if all_hashed else lock,
        pip=(*before, f"{_ONE_INDEX} {alone}--index-url {query.page} '{requirement}'"),
        requirements=_format_requirements(query.page, [pinned, *(carried if all_hashed else ())]),
        uv=tuple(f"uv {command}" for command in (*before, f"{_BY_HASH} -r requirements.txt")),
        pyproject=_format_pyproject(query, requirement),
        fleet=(*before, fleet),
        notes=tuple(_list_notes(query, carried, all_hashed=all_hashed, lock=lock)),
    )


def describe(snippet: Snippet) -> str:
    """Format the snippet for users to copy."""
    parts = {
        "pip, without its settings, which may name other indexes": "\n".join(snippet.pip),
        f"requirements.txt, for {_BY_HASH} -r requirements.txt": snippet.requirements,
        "uv, with the same requirements.txt": "\n".join(snippet.uv),
        "pyproject.toml of a uv project": snippet.pyproject,
        "every host, each with the wheel for its CPU": "\n".join(snippet.fleet),
    }
    if snippet.check:
        parts |= {
            f"verify that key {snippet.signer} signed the wheel (needs "
            f"{snippet.checks_with}), then install it with pip or uv, with the same "
            "requirements.txt": "\n".join(snippet.check)
        }
    texts = [f"# {title}\n{text.strip()}\n" for title, text in parts.items()]
    return "\n".join((*texts, *(f"# {note}" for note in snippet.notes))).rstrip() + "\n"


def _find_newest(query: Query, listed: Iterable[ListedWheel]) -> str:
    """Return the newest public version of a wheel that fits.

    Raises UsageError, or HostError as `_require_baseline` does, if none fits.
    """
    versions = [
        parse_wheel_filename(wheel.file)[1] for wheel in listed if _is_fitting(query, wheel)
    ]
    if not versions:
        _require_baseline(query)
        raise UsageError(
            f"{query.page} has no wheel of {query.package} for Python {query.python}",
            hint="Use another --package, --python or --arch",
        )
    return max(versions).public


def _is_fitting(query: Query, listed_wheel: ListedWheel) -> bool:
    """Return whether a wheel is for the Python and the target's machine.

    An index from an older version may list a stock wheel that the target's CPUs cannot run.
    """
    tag, target = releases.format_python_tag(query.python), parse_target(query.target)
    _, version, _, tags = parse_wheel_filename(listed_wheel.file)
    stock = query.package in releases.CPU_PACKAGES and version.local is None
    return not (stock and find_missing_features(target)) and any(
        t.interpreter == tag and t.platform.endswith(f"_{target.family}") for t in tags
    )


def _require_baseline(query: Query) -> None:
    """Raise HostError if the page lists no TensorFlow because the target's CPUs cannot run it."""
    reason = (
        explain_absence(parse_target(query.target))
        if query.package in releases.CPU_PACKAGES
        else ""
    )
    if reason:
        raise HostError(f"{query.page} lists no {query.package} for its CPUs: {reason}")


def _choose_wheel(query: Query, listed: Iterable[ListedWheel]) -> ListedWheel:
    """Return the wheel of the version for the Python and the target's machine.

    Raises UsageError unless there is exactly one.
    """
    try:
        version = Version(query.version)
    except ValueError:
        raise UsageError(f"{query.version!r} is not a version") from None
    listed = tuple(listed)
    if not any(_is_fitting(query, wheel) for wheel in listed):
        _require_baseline(query)
    matches, versions = [], set()
    for wheel in listed:
        _, listed_version, _, tags = parse_wheel_filename(wheel.file)
        versions.add(f"{listed_version} ({', '.join(sorted({t.interpreter for t in tags}))})")
        if _is_fitting(query, wheel) and version in {
            listed_version,
            Version(listed_version.public),
        }:
            matches.append(wheel)
    if len(matches) != 1:
        available = ", ".join(sorted(versions)) or "nothing"
        raise UsageError(
            f"{query.page} has {len(matches) or 'no'} wheels of {query.package} {query.version} "
            f"for Python {query.python}",
            hint=f"It lists {available}",
        )
    return matches[0]


def _select_hashes(need: PinnedPackage, listed: Iterable[ListedWheel]) -> PinnedPackage:
    """Return the package with the hashes of those of its files that the index has."""
    available = frozenset(wheel.sha256 for wheel in listed)
    return PinnedPackage(exact=need.exact, sha256s=need.sha256s & available)


def _format_requirements(page: str, pinned: Iterable[PinnedPackage]) -> str:
    lines = [
        f"{package.exact}"
        + "".join(f" --hash=sha256:{sha256}" for sha256 in sorted(package.sha256s))
        for package in pinned
    ]
    return "\n".join((f"--index-url {page}", "--only-binary :all:", *lines)) + "\n"


def _format_pyproject(query: Query, requirement: str) -> str:
    return (
        "[project]\n"
        f"dependencies = [{json.dumps(requirement)}]\n\n"
        "[tool.uv.sources]\n"
        f'{query.package} = {{ index = "{_NAME}" }}\n\n'
        "[[tool.uv.index]]\n"
        f'name = "{_NAME}"\n'
        f"url = {json.dumps(query.page)}\n"
        "explicit = true\n"
    )


def _list_notes(
    query: Query, carried: Iterable[PinnedPackage], *, all_hashed: bool, lock: str
) -> Iterator[str]:
    absent = [str(package.exact) for package in carried if not package.sha256s]
    if not all_hashed and not lock:
        yield "no lock file for this release: install the dependencies of TensorFlow first"
    elif absent:
        shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if absent[3:] else "")
        yield f"the index lacks {shown}: they come from your own index, by the hashes of {lock}"
        yield f"copy {lock} to the host from build/tfbuild/upstream/locks"
    parts = check_url(query.base, "--at") if query.base.startswith("http") else None
    if parts and parts.scheme == "http" and not is_localhost(parts):
        yield "pip refuses http:// on another machine: serve the index over https://"


def _find_lock(query: Query) -> tuple[str, tuple[PinnedPackage, ...]]:
    """Return the name and the packages of the lock for the release; empty if there is none."""
    tag, machine = releases.format_python_tag(query.python), parse_target(query.target).family
    try:
        version = Version(query.version).public
    except ValueError:  # (_choose_wheel raises the error)
        return "", ()
    with contextlib.suppress(WheelError):
        stock = releases.find_stock_wheel(query.package, version, tag, machine)
        if stock is not None:
            return f"{stock.version}.txt", parse_lock(lock_files.load_requirements(stock))
    return "", ()


def _read_folder_pages(
    folder: Path, target: str, projects: Iterable[str]
) -> dict[str, tuple[ListedWheel, ...]]:
    pages = {}
    for project in projects:
        path = folder / build_folder_key(target, project) / JSON
        if path.is_file():
            try:
                files = parse_json_project_page(path.read_text(encoding="utf-8")).files
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise PublishError(f"{path} is not a page of an index ({error!r})") from error
            pages[project] = tuple(_list_wheels(files, str(path)))
    return pages


def _read_server_pages(query: Query, projects: Iterable[str]) -> dict[str, tuple[ListedWheel, ...]]:
    """Read the pages without upload credentials; requests uses netrc by itself."""
    with open_index(query.base, query.page, Credentials()) as index:
        return {
            project: tuple(_list_wheels(index.read(project).values(), f"{index.pages}{project}/"))
            for project in projects
        }


def _list_wheels(files: Iterable[File], page: str) -> Iterator[ListedWheel]:
    """Yield the wheels that an installer can install by hash.

    Names and hashes become parts of commands. Raises PublishError for those that are none.
    """
    for file in files:
        name: object = file.filename
        hashes: object = file.hashes
        if not isinstance(name, str) or not isinstance(hashes, dict):
            raise PublishError(f"{page} is not a page of an index (a file has no name or hashes)")
        if not _is_wheel(name) or "sha256" not in hashes or file.yanked:
            continue
        sha256 = hashes["sha256"]
        if not is_sha256(sha256):
            raise PublishError(f"{page} is not a page of an index ({name} has no valid SHA-256)")
        yield ListedWheel(file=name, sha256=sha256)


def _is_wheel(name: str) -> bool:
    try:
        return bool(parse_wheel_filename(name)) and _PLAIN_NAME.fullmatch(name) is not None
    except ValueError:
        return False
