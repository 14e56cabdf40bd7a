"""Lines that install what a target's page lists, for pip and uv, pinned by version and hash.

None of them is open to dependency confusion. pip merges all indexes that it knows, also those of
its own settings, and takes the highest version (pip's "pip install", --extra-index-url). So a line
either pins every file by its hash, or names one index and shuts the settings out. uv takes a
package from the first index that has it; the one here is explicit: it gives what is pinned to it
and nothing else (uv's "Package indexes").
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from simple_repository.model import File
from simple_repository.parser import parse_json_project_page

from tfbuild.cpus.cpu import read_cpu
from tfbuild.cpus.targets import match_cpu, parse_target
from tfbuild.errors import HostError, PublishError, UsageError, WheelError
from tfbuild.tools.requirement import ExactRequirement
from tfbuild.upstream import locked, releases
from tfwheels import check_wheel
from tfwheels.choosing import stock_lacks, why_without
from tfwheels.commands import SnippetOptions
from tfwheels.dependencies import Pinned, read_lock
from tfwheels.folder import Folder
from tfwheels.identities import Identity, Signer, described
from tfwheels.layout import JSON, PROVENANCE, folder_key, pool_key
from tfwheels.provenance import signed_by
from tfwheels.remote import Credentials, check_url, is_here, open_index
from tfwheels.trust import read_trusted

_ONE_INDEX = "PIP_CONFIG_FILE=/dev/null pip --isolated --disable-pip-version-check install"
"""pip without its settings: they may name other indexes, which it would ask too."""
_BY_HASH = "pip install --require-hashes --no-deps"
_PLAIN_URL = re.compile(r"[A-Za-z0-9:/.%_~+\[\]-]+")
_NAME = "tensorwright"
_PROGRAM, _PEM = "check_wheel.py", "publisher.pem"
_WITH_OPENSSL = "Python 3 and openssl 3"
_WITH_SIGSTORE = "Python 3.10 and its package sigstore"


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedWheel:
    """A wheel on a page."""

    file: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Query:
    """`base` is the address of the index's tree, `target` names a page, `version` may leave the
    local part to the page, `python` is as 3.11."""

    base: str
    target: str
    package: str
    version: str
    python: str

    @property
    def page(self) -> str:
        return f"{self.base}/{folder_key(self.target)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """`file` is the wheel that all of it installs, by `sha256`. `requirements` and `pyproject` are
    texts of files, `pip`, `uv` and `fleet` lines of a shell. `lock` names the file of
    tfbuild/upstream/locks that is installed first where the index does not carry what TensorFlow
    depends on. `check` are lines that install with pip, and with uv, what `signer`, a key or an
    identity, has signed; `checks_with` says what they need. Where nobody is trusted there are none.
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


def install_snippet(options: SnippetOptions) -> Snippet:
    """What installs the version from the index; by default the newest that it has, of this host's
    target. With trusted keys or identities, one of them has signed the wheel. Raises UsageError,
    TargetError, PublishError, ToolError, and HostError for a target that TensorFlow's wheels would
    kill."""
    trusted = read_trusted(options.trust)
    chosen = parse_target(options.arch) if options.arch else match_cpu(read_cpu()).best
    folder = Path(options.at) if "://" not in options.at else None
    newest = releases.with_kernels()[-1]
    wanted = Query(
        base=_base(options.at, folder),
        target=chosen.name,
        package=canonicalize_name(
            options.package or releases.choose_cpu_package(newest, chosen.family)
        ),
        version=options.version,
        python=options.python,
    )
    if not wanted.version:
        own = _read_pages(wanted, folder, [wanted.package]).get(wanted.package, ())
        wanted = dataclasses.replace(wanted, version=_newest(wanted, own))
    lock, needs = _locked(wanted)
    listed = _read_pages(wanted, folder, [wanted.package, *(each.exact.name for each in needs)])
    made = make_snippet(wanted, listed, needs, lock)
    return _checked(made, wanted, folder, trusted) if trusted else made


