"""The pages of the index: HTML (PEP 503) and JSON (PEP 691, 700) for every target of a family.

The models and the text are simple-repository's. Which wheels a page lists is decided in choosing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from simple_repository.model import File, Meta, ProjectDetail, ProjectList, ProjectListElement
from simple_repository.serializer import SerializerHtmlV1, SerializerJsonV1

from tfbuild.cpus.targets import Target
from tfbuild.errors import PublishError
from tfwheels.choosing import contests, decide, made_for, refuse_ambiguous, targets_for
from tfwheels.entry import Entry, Kind
from tfwheels.layout import HTML, JSON, folder_key, link, pool_key

# Sizes, upload times and versions came with 1.1 (PEP 700); what came later is not used here.
_META = Meta("1.1")
_TO_HTML = SerializerHtmlV1()
_TO_JSON = SerializerJsonV1()

Member_co = TypeVar("Member_co", covariant=True)


class _Sorted(frozenset[Member_co]):
    """A set that is walked in order: the serializers write sets as they come."""

    def __iter__(self) -> Iterator[Member_co]:
        return iter(sorted(super().__iter__(), key=str))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Project:
    """The wheels of one package: plain ones, and the contests between the others."""

    name: str
    plain: tuple[Entry, ...]
    contests: tuple[tuple[Entry, ...], ...]

    def listed(self, target: Target) -> tuple[Entry, ...]:
        """What the target's page lists, in the order of file names."""
        choices = (decide(contest, target) for contest in self.contests)
        chosen = [choice.entry for choice in choices if choice is not None]
        plain = [entry for entry in self.plain if made_for(entry, target.family)]
        return tuple(sorted((*plain, *chosen), key=lambda entry: entry.file))


def render(entries: Iterable[Entry], family: str | None = None) -> dict[str, bytes]:
    """The bytes of every page by key, for the targets of one family or of all that wheels are for.

    The same entries give the same bytes in any order. Raises PublishError for a page on which an
    installer could choose wrongly, and for one file name with two contents.
    """
    entries = tuple(entries)
    projects, targets = _projects(entries), targets_for(entries, family)
    known: dict[tuple[Entry, ...], dict[str, str]] = {}
    pages = {folder_key() + HTML: _targets_page(targets)}
    for target in targets:
        listed = {project.name: project.listed(target) for project in projects}
        present = {name: files for name, files in listed.items() if files}
        pages |= keyed(folder_key(target.name), project_list(present))
        for name, files in present.items():
            folder = folder_key(target.name, name)
            if files not in known:
                known[files] = _project_page(folder, name, files)
            pages |= keyed(folder, known[files])
    return {key: text.encode() for key, text in pages.items()}


def _projects(entries: Iterable[Entry]) -> tuple[_Project, ...]:
    by_name: dict[str, list[Entry]] = defaultdict(list)
    for entry in _once(entries).values():
        by_name[entry.name].append(entry)
    return tuple(
        _Project(
            name=name,
            plain=tuple(entry for entry in by_name[name] if entry.kind is Kind.PLAIN),
            contests=contests(by_name[name]),
        )
        for name in sorted(by_name)
    )


def _once(entries: Iterable[Entry]) -> Mapping[str, Entry]:
    """Each file once. Raises PublishError for one that is there with other bytes."""
    found: dict[str, Entry] = {}
    for entry in entries:
        if found.setdefault(entry.file, entry).sha256 != entry.sha256:
            raise PublishError(
                f"there are two wheels called {entry.file}, with different bytes",
                hint="A name keeps its bytes: build the other under a version of its own",
            )
    return found


def _project_page(folder: str, name: str, entries: tuple[Entry, ...]) -> dict[str, str]:
    """The page of one project. All links are relative, so it is the same for all targets that list
    the same files."""
    refuse_ambiguous(folder, (entry.file for entry in entries))
    files = [linked(entry, pool_key(entry.name, entry.file), folder) for entry in entries]
    return project_page(name, files, (entry.version for entry in entries))


# ---- what any page of files is made of ----


def project_page(name: str, files: Iterable[File], versions: Iterable[str]) -> dict[str, str]:
    """The page of a project in both forms, by file name."""
    page = ProjectDetail(meta=_META, name=name, files=tuple(files), versions=_Sorted(versions))
    return {
        HTML: _TO_HTML.serialize_project_page(page),
        JSON: _TO_JSON.serialize_project_page(page),
    }


def project_list(names: Iterable[str]) -> dict[str, str]:
    """The page that leads to these projects in both forms, by file name."""
    page = ProjectList(_META, _Sorted(ProjectListElement(name) for name in names))
    return {
        HTML: _TO_HTML.serialize_project_list(page),
        JSON: _TO_JSON.serialize_project_list(page),
    }


def linked(entry: Entry, key: str, folder: str) -> File:
    """A wheel that stands at `key`, as a page in `folder` lists it."""
    return File(
        filename=entry.file,
        url=link(key, folder=folder),
        hashes={"sha256": entry.sha256},
        requires_python=entry.requires_python or None,
        dist_info_metadata={"sha256": entry.metadata_sha256},
        size=entry.size,
        upload_time=datetime.fromisoformat(entry.published),
    )


def keyed(folder: str, page: Mapping[str, str]) -> dict[str, str]:
    """A page by the keys of its files."""
    return {folder + file: text for file, text in page.items()}


def _targets_page(targets: Iterable[Target]) -> str:
    """For people: no installer asks for it. It is made as a project whose files are folders, since
    a list of projects would write the `_` of a target as `-`."""
    links = (
        File(filename=each.name, url=f"{each.name}/", hashes={})
        for each in sorted(targets, key=lambda target: target.name)
    )
    title = "CPU targets (archspec cpu prints yours)"
    return _TO_HTML.serialize_project_page(ProjectDetail(Meta("1.0"), title, tuple(links)))
