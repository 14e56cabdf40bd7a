"""Add what simple-repository does not support to project pages.

These are links to provenance (PEP 740) and the status of a project (PEP 792).
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping

from tfwheels.layout import HTML, JSON

PROVENANCE_API, _STATUS_API = "1.3", "1.4"
"""The versions of the simple API with provenance, and with the status of a project."""
_HEAD = '<meta name="pypi:repository-version" content="'
_HEAD_LINE = re.compile(rf'{_HEAD}[^"]*">')
_LINK_END = re.compile(r">(?P<file>[^<>]+)</a><br/>")


def add_provenance(page: Mapping[str, str], links: Mapping[str, str]) -> dict[str, str]:
    """Return a project's page in both forms, with the provenance link of each file.

    Wheels without a link are marked as unsigned.

    `links` maps file names to links. They are relative, like those to wheels, although PEP 740
    requires absolute ones: a tree must work under any prefix.
    """

    def add_attribute(match: re.Match[str]) -> str:
        target = links.get(match["file"])
        attribute = f' data-provenance="{target}"' if target else ""
        return f"{attribute}>{match['file']}</a>{'' if target else ' unsigned'}<br/>"

    fields = json.loads(page[JSON])
    for file in fields["files"]:
        file["provenance"] = links.get(file["filename"])
    return {HTML: _LINK_END.sub(add_attribute, page[HTML]), JSON: json.dumps(fields)}


def add_quarantine(page: Mapping[str, str], reason: str) -> dict[str, str]:
    """Return a project's page in both forms, with the status quarantined and the reason."""
    status = {"status": "quarantined", "reason": reason}
    fields = json.loads(page[JSON]) | {"project-status": status}
    fields["meta"]["api-version"] = _STATUS_API
    shown = html.escape(reason).encode("ascii", "xmlcharrefreplace").decode()
    head = (
        f'{_HEAD}{_STATUS_API}">\n'
        f'        <meta name="pypi:project-status" content="{status["status"]}">\n'
        f'        <meta name="pypi:project-status-reason" content="{shown}">'
    )
    return {
        HTML: _HEAD_LINE.sub(lambda _: head, page[HTML], count=1),
        JSON: json.dumps(fields),
    }
