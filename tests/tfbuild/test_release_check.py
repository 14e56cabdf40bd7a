from __future__ import annotations

import json

import pytest

from tfbuild.commands import ReleasesOptions
from tfbuild.release_check import (
    check_options,
    check_release,
    format_check,
    require_complete,
)
from tfbuild.upstream.releases import load_releases
from tfcore.errors import ReleaseError, UsageError


def states(version: str) -> dict[str, str]:
    return {fact.name: fact.state for fact in check_release(version)}


@pytest.mark.parametrize("version", [release.version for release in load_releases()])
def test_every_release_of_the_table_has_what_is_required(version: str) -> None:
    require_complete(check_release(version), version)


def test_a_release_with_everything_and_one_that_only_a_full_build_supports() -> None:
    assert set(states("2.20.0").values()) == {"yes"}
    assert states("2.20") == states("2.20.0")
    old = states("2.10.1")
    assert old["row of releases.toml"] == "yes"
    assert (old["facts for kernels"], old["lock file"]) == ("no", "no")


def test_a_new_release_lacks_all_and_the_first_remedy_is_the_hint() -> None:
    facts = check_release("2.99.0")
    assert [fact.name for fact in facts if fact.state == "missing"] == [
        *("row of releases.toml", "lock file", "recorded listing of the stock wheel")
    ]
    lacks = r"for TensorFlow 2\.99\.0, Tensorwright lacks: row of "
    with pytest.raises(ReleaseError, match=lacks) as caught:
        require_complete(facts, "2.99.0")
    assert "invoke releases --add VERSION" in caught.value.hint


def test_the_check_is_a_table_or_json() -> None:
    facts = check_release("2.99.0")
    lines = format_check(facts, as_json=False).splitlines()
    assert len(lines) == 1 + len(facts)
    assert "python -m tests.tools.stock_listings" in format_check(facts, as_json=False)
    rows = json.loads(format_check(facts, as_json=True))
    assert rows[0]["state"] == "missing"


@pytest.mark.parametrize("text", ["newest", "2", "2.14.1rc0", "../2.14.1", "2.14.1.2"])
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a version"):
        check_release(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReleasesOptions(add="2.99.0", check="2.99.0"), "exclude each other"),
        (ReleasesOptions(facts_only=True), "--facts-only has no effect without --add"),
        (ReleasesOptions(kernels="mini"), "--kernels has no effect without --add"),
        (ReleasesOptions(check="2.99.0", budget="1m"), "--budget has no effect without --add"),
    ],
)
def test_an_option_without_an_effect_is_refused(options: ReleasesOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_options(options)
    check_options(ReleasesOptions(add="2.99.0", facts_only=True))