def _checked(
    made: Snippet, wanted: Query, folder: Path | None, trusted: Sequence[Signer]
) -> Snippet:
    """With the lines that check its wheel. Raises PublishError where nobody trusted signed it."""
    key = pool_key(wanted.package, made.file)
    data = _read_beside(wanted, folder, key + PROVENANCE)
    if data is None:
        raise PublishError(f"{made.file} is unsigned: {wanted.base} has no {key}{PROVENANCE}")
    who = signed_by(data, made.file, made.sha256, trusted)
    (signer,) = (each for each in trusted if each.id == who)
    return dataclasses.replace(
        made,
        signer=who,
        checks_with=_WITH_SIGSTORE if isinstance(signer, Identity) else _WITH_OPENSSL,
        check=tuple(_check_lines(made, f"{wanted.base}/{quote(key)}", signer)),
    )


def _read_beside(wanted: Query, folder: Path | None, key: str) -> bytes | None:
    if folder is not None:
        return Folder(root=folder).read(key)
    with open_index(wanted.base, wanted.page, Credentials()) as index:
        found = index.get(f"{wanted.base}/{quote(key)}")
        return found.content if found is not None else None


def _check_lines(made: Snippet, url: str, signer: Signer) -> Iterator[str]:
    """Lines of a shell: the program as a file, the key as another, if it is one, then the check
    before each installer."""
    yield _as_file(_PROGRAM, Path(check_wheel.__file__).read_text(encoding="utf-8"))
    if isinstance(signer, Identity):
        whose: tuple[str, ...] = (signer.name, signer.issuer)
    else:
        yield _as_file(_PEM, signer.pem)
        whose = (_PEM,)
    check = shlex.join(("python3", _PROGRAM, url, *whose))
    needs = f"{_BY_HASH} -r {shlex.quote(made.lock or 'requirements.txt')}"
    for tool in ("", "uv "):
        own = f"{tool}pip install --no-deps {shlex.quote(f'./{made.file}')}"
        yield f"{check} && {own} && {tool}{needs}"


def _as_file(name: str, text: str) -> str:
    return f"cat > {name} <<'END'\n{text}END"


def _read_pages(
    wanted: Query, folder: Path | None, projects: Sequence[str]
) -> Mapping[str, Sequence[ListedWheel]]:
    """What the target's pages list of the projects."""
    return _on_disk(folder, wanted.target, projects) if folder else _on_server(wanted, projects)


def make_snippet(
    wanted: Query,
    listed: Mapping[str, Sequence[ListedWheel]],
    needs: Sequence[Pinned],
    lock: str = "",
) -> Snippet:
    """The snippet for what the pages of the projects list; `needs` is what `lock` pins. Raises
    UsageError when the page has no such wheel, HostError when its CPUs could run none."""
    wheel = _pick(wanted, listed.get(wanted.package, ()))
    version = parse_wheel_filename(wheel.file)[1]
    requirement = f"{wanted.package}=={version}"
    carried = [_carried(each, listed.get(each.exact.name, ())) for each in needs]
    all_hashed = bool(needs) and all(each.sha256s for each in carried)
    own = Pinned(
        exact=ExactRequirement(name=wanted.package, version=str(version)),
        sha256s=frozenset((wheel.sha256,)),
    )
    before = () if all_hashed or not lock else (f"{_BY_HASH} -r {shlex.quote(lock)}",)
    alone = "" if all_hashed else "--no-deps "
    pages = f"{wanted.base}/{folder_key()}$(archspec cpu)/"
    fleet = f"{_ONE_INDEX} {alone}--index-url \"{pages}\" '{wanted.package}=={version.public}'"
    return Snippet(
        target=wanted.target,
        page=wanted.page,
        requirement=requirement,
        file=wheel.file,
        sha256=wheel.sha256,
        lock="" if all_hashed else lock,
        pip=(*before, f"{_ONE_INDEX} {alone}--index-url {wanted.page} '{requirement}'"),
        requirements=_requirements(wanted.page, [own, *(carried if all_hashed else ())]),
        uv=tuple(f"uv {each}" for each in (*before, f"{_BY_HASH} -r requirements.txt")),
        pyproject=_pyproject(wanted, requirement),
        fleet=(*before, fleet),
        notes=tuple(_notes(wanted, carried, all_hashed=all_hashed, lock=lock)),
    )


