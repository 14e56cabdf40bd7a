"""Render the pages of the index: HTML (PEP 503) and JSON (PEP 691, 700) for every target.

simple-repository provides the models and the serializers; `choosing` selects the wheels. Notes for
users are paragraphs in HTML (PEP 503 specifies only the anchors) and `_notes` in JSON (PEP 700
reserves names with a leading underscore for the index).
"""

from __future__ import annotations

import dataclasses
import html
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import TypeVar

from simple_repository.model import (
    File,
    Meta,
    PrivateMetadataMapping,
    ProjectDetail,
    ProjectList,
    ProjectListElement,
)
from simple_repository.serializer import SerializerHtmlV1, SerializerJsonV1

from tfcore.cpus.targets import Target
from tfcore.errors import PublishError
from tfcore.records import convert_record
from tfwheels.entry import Entry, WheelKind, WithdrawalKind
from tfwheels.layout import (
    HTML,
    JSON,
    PageKey,
    build_folder_key,
    build_link,
    build_pool_key,
    build_provenance_key,
    parse_page_key,
)
from tfwheels.page_fields import PROVENANCE_API, add_provenance, add_quarantine
from tfwheels.wheel_choice import (
    can_serve,
    choose_best,
    explain_absence,
    group_rivals,
    is_for_family,
    refuse_ambiguous,
    targets_for,
)

# Version 1.1 (PEP 700) has sizes, upload times and versions. Only pages with signed wheels use a
# later one.
_META = Meta("1.1")
_NOTES = "_notes"

Member_co = TypeVar("Member_co", covariant=True)


class _SortedSet(frozenset[Member_co]):
    """A set that iterates in order: the serializers write sets in iteration order."""

    def __iter__(self) -> Iterator[Member_co]:
        return iter(sorted(super().__iter__(), key=str))


class _HtmlSerializer(SerializerHtmlV1):
    """A serializer that writes the notes of a project's page after its links.

    It also escapes why a wheel was yanked.
    """

    def _serialize_file(self, file: File) -> str:
        if isinstance(file.yanked, str):
            file = dataclasses.replace(file, yanked=_escape(file.yanked))
        return super()._serialize_file(file)

    def serialize_project_page(self, page: ProjectDetail) -> str:
        notes = page.private_metadata.get(_NOTES)
        shown = notes if isinstance(notes, tuple) else ()
        paragraphs = "".join(f"<p>{_escape(str(note))}</p>\n" for note in shown)
        links = super().serialize_project_page(page).removesuffix(self.SIMPLE_PROJECT_FOOTER)
        return links + paragraphs + self.SIMPLE_PROJECT_FOOTER


_TO_HTML = _HtmlSerializer()
_TO_JSON = SerializerJsonV1()


def _escape(text: str) -> str:
    """Escape text for a page in any encoding."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Project:
    """The wheels of one package: plain wheels, and groups of rivals; a page lists one per group."""

    name: str
    plain: tuple[Entry, ...]
    contests: tuple[tuple[Entry, ...], ...]

    def list_wheels(self, target: Target) -> tuple[Entry, ...]:
        """Return the wheels that the target's page lists, in the order of file names.

        Yanked wheels are listed beside those that are chosen.
        """
        choices = (choose_best(contest, target) for contest in self.contests)
        chosen = [choice.entry for choice in choices if choice is not None]
        plain = [
            entry
            for entry in self.plain
            if is_for_family(entry, target.family) and entry.withdrawal is None
        ]
        yanked = self._list_withdrawn(target, WithdrawalKind.YANKED)
        return tuple(sorted((*plain, *chosen, *yanked), key=lambda entry: entry.file))

    def list_notes(self, target: Target) -> tuple[str, ...]:
        """Return the reason why the target's page lists only full builds, if it does."""
        rivals = (entry for contest in self.contests for entry in contest)
        reason = (
            explain_absence(target)
            if any(is_for_family(rival, target.family) for rival in rivals)
            else ""
        )
        return (reason,) if reason else ()

    def list_quarantined(self, target: Target) -> tuple[Entry, ...]:
        """Return the wheels that the target's page could list if they were not quarantined."""
        return tuple(self._list_withdrawn(target, WithdrawalKind.QUARANTINED))

    def _list_withdrawn(self, target: Target, kind: WithdrawalKind) -> list[Entry]:
        """Return the withdrawn wheels that the target's page could list, by file name."""
        everything = (*self.plain, *(entry for contest in self.contests for entry in contest))
        withdrawn = [
            entry
            for entry in everything
            if entry.withdrawal and entry.withdrawal.kind is kind and can_serve(entry, target)
        ]
        return sorted(withdrawn, key=lambda entry: entry.file)


