"""Upload wheels with twine to an index with an upload API: pypiserver, devpi, Artifactory, others.

twine runs as a library, so the password stays in memory and the server's responses are available.
The index is queried before anything is sent. A published file never changes, and a page never gets
two local versions of a version, because installers could choose the wrong one.
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

from tfbuild.packing.wheel import read_identity, verify_record
from tfbuild.upstream.download import hash_file
from tfcore import console
from tfcore.errors import PublishError, WheelError
from tfwheels.entry import NO_CHECKS, require_checked
from tfwheels.remote import REFUSALS, Index, check_url, find_credentials, is_localhost, open_index
from tfwheels.wheel_choice import refuse_ambiguous

# Our own errors report what twine would log.
logging.getLogger("twine.repository").addHandler(logging.NullHandler())


class UploadState(StrEnum):
    ABSENT = "absent"
    THERE = "already there"
    SENT = "sent"


@dataclass(frozen=True, kw_only=True, slots=True)
class Upload:
    """A wheel and its state on the index."""

    wheel: Path
    project: str
    sha256: str
    state: UploadState


def upload(
    wheels: Sequence[Path],
    url: str,
    *,
    checked: Mapping[Path, str] = NO_CHECKS,
    pages: str = "",
    dry_run: bool = False,
) -> tuple[Upload, ...]:
    """Send the wheels that the index lacks; with `dry_run`, only return their states.

    `checked` has the SHA-256 that wheels had when they were checked. `pages` is the address of the
    index's simple pages, if they are not at `url`/simple/ or `url`/+simple/ (devpi). Nothing is
    sent if one wheel must not be sent. An interrupted run resumes where it stopped. Raises
    UsageError, WheelError, PublishError, ChecksumError for a wheel that changed after it was
    checked.
    """
    addresses = {"uploads to": check_url(url, "--upload")}
    if pages:
        addresses["pages of"] = check_url(pages, "--simple")
    for what, parts in addresses.items():
        if parts.scheme == "http" and not is_localhost(parts):
            console.warn(f"http: others can read and change the {what} {parts.netloc}; use https")
    with open_index(url, pages, find_credentials(url, os.environ)) as index:
        planned = plan_uploads(wheels, index)
        for item in planned:
            require_checked(item.wheel, item.sha256, checked)
        if dry_run:
            return planned
        done = tuple(
            _send(item, index) if item.state is UploadState.ABSENT else item for item in planned
        )
        _verify_sent([item for item in done if item.state is UploadState.SENT], index)
        return done


def plan_uploads(wheels: Iterable[Path], index: Index) -> tuple[Upload, ...]:
    """Return the state of each wheel on the index.

    Raises WheelError for a damaged wheel, and PublishError for one that must not be sent: the index
    has its name with other bytes, or an installer could choose the wrong wheel.
    """
    listed: dict[str, Mapping[str, File]] = {}
    uploads = []
    for wheel in wheels:
        project = read_identity(wheel).name
        if project not in listed:
            listed[project] = index.read(project)
        sha256 = hash_file(wheel)
        listed_file = listed[project].get(wheel.name)
        state = (
            UploadState.ABSENT
            if listed_file is None
            else _check_same(wheel.name, sha256, listed_file)
        )
        if state is UploadState.ABSENT:
            verify_record(wheel)
        uploads.append(Upload(wheel=wheel, project=project, sha256=sha256, state=state))
    for project, files in listed.items():
        names = [item.wheel.name for item in uploads if item.project == project]
        _refuse_choice(f"{index.pages}{project}/", files, names)
    return tuple(uploads)


def _check_same(name: str, sha256: str, listed_file: File) -> UploadState:
    actual = listed_file.hashes.get("sha256")
    if actual is None:
        raise PublishError(
            f"the index lists {name} without sha256, so the bytes cannot be compared",
            hint="Make the index list SHA-256 hashes, or remove the file there",
        )
    if actual != sha256:
        raise PublishError(
            f"the index has {name} with other bytes (sha256 {actual[:64]}, here {sha256})",
            hint="A published file never changes: build the wheel with another version",
        )
    return UploadState.THERE


def _refuse_choice(page: str, files: Mapping[str, File], own_names: Iterable[str]) -> None:
    """Raise PublishError if an installer could choose between wheels of a page.

    A stock wheel beside one tuned wheel is accepted: installers take the tuned one.
    """
    listed = (name for name, file in files.items() if not file.yanked)
    try:
        refuse_ambiguous(page, {name for name in (*listed, *own_names) if _is_local(name)})
    except PublishError as error:
        raise PublishError(
            error.message, hint="Use one index for each target, or publish with --to DIR"
        ) from None


def _is_local(name: str) -> bool:
    try:
        return parse_wheel_filename(name)[1].local is not None
    except ValueError:
        return False


def _send(planned: Upload, index: Index) -> Upload:
    name = planned.wheel.name
    console.print_message(f"→ send {name} ({console.format_size(planned.wheel.stat().st_size)})")
    try:
        # twine shows its progress on stdout; without a terminal, our own line is enough.
        stream = sys.stderr if sys.stderr.isatty() else io.StringIO()
        with contextlib.redirect_stdout(stream):
            package = PackageFile.from_filename(str(planned.wheel), None)
            sha256 = package.sha2_digest or ""
            require_checked(planned.wheel, sha256, {planned.wheel: planned.sha256})
            response = index.repository.upload(package, max_redirects=1)
    except InvalidDistribution as error:
        raise WheelError(f"twine refuses {name}: {error}") from error
    if response.ok and not response.is_redirect:
        return replace(planned, state=UploadState.SENT)
    if response.status_code not in REFUSALS:
        # Another publisher may have been faster.
        listed_file = index.read(planned.project).get(name)
        if listed_file is not None:
            return replace(planned, state=_check_same(name, planned.sha256, listed_file))
    raise index.create_error(name, response)


def _verify_sent(sent: Sequence[Upload], index: Index) -> None:
    """Raise PublishError if the index lists other bytes than were sent.

    Also raises it if another publisher has added a wheel that an installer could choose.
    """
    for project in sorted({item.project for item in sent}):
        files = index.read(project)
        for item in sent:
            if item.project == project and item.wheel.name in files:
                _check_same(item.wheel.name, item.sha256, files[item.wheel.name])
            elif item.project == project:
                console.warn(f"the index accepted {item.wheel.name} but does not list it yet")
        _refuse_choice(f"{index.pages}{project}/", files, ())