def describe(snippet: Snippet) -> str:
    """All of it, as a person copies it."""
    parts = {
        "pip, without its settings: they may name other indexes": "\n".join(snippet.pip),
        f"requirements.txt, for {_BY_HASH} -r requirements.txt": snippet.requirements,
        "uv, with the same requirements.txt": "\n".join(snippet.uv),
        "pyproject.toml of a uv project": snippet.pyproject,
        "every host of a fleet, each with its own wheel": "\n".join(snippet.fleet),
    }
    if snippet.check:
        parts |= {
            f"check first, with {snippet.checks_with}, that {described(snippet.signer)} signed the "
            "wheel (the same requirements.txt): pip, or uv": "\n".join(snippet.check)
        }
    texts = [f"# {title}\n{text.strip()}\n" for title, text in parts.items()]
    return "\n".join((*texts, *(f"# {note}" for note in snippet.notes))).rstrip() + "\n"


def _newest(wanted: Query, listed: Iterable[ListedWheel]) -> str:
    """The newest public version of a wheel that fits."""
    seen = [parse_wheel_filename(each.file)[1] for each in listed if _fits(wanted, each)]
    if not seen:
        _need_baseline(wanted)
        raise UsageError(
            f"{wanted.page} has no wheel of {wanted.package} for Python {wanted.python}",
            hint="Name another --package, --python or --arch",
        )
    return max(seen).public


def _fits(wanted: Query, each: ListedWheel) -> bool:
    """Whether a wheel is for the Python and the target's machine. The stock one of an index that
    was published by an older version may stand where it would kill."""
    tag, target = releases.format_python_tag(wanted.python), parse_target(wanted.target)
    _, version, _, tags = parse_wheel_filename(each.file)
    stock = wanted.package in releases.CPU_PACKAGES and version.local is None
    return not (stock and stock_lacks(target)) and any(
        t.interpreter == tag and t.platform.endswith(f"_{target.family}") for t in tags
    )


def _need_baseline(wanted: Query) -> None:
    """Raises HostError where the page lists no TensorFlow since its CPUs could not run it."""
    why = (
        why_without(parse_target(wanted.target)) if wanted.package in releases.CPU_PACKAGES else ""
    )
    if why:
        raise HostError(f"{wanted.page} lists no {wanted.package} that its CPUs run: {why}")


def _pick(wanted: Query, listed: Iterable[ListedWheel]) -> ListedWheel:
    """The wheel of the version for the Python and the target's machine."""
    try:
        version = Version(wanted.version)
    except ValueError:
        raise UsageError(f"{wanted.version!r} is no version") from None
    listed = tuple(listed)
    if not any(_fits(wanted, each) for each in listed):
        _need_baseline(wanted)
    found, versions = [], set()
    for each in listed:
        _, seen, _, tags = parse_wheel_filename(each.file)
        versions.add(f"{seen} ({', '.join(sorted({t.interpreter for t in tags}))})")
        if _fits(wanted, each) and version in {seen, Version(seen.public)}:
            found.append(each)
    if len(found) != 1:
        others = ", ".join(sorted(versions)) or "nothing"
        raise UsageError(
            f"{wanted.page} has {len(found) or 'no'} wheels of {wanted.package} {wanted.version} "
            f"for Python {wanted.python}",
            hint=f"It lists {others} of it",
        )
    return found[0]


def _carried(need: Pinned, listed: Iterable[ListedWheel]) -> Pinned:
    """The need with the hashes of those of its files that the index has."""
    there = frozenset(each.sha256 for each in listed)
    return Pinned(exact=need.exact, sha256s=need.sha256s & there)


