"""The pages of the index: HTML (PEP 503) and JSON (PEP 691, 700) for every target of a family.

The models and the text are simple-repository's. Which wheels a page lists is decided in choosing.
What people should know of a page stands in it as paragraphs (PEP 503 asks for the anchors and
leaves the rest of the HTML open) and in JSON as `_notes`: names with a leading underscore are an
index's own (PEP 700).
"""

from __future__ import annotations

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

from tfbuild.cpus.targets import Target
from tfbuild.errors import PublishError
from tfbuild.records import convert_record
from tfwheels.attested import API, attested
from tfwheels.choosing import (
    contests,
    decide,
    made_for,
    refuse_ambiguous,
    targets_for,
    why_without,
)
from tfwheels.entry import Entry, WheelKind
from tfwheels.layout import HTML, JSON, folder_key, link, pool_key, provenance_key

# Sizes, upload times and versions came with 1.1 (PEP 700); what came later is used only on pages
# with signed wheels.
_META = Meta("1.1")
_NOTES = "_notes"

Member_co = TypeVar("Member_co", covariant=True)


class _Sorted(frozenset[Member_co]):
    """A set that is walked in order: the serializers write sets as they come."""

    def __iter__(self) -> Iterator[Member_co]:
        return iter(sorted(super().__iter__(), key=str))


class _ToHtml(SerializerHtmlV1):
    """With the notes of a project's page after its links."""

    def serialize_project_page(self, page: ProjectDetail) -> str:
        notes = page.private_metadata.get(_NOTES)
        shown = notes if isinstance(notes, tuple) else ()
        said = "".join(f"<p>{_escaped(str(note))}</p>\n" for note in shown)
        links = super().serialize_project_page(page).removesuffix(self.SIMPLE_PROJECT_FOOTER)
        return links + said + self.SIMPLE_PROJECT_FOOTER


_TO_HTML = _ToHtml()
_TO_JSON = SerializerJsonV1()


def _escaped(text: str) -> str:
    """For a page that may be read in any encoding."""
    return html.escape(text).encode("ascii", "xmlcharrefreplace").decode()


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

    def notes(self, target: Target) -> tuple[str, ...]:
        """Why the target's page lists less TensorFlow than there is for its family."""
        rivals = (entry for contest in self.contests for entry in contest)
        why = why_without(target) if any(made_for(each, target.family) for each in rivals) else ""
        return (why,) if why else ()


def render(entries: Iterable[Entry], family: str | None = None) -> dict[str, bytes]:
    """The bytes of every page by key, for the targets of one family or of all that wheels are for.

    The same entries give the same bytes in any order. Raises PublishError for a page on which an
    installer could choose wrongly, and for one file name with two contents.
    """
    entries = tuple(entries)
    projects, targets = _projects(entries), targets_for(entries, family)
    known: dict[object, dict[str, str]] = {}
    pages = {folder_key() + HTML: _targets_page(targets)}
    for target in targets:
        shown = {each.name: (each.listed(target), each.notes(target)) for each in projects}
        # A page with a note and no file is one: a uv that finds none asks its next index.
        present = {name: content for name, content in shown.items() if any(content)}
        pages |= keyed(folder_key(target.name), project_list(present))
        for name, content in present.items():
            folder = folder_key(target.name, name)
            if (name, content) not in known:
                known[name, content] = _project_page(folder, name, *content)
            pages |= keyed(folder, known[name, content])
    return {key: text.encode() for key, text in pages.items()}


def _projects(entries: Iterable[Entry]) -> tuple[_Project, ...]:
    by_name: dict[str, list[Entry]] = defaultdict(list)
    for entry in _once(entries).values():
        by_name[entry.name].append(entry)
    return tuple(
        _Project(
            name=name,
            plain=tuple(entry for entry in by_name[name] if entry.kind is WheelKind.PLAIN),
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


def _project_page(
    folder: str, name: str, entries: tuple[Entry, ...], notes: tuple[str, ...]
) -> dict[str, str]:
    """The page of one project. All links are relative, so it is the same for all targets that list
    the same files."""
    refuse_ambiguous(folder, (entry.file for entry in entries))
    files = [linked(entry, pool_key(entry.name, entry.file), folder) for entry in entries]
    notes = (*notes, *(note for entry in entries for note in caveats(entry)))
    versions = (entry.version for entry in entries)
    return project_page(name, files, versions, notes, provenance_links(entries, folder))


# ---- what any page of files is made of ----


def project_page(
    name: str,
    files: Iterable[File],
    versions: Iterable[str],
    notes: tuple[str, ...] = (),
    provenances: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """The page of a project in both forms, by file name; `provenances` are links, by theirs."""
    page = ProjectDetail(
        meta=Meta(API) if provenances else _META,
        name=name,
        files=tuple(files),
        versions=_Sorted(versions),
        private_metadata=PrivateMetadataMapping({_NOTES: notes} if notes else {}),
    )
    plain_page = {
        HTML: _TO_HTML.serialize_project_page(page),
        JSON: _TO_JSON.serialize_project_page(page),
    }
    return attested(plain_page, provenances) if provenances else plain_page


def provenance_links(entries: Iterable[Entry], folder: str) -> dict[str, str]:
    """Where signed wheels of the pool have their provenance, for a page in `folder`."""
    signed = (entry for entry in entries if entry.provenance is not None)
    return {
        entry.file: link(provenance_key(entry.name, entry.file), folder=folder) for entry in signed
    }


def project_list(names: Iterable[str]) -> dict[str, str]:
    """The page that leads to these projects in both forms, by file name."""
    page = ProjectList(_META, _Sorted(ProjectListElement(name) for name in names))
    return {
        HTML: _TO_HTML.serialize_project_list(page),
        JSON: _TO_JSON.serialize_project_list(page),
    }


def caveats(entry: Entry) -> tuple[str, ...]:
    """What people should know of a wheel before they take it, for the notes of a page."""
    return tuple(f"{entry.file}: {each}" for each in entry.caveats)


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
        private_metadata=PrivateMetadataMapping.from_any_mapping(_private(entry)),
    )


def _private(entry: Entry) -> dict[str, object]:
    """For programs, what `caveats` says."""
    found = {"_gate": convert_record(entry.gating), "_near_sources": entry.near}
    return {name: value for name, value in found.items() if value}


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