def render(entries: Iterable[Entry], family: str | None = None) -> dict[str, bytes]:
    """Render every page by key, for the targets of one family or of all families with wheels.

    The same entries give the same bytes in any order. Raises PublishError for a page on which an
    installer could choose the wrong wheel, and for two wheels with the same file name.
    """
    entries = tuple(entries)
    projects, targets = _group_projects(entries), targets_for(entries, family)
    rendered: dict[object, dict[str, str]] = {}
    pages = {build_folder_key() + HTML: _render_targets_page(targets)}
    for target in targets:
        shown = {
            project.name: (
                project.list_wheels(target),
                project.list_notes(target),
                project.list_quarantined(target),
            )
            for project in projects
        }
        # Write a page with notes but no files: without a page, uv queries its next index.
        present = {name: content for name, content in shown.items() if any(content)}
        pages |= prefix_keys(build_folder_key(target.name), render_project_list(present))
        for name, content in present.items():
            folder = build_folder_key(target.name, name)
            if (name, content) not in rendered:
                rendered[name, content] = _render_entries(folder, name, *content)
            pages |= prefix_keys(folder, rendered[name, content])
    return {key: text.encode() for key, text in pages.items()}


def list_page(entries: Iterable[Entry], target: Target) -> tuple[Entry, ...]:
    """Return the wheels of one project that the target's page lists."""
    return tuple(
        entry for project in _group_projects(entries) for entry in project.list_wheels(target)
    )


def render_removed(
    stored: Iterable[str], pages: Mapping[str, bytes]
) -> tuple[dict[str, bytes], list[str]]:
    """Render an empty page for each stored page that the index no longer has.

    Also returns the keys that are not those of pages. `stored` are the keys below simple/.
    """
    removed, unknown = dict[str, bytes](), list[str]()
    for key in stored:
        page = parse_page_key(key)
        if page is None:
            unknown.append(key)
        elif page.key not in pages:
            removed[page.key] = _render_empty(page).encode()
    return removed, unknown


def _render_empty(page: PageKey) -> str:
    if page.project:
        return render_project_page(page.project, (), ())[page.file]
    return render_project_list(())[page.file]


def _group_projects(entries: Iterable[Entry]) -> tuple[_Project, ...]:
    by_name: dict[str, list[Entry]] = defaultdict(list)
    for entry in _index_entries(entries).values():
        by_name[entry.name].append(entry)
    return tuple(
        _Project(
            name=name,
            plain=tuple(entry for entry in by_name[name] if entry.kind is WheelKind.PLAIN),
            contests=group_rivals(by_name[name]),
        )
        for name in sorted(by_name)
    )


def _index_entries(entries: Iterable[Entry]) -> Mapping[str, Entry]:
    """Return the entries by file.

    Raises PublishError for two files with the same name and different bytes.
    """
    by_file: dict[str, Entry] = {}
    for entry in entries:
        if by_file.setdefault(entry.file, entry).sha256 != entry.sha256:
            raise PublishError(
                f"two wheels are called {entry.file}, with different bytes",
                hint="A published file never changes: build one of them with another version",
            )
    return by_file


