"""Wheels to an index with an upload API: pypiserver, devpi, Artifactory and others, through twine.

twine is run as a library: so it gets the password in memory, and what the server answers is known.
Before anything is sent the index is asked what it has. A name keeps its bytes, and a page never
gets two local versions of a version between which an installer could choose.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from packaging.utils import parse_wheel_filename
from simple_repository.model import File
from twine.exceptions import InvalidDistribution
from twine.package import PackageFile

from tfbuild import console
from tfbuild.errors import PublishError, WheelError
from tfbuild.packing.wheel import read_identity, verify_record
from tfbuild.upstream.download import hash_file
from tfwheels.choosing import refuse_ambiguous
from tfwheels.remote import REFUSALS, Index, check_url, find_credentials, is_here, open_index

# What it would warn of is an error of ours that says it.
logging.getLogger("twine.repository").addHandler(logging.NullHandler())


class State(StrEnum):
    ABSENT = "absent"
    THERE = "already there"
    SENT = "sent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A wheel and what the index has of it."""

    wheel: Path
    project: str
    sha256: str
    state: State


def upload(
    wheels: Sequence[Path], url: str, *, pages: str = "", dry_run: bool = False
) -> tuple[Upload, ...]:
    """Send the wheels that the index has not; with `dry_run` only ask what they are.

    `pages` is the address of the index's simple pages, where they are not at `url`/simple/ or where
    devpi has them. Nothing is sent if one wheel may not be. A run that broke off goes on where it
    was. Raises UsageError, WheelError, PublishError.
    """
    parts = check_url(url, "--upload")
    if pages:
        check_url(pages, "--simple")
    if parts.scheme == "http" and not is_here(parts):
        console.warn(f"http: what is sent to {parts.netloc} can be read and changed on its way")
    with open_index(url, pages, find_credentials(url, os.environ)) as index:
        found = plan(wheels, index)
        if dry_run:
            return found
        done = tuple(_send(each, index) if each.state is State.ABSENT else each for each in found)
        _confirm([each for each in done if each.state is State.SENT], index)
        return done


def plan(wheels: Iterable[Path], index: Index) -> tuple[Upload, ...]:
    """What the index has of each. Raises WheelError for one that is damaged, and PublishError for
    one that may not be sent: its name has other bytes, or an installer would have a choice."""
    listed: dict[str, Mapping[str, File]] = {}
    found = []
    for wheel in wheels:
        project = read_identity(wheel).name
        if project not in listed:
            listed[project] = index.read(project)
        sha256 = hash_file(wheel)
        there = listed[project].get(wheel.name)
        state = State.ABSENT if there is None else _same(wheel.name, sha256, there)
        if state is State.ABSENT:
            verify_record(wheel)
        found.append(Upload(wheel=wheel, project=project, sha256=sha256, state=state))
    for project, files in listed.items():
        own = [each.wheel.name for each in found if each.project == project]
        _refuse_choice(f"{index.pages}{project}/", files, own)
    return tuple(found)


def _same(name: str, sha256: str, there: File) -> State:
    actual = there.hashes.get("sha256")
    if actual is None:
        raise PublishError(
            f"the index has {name} and gives no sha256, so nobody can tell whether it is the same",
            hint="Make it show SHA-256 hashes, or remove the file there",
        )
    if actual != sha256:
        raise PublishError(
            f"the index has other bytes under {name} (sha256 {actual[:64]}, here {sha256})",
            hint="A name keeps its bytes: build the wheel under a version of its own",
        )
    return State.THERE


def _refuse_choice(page: str, files: Mapping[str, File], own: Iterable[str]) -> None:
    """The stock wheel beside one tuned wheel is no choice: an installer takes the tuned one."""
    there = (name for name, file in files.items() if not file.yanked)
    try:
        refuse_ambiguous(page, {name for name in (*there, *own) if _is_local(name)})
    except PublishError as error:
        raise PublishError(
            error.message, hint="Take one index for each target, or publish --to DIR"
        ) from None


def _is_local(name: str) -> bool:
    try:
        return parse_wheel_filename(name)[1].local is not None
    except ValueError:
        return False


def _send(wanted: Upload, index: Index) -> Upload:
    name = wanted.wheel.name
    console.print_message(f"→ send {name} ({console.format_size(wanted.wheel.stat().st_size)})")
    try:
        # twine shows its progress on stdout; where nobody watches, our own line is enough.
        shown = sys.stderr if sys.stderr.isatty() else io.StringIO()
        with contextlib.redirect_stdout(shown):
            package = PackageFile.from_filename(str(wanted.wheel), None)
            answer = index.repository.upload(package, max_redirects=1)
    except InvalidDistribution as error:
        raise WheelError(f"{name} is refused by twine: {error}") from error
    if answer.ok and not answer.is_redirect:
        return replace(wanted, state=State.SENT)
    if answer.status_code not in REFUSALS:
        # Another publisher may have been faster.
        there = index.read(wanted.project).get(name)
        if there is not None:
            return replace(wanted, state=_same(name, wanted.sha256, there))
    raise index.refused(name, answer)


def _confirm(sent: Sequence[Upload], index: Index) -> None:
    """Raises PublishError where the index now lists other bytes than were sent, or a choice that
    another publisher has added."""
    for project in sorted({each.project for each in sent}):
        files = index.read(project)
        for each in sent:
            if each.project == project and each.wheel.name in files:
                _same(each.wheel.name, each.sha256, files[each.wheel.name])
            elif each.project == project:
                console.warn(f"{each.wheel.name} was taken, but the index does not list it yet")
        _refuse_choice(f"{index.pages}{project}/", files, ())
