"""Add provenance links (PEP 740) to project pages; simple-repository does not support them.

If a page has such a link, the wheels without one are marked as unsigned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tfwheels.layout import HTML, JSON

API = "1.3"
"""The version of the simple API with provenance."""
_LINK_END = re.compile(r">(?P<file>[^<>]+)</a><br/>")


def add_provenance(page: Mapping[str, str], links: Mapping[str, str]) -> dict[str, str]:
    """Return a project's page in both forms, with the provenance link of each file.

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