def _render_entries(
    folder: str,
    name: str,
    entries: tuple[Entry, ...],
    notes: tuple[str, ...],
    quarantined: tuple[Entry, ...],
) -> dict[str, str]:
    """Render the page of one project.

    All links are relative, so it is the same for all targets that list the same files. A page
    without files because all are quarantined has this status (PEP 792).
    """
    refuse_ambiguous(folder, (entry.file for entry in entries if entry.withdrawal is None))
    files = [
        create_file(entry, build_pool_key(entry.name, entry.file), folder) for entry in entries
    ]
    removed = [describe_withdrawal(entry) for entry in quarantined]
    notes = (*notes, *removed, *(note for entry in entries for note in list_caveats(entry)))
    versions = (entry.version for entry in entries)
    page = render_project_page(
        name, files, versions, notes, build_provenance_links(entries, folder)
    )
    return add_quarantine(page, removed[0]) if removed and not entries else page


# ---- parts of a page ----


def render_project_page(
    name: str,
    files: Iterable[File],
    versions: Iterable[str],
    notes: tuple[str, ...] = (),
    provenances: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Render the page of a project in both forms, by file name.

    `provenances` maps the file names of wheels to links.
    """
    page = ProjectDetail(
        meta=Meta(PROVENANCE_API) if provenances else _META,
        name=name,
        files=tuple(files),
        versions=_SortedSet(versions),
        private_metadata=PrivateMetadataMapping({_NOTES: notes} if notes else {}),
    )
    plain_page = {
        HTML: _TO_HTML.serialize_project_page(page),
        JSON: _TO_JSON.serialize_project_page(page),
    }
    return add_provenance(plain_page, provenances) if provenances else plain_page


def build_provenance_links(entries: Iterable[Entry], folder: str) -> dict[str, str]:
    """Return the links to the provenance of signed wheels, for a page in `folder`."""
    signed = (entry for entry in entries if entry.provenance is not None)
    return {
        entry.file: build_link(build_provenance_key(entry.name, entry.file), folder=folder)
        for entry in signed
    }


def render_project_list(names: Iterable[str]) -> dict[str, str]:
    """Render the page that links to these projects in both forms, by file name."""
    page = ProjectList(_META, _SortedSet(ProjectListElement(name) for name in names))
    return {
        HTML: _TO_HTML.serialize_project_list(page),
        JSON: _TO_JSON.serialize_project_list(page),
    }


def describe_withdrawal(entry: Entry) -> str:
    """Return a line about a withdrawn wheel; empty for another one."""
    return f"{entry.file} is {entry.withdrawal.words}" if entry.withdrawal else ""


def list_caveats(entry: Entry) -> tuple[str, ...]:
    """Return the caveats of a wheel for the notes of a page."""
    return tuple(f"{entry.file}: {caveat}" for caveat in entry.caveats)


def create_file(entry: Entry, key: str, folder: str) -> File:
    """Create the File of a wheel stored at `key`, for a page in `folder`."""
    return File(
        filename=entry.file,
        url=build_link(key, folder=folder),
        hashes={"sha256": entry.sha256},
        requires_python=entry.requires_python or None,
        dist_info_metadata={"sha256": entry.metadata_sha256},
        yanked=entry.withdrawal.reason if entry.withdrawal else None,
        size=entry.size,
        upload_time=datetime.fromisoformat(entry.published),
        private_metadata=PrivateMetadataMapping.from_any_mapping(_build_private_metadata(entry)),
    )


def _build_private_metadata(entry: Entry) -> dict[str, object]:
    """Return the caveats of a wheel in a form for programs."""
    fields = {"_gate": convert_record(entry.gating), "_near_sources": entry.near}
    return {name: value for name, value in fields.items() if value}


def prefix_keys(folder: str, page: Mapping[str, str]) -> dict[str, str]:
    """Return a page by key instead of file name."""
    return {folder + file: text for file, text in page.items()}


def _render_targets_page(targets: Iterable[Target]) -> str:
    """Render the page of targets for people; no installer reads it.

    It is rendered as a project whose files are folders, because a list of projects would write the
    `_` of a target as `-`.
    """
    links = (
        File(filename=cpu_target.name, url=f"{cpu_target.name}/", hashes={})
        for cpu_target in sorted(targets, key=lambda target: target.name)
    )
    title = "CPU targets (archspec cpu prints yours)"
    return _TO_HTML.serialize_project_page(ProjectDetail(Meta("1.0"), title, tuple(links)))