def _requirements(page: str, pinned: Iterable[Pinned]) -> str:
    lines = [
        f"{each.exact}" + "".join(f" --hash=sha256:{sha256}" for sha256 in sorted(each.sha256s))
        for each in pinned
    ]
    return "\n".join((f"--index-url {page}", "--only-binary :all:", *lines)) + "\n"


def _pyproject(wanted: Query, requirement: str) -> str:
    return (
        "[project]\n"
        f"dependencies = [{json.dumps(requirement)}]\n\n"
        "[tool.uv.sources]\n"
        f'{wanted.package} = {{ index = "{_NAME}" }}\n\n'
        "[[tool.uv.index]]\n"
        f'name = "{_NAME}"\n'
        f"url = {json.dumps(wanted.page)}\n"
        "explicit = true\n"
    )


def _notes(
    wanted: Query, carried: Iterable[Pinned], *, all_hashed: bool, lock: str
) -> Iterator[str]:
    absent = [str(each.exact) for each in carried if not each.sha256s]
    if not all_hashed and not lock:
        yield "what TensorFlow depends on is locked for no such release: install it yourself, first"
    elif absent:
        shown = ", ".join(absent[:3]) + (f" and {len(absent) - 3} more" if absent[3:] else "")
        yield f"the index does not carry {shown}: they come from your own, by the hashes of {lock}"
        yield f"{lock} is in build/tfbuild/upstream/locks: take it along"
    parts = check_url(wanted.base, "--at") if wanted.base.startswith("http") else None
    if parts and parts.scheme == "http" and not is_here(parts):
        yield "pip takes nothing from http:// on another machine: serve the index with https://"


def _base(at: str, folder: Path | None) -> str:
    """The address without a slash at its end. Raises UsageError for what a shell would change."""
    if folder is not None:
        if not (folder / folder_key()).is_dir():
            raise UsageError(f"{at} holds no published tree: it has no {folder_key()}")
        return folder.resolve().as_uri()
    check_url(at, "--at")
    if not _PLAIN_URL.fullmatch(at):
        raise UsageError("--at has an address with characters that a shell would change")
    return at.rstrip("/")


def _locked(wanted: Query) -> tuple[str, tuple[Pinned, ...]]:
    """The lock that is shipped for the release, and what it pins; nothing where there is none."""
    tag, machine = releases.format_python_tag(wanted.python), parse_target(wanted.target).family
    try:
        version = Version(wanted.version).public
    except ValueError:  # (of which _pick says so)
        return "", ()
    with contextlib.suppress(WheelError):
        stock = releases.find_stock_wheel(wanted.package, version, tag, machine)
        if stock is not None:
            return f"{stock.version}.txt", read_lock(locked.load_requirements(stock))
    return "", ()


def _on_disk(
    folder: Path, target: str, projects: Iterable[str]
) -> dict[str, tuple[ListedWheel, ...]]:
    found = {}
    for project in projects:
        path = folder / folder_key(target, project) / JSON
        if path.is_file():
            try:
                files = parse_json_project_page(path.read_text(encoding="utf-8")).files
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise PublishError(f"{path} is no page of an index ({error!r})") from error
            found[project] = tuple(_listed(files))
    return found


def _on_server(wanted: Query, projects: Iterable[str]) -> dict[str, tuple[ListedWheel, ...]]:
    """Without the password for uploads: what netrc has for the host is taken by itself."""
    with open_index(wanted.base, wanted.page, Credentials()) as index:
        return {project: tuple(_listed(index.read(project).values())) for project in projects}


def _listed(files: Iterable[File]) -> Iterator[ListedWheel]:
    """The wheels that an installer may take by their hash."""
    for file in files:
        try:
            parse_wheel_filename(file.filename)
        except ValueError:
            continue
        if "sha256" in file.hashes and not file.yanked:
            yield ListedWheel(file=file.filename, sha256=file.hashes["sha256"])
