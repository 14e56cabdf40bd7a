from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfbuild.vendoring.resolved_repositories import FetchedRepository, parse_resolved
from tfcore.errors import VendorError

# As Bazel 4.2.3 wrote it, shortened.
TEXT = """
resolved = [
     {
          "original_rule_class": "local_repository",
          "original_attributes": {
               "name": "bazel_tools",
               "path": "/usr/share/bazel/embedded_tools"
          },
          "native": "local_repository(name = \\"bazel_tools\\", path = __embedded_dir__)"
     },
     {
          "original_rule_class": "@bazel_tools//tools/sh:sh_configure.bzl%sh_config",
          "original_attributes": {"name": "local_config_sh", "generator_location": None},
          "repositories": [
               {"rule_class": "sh_config", "attributes": {"name": "local_config_sh"},
                "output_tree_hash": "7bf5"}
          ]
     },
     {
          "original_rule_class": "@bazel_tools//tools/build_defs/repo:http.bzl%http_archive",
          "original_attributes": {
               "name": "FXdiv",
               "urls": ["https://me:secret@host.example:8443/FXdiv-1.tar.gz"],
               "strip_prefix": "FXdiv-1"
          },
          "repositories": [
               {
                    "rule_class": "@bazel_tools//tools/build_defs/repo:http.bzl%http_archive",
                    "attributes": {
                         "url": "",
                         "urls": ["https://me:secret@host.example:8443/FXdiv-1.tar.gz"],
                         "sha256": "6e58"
                    },
                    "output_tree_hash": "d91e"
               }
          ]
     },
     {
          "original_rule_class": "//third_party:repo.bzl%_tf_http_archive",
          "original_attributes": {
               "name": "XNNPACK", "urls": ["https://a.example/x", "https://b.example/x"],
               "sha256": "c77e"
          },
          "repositories": [{"rule_class": "_tf_http_archive", "attributes": {"name": "XNNPACK"}}]
     },
     {
          "original_rule_class": "http_file",
          "original_attributes": {"name": "one", "url": "https://a.example/one", "sha256": "aa"},
          "repositories": [{"rule_class": "http_file", "attributes": {}}]
     }
]
"""


def test_what_was_downloaded_is_read_and_shows_no_password() -> None:
    assert parse_resolved(TEXT) == (
        FetchedRepository(
            name="FXdiv",
            urls=("https://host.example:8443/FXdiv-1.tar.gz",),
            sha256="6e58",
            pinned=False,
        ),
        FetchedRepository(
            name="XNNPACK",
            urls=("https://a.example/x", "https://b.example/x"),
            sha256="c77e",
            pinned=True,
        ),
        FetchedRepository(name="one", urls=("https://a.example/one",), sha256="aa", pinned=True),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "resolved = [",
        "resolved = 1",
        "resolved = [1]",
        "resolved = [{}]",
        'resolved = [{"original_attributes": {}, "repositories": [{}]}]',
        "resolved = [__import__('os').getcwd()]",
        "import os",
        "resolved = []\nx = 1",
    ],
)
def test_anything_else_is_refused_and_never_run(text: str) -> None:
    with pytest.raises(VendorError):
        parse_resolved(text)


@given(st.text())
def test_no_text_does_more_than_be_refused(text: str) -> None:
    with pytest.raises(VendorError):
        parse_resolved(text)
