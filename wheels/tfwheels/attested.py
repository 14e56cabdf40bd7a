"""Where the wheels of a page have their provenance (PEP 740), which simple-repository cannot write.

A page that leads to some says of the other wheels that they are unsigned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tfwheels.layout import HTML, JSON

API = "1.3"
"""The version of the simple API that has it."""
_LINK_END = re.compile(r">(?P<file>[^<>]+)</a><br/>")


def attested(page: Mapping[str, str], links: Mapping[str, str]) -> dict[str, str]:
    """The page of a project in both forms, with `links` by file name. They are relative, as those
    to wheels are, where PEP 740 wants whole ones: a tree is served under any prefix."""

    def ended(found: re.Match[str]) -> str:
        where = links.get(found["file"])
        attribute = f' data-provenance="{where}"' if where else ""
        return f"{attribute}>{found['file']}</a>{'' if where else ' unsigned'}<br/>"

    fields = json.loads(page[JSON])
    for file in fields["files"]:
        file["provenance"] = links.get(file["filename"])
    return {HTML: _LINK_END.sub(ended, page[HTML]), JSON: json.dumps(fields)}
