from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.cache_servers import rc_of

from tfbuild.remote import caches
from tfbuild.remote.caches import Remote
from tfbuild.tools.bazel import Bazel
from tfcore.cpus.cpu import read_cpu
from tfcore.cpus.targets import match_cpu
from tfcore.errors import UsageError

DISK = Path("/cache/disk")


def of(version: str, *, debian: bool = False) -> Bazel:
    return Bazel(bazelisk=Path("/b"), use=version, version=version, debian=debian)


BAZEL = of("6.5.0")
CLUSTER = Remote(executor="grpcs://cluster:443")


def pem(folder: Path, name: str) -> Path:
    kind = "PRIVATE KEY" if name.endswith(".key") else "CERTIFICATE"
    path = folder / name
    path.write_text(f"# ours\n-----BEGIN {kind}-----\nAAAA\n-----END {kind}-----\n")
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    "address", ["http://h:80", "https://h/path", "grpc://h:1", "grpcs://[::1]:2", "unix:/run/c"]
)
def test_every_kind_of_cache_that_bazel_knows_is_taken(address: str) -> None:
    caches.check_remote(Remote(cache=address), BAZEL)


@pytest.mark.parametrize(
    ("remote", "message"),
    [
        (Remote(cache="ftp://h"), "one of http, https, grpc"),
        (Remote(cache="h:9092"), "one of"),
        (Remote(cache="grpc://"), "no host"),
        (Remote(cache="unix:"), "no host"),
        (Remote(cache="http://h/a b"), "space"),
        (Remote(cache="http://h:99999"), "not a URL"),
        (Remote(executor="http://h"), "--remote-executor 'http://h' .*grpc"),
        (Remote(cache="http://h", executor="grpc://h:1"), "HTTP cache"),
    ],
)
def test_what_bazel_could_not_use_is_said_before_it_starts(remote: Remote, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        caches.check_remote(remote, BAZEL)


@pytest.mark.parametrize(
    "address",
    ["https://me:hunter2@h", "grpcs://hunter2@h", "http://h/?key=hunter2", "http://h#hunter2"],
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(UsageError, match="process list") as caught:
        caches.check_remote(Remote(cache=address), BAZEL)
    assert "hunter2" not in str(caught.value)
    assert "--bazelrc" in caught.value.hint


def test_addresses_of_the_file_are_held_to_the_same(tmp_path: Path) -> None:
    rc = rc_of(tmp_path, "--remote_cache=grpcs://h:1", "--remote_executor=grpcs://h:2")
    remote = caches.resolve_remote(rc=rc)
    assert remote.addresses == ("grpcs://h:1", "grpcs://h:2")
    with pytest.raises(UsageError, match="gRPC over TLS"):
        caches.check_remote(remote, of("4.2.3", debian=True))
    old = caches.resolve_remote(rc=rc_of(tmp_path, "--remote_http_cache=http://h"))
    assert old.cache == "http://h"
    with pytest.raises(UsageError, match="HTTP cache"):
        caches.check_settings(caches.resolve_remote(rc=old.rc.path, executor="grpc://h:1"))
    for wrong, text in (("https://me:hunter2@h", "process list"), ("h:9092", "one of")):
        with pytest.raises(UsageError, match=text) as caught:
            caches.check_settings(
                caches.resolve_remote(rc=rc_of(tmp_path, f"--remote_cache={wrong}"))
            )
        assert "hunter2" not in str(caught.value)
    with pytest.raises(UsageError, match="--arch native"):
        caches.require_explicit_target("native", old)


def test_an_address_stands_in_one_place(tmp_path: Path) -> None:
    rc = rc_of(tmp_path, "--remote_cache=http://hunter2@a", "--remote_executor=")
    with pytest.raises(UsageError, match="--remote-cache and the bazelrc") as caught:
        caches.resolve_remote(cache="http://b", rc=rc)
    assert "hunter2" not in str(caught.value)
    assert caches.resolve_remote(executor="grpc://h:1", rc=rc).executor == "grpc://h:1"
    twice = rc_of(tmp_path, "--remote_cache=http://a", "--remote_cache=http://a")
    assert caches.resolve_remote(cache="http://a", rc=twice).cache == "http://a"
    with pytest.raises(UsageError, match="--remote-cache and the bazelrc"):
        caches.resolve_remote(
            rc=rc_of(tmp_path, "--remote_cache=http://a", "--remote_http_cache=http://b")
        )


def test_a_file_with_headers_is_its_owners_alone(tmp_path: Path) -> None:
    for header in ("--remote_header=a=b", "--bes_header=a=b"):
        rc = rc_of(tmp_path, header, mode=0o644)
        with pytest.raises(UsageError, match=r"--bazelrc .*mode 644") as caught:
            caches.check_settings(caches.resolve_remote(rc=rc))
        assert caught.value.hint == f"Run: chmod 600 {rc}"
        rc.chmod(0o600)
        caches.check_settings(caches.resolve_remote(rc=rc))
    caches.check_settings(
        caches.resolve_remote(rc=rc_of(tmp_path, "--remote_timeout=9s", mode=0o644))
    )


def test_certificates_come_in_pairs_and_need_a_private_key(tmp_path: Path) -> None:
    own_path, key = pem(tmp_path, "c.pem"), pem(tmp_path, "c.key")
    certificate, private = f"--tls_client_certificate={own_path}", f"--tls_client_key={key}"

    def check(*options: str) -> None:
        rc = rc_of(tmp_path, *options)
        caches.check_remote(caches.resolve_remote(cache="grpcs://h:1", rc=rc), of("4.2.3"))

    check(certificate, private)
    with pytest.raises(UsageError, match="--tls_client_key is missing"):
        check(certificate)
    with pytest.raises(UsageError, match="--tls_client_certificate is missing"):
        check(private)
    key.chmod(0o640)
    with pytest.raises(UsageError, match="mode 640") as caught:
        check(certificate, private)
    assert caught.value.hint == f"Run: chmod 600 {key}"


def test_certificates_need_a_connection_that_uses_them(tmp_path: Path) -> None:
    rc = rc_of(tmp_path, f"--tls_certificate={pem(tmp_path, 'ca.pem')}")
    with pytest.raises(UsageError, match="not encrypted"):
        caches.check_remote(caches.resolve_remote(cache="grpc://h:1", rc=rc), BAZEL)
    over_http = caches.resolve_remote(cache="https://h", rc=rc)
    caches.check_remote(over_http, of("5.0.0"))
    with pytest.raises(UsageError, match=r"Bazel 4\.2\.3 .*https"):
        caches.check_remote(over_http, of("4.2.3"))


@pytest.mark.parametrize("path", ["none", "/nonexistent/ca.pem", "~/ca.pem"])
def test_a_certificate_is_a_file_that_bazel_finds(tmp_path: Path, path: str) -> None:
    rc = rc_of(tmp_path, f"--tls_certificate={path}")
    with pytest.raises(UsageError, match=f"--tls_certificate {path}"):
        caches.check_remote(caches.resolve_remote(cache="grpcs://h:1", rc=rc), BAZEL)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n",  # cut off
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "see -----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "\0\xff",
    ],
)
def test_a_certificate_is_looked_into_before_bazel_dies_of_it(tmp_path: Path, text: str) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text(text, encoding="latin-1")
    rc = rc_of(tmp_path, f"--tls_certificate={authority}")
    with pytest.raises(UsageError, match=r"--tls_certificate .*PEM"):
        caches.check_settings(caches.resolve_remote(cache="grpcs://h:1", rc=rc))


def test_a_key_is_no_certificate(tmp_path: Path) -> None:
    own_path = pem(tmp_path, "c.pem")
    rc = rc_of(tmp_path, f"--tls_client_certificate={own_path}", f"--tls_client_key={own_path}")
    with pytest.raises(UsageError, match=r"--tls_client_key .*PEM"):
        caches.check_settings(caches.resolve_remote(cache="grpcs://h:1", rc=rc))


def test_debians_bazel_is_not_sent_to_a_server_that_it_crashes_on() -> None:
    debian = of("4.2.3", debian=True)
    caches.check_remote(Remote(cache="grpc://h:1"), debian)
    for remote in (Remote(cache="grpcs://h:1"), CLUSTER):
        with pytest.raises(UsageError, match="gRPC over TLS"):
            caches.check_remote(remote, debian)


def test_without_a_remote_there_is_the_disk_cache_alone() -> None:
    caches.check_remote(Remote(), BAZEL)
    assert caches.build_options(Remote(), "6.5.0", DISK) == ("--disk_cache=/cache/disk",)


def test_a_remote_cache_is_used_beside_the_one_on_disk() -> None:
    assert caches.build_options(Remote(cache="https://h"), "6.5.0", DISK) == (
        "--disk_cache=/cache/disk",
        "--remote_cache=https://h",
        "--remote_download_outputs=all",
        "--remote_local_fallback",
        "--incompatible_remote_results_ignore_disk",
    )


@pytest.mark.parametrize("cache", ["", "grpcs://h:1"])
def test_headers_are_shown_nowhere(tmp_path: Path, cache: str) -> None:
    rc = rc_of(tmp_path, "--remote_header=a=hunter2", "--build_event_text_file=/open")
    options = caches.build_options(caches.resolve_remote(cache=cache, rc=rc), "6.5.0", DISK)
    assert not [option for option in options if "hunter2" in option]
    assert "--noannounce_rc" in options  # TensorFlow's .bazelrc announces every option
    # Bazel's command line overrules a bazelrc: no file of events but the one that is redacted.
    assert {"--build_event_text_file=", "--build_event_binary_file="} <= set(options)


@pytest.mark.parametrize(("bazel", "disk"), [("4.2.3", False), ("5.0.0", True), ("7.4.1", True)])
def test_an_old_bazel_has_no_disk_cache_beside_a_cluster(bazel: str, *, disk: bool) -> None:
    options = caches.build_options(CLUSTER, bazel, DISK)
    assert ("--disk_cache=/cache/disk" in options) is disk
    assert "--remote_executor=grpcs://cluster:443" in options


@pytest.mark.parametrize(
    ("bazel", "expected"), [("4.2.3", True), ("6.5.0", True), ("7.4.1", False)]
)
def test_only_bazels_that_mix_them_are_told_to_keep_disk_and_remote_apart(
    bazel: str, *, expected: bool
) -> None:
    remote = Remote(cache="http://h")
    apart = "--incompatible_remote_results_ignore_disk"
    assert (apart in caches.build_options(remote, bazel, DISK)) is expected


def test_native_is_refused_where_others_read_the_results() -> None:
    caches.require_explicit_target("native", Remote())
    caches.require_explicit_target("skylake", CLUSTER)
    spec = match_cpu(read_cpu()).native.spec
    with pytest.raises(UsageError) as caught:
        caches.require_explicit_target(" Native", CLUSTER)
    assert caught.value.hint.endswith(f"--arch {spec}")


@given(st.text(max_size=40))
def test_any_text_is_an_address_that_fits_one_line_or_a_usage_error(text: str) -> None:
    taken = False
    with contextlib.suppress(UsageError):
        caches.check_remote(Remote(cache=text), BAZEL)
        taken = True
    assert not taken or text.isprintable()


@given(st.text(max_size=40))
def test_a_refusal_is_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        caches.check_remote(Remote(cache=f"ftp://{text}"), BAZEL)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "output",
    [
        "WARNING: Reading from Remote Cache:\nio.netty.Channel$Annotated: Connection refused\n",
        "WARNING: Writing to Remote Cache:\njava.net.ConnectException: Connection refused\nat x\n",
        "INFO: a\nWARNING: Remote Cache: Connection refused\nWARNING: Remote Cache: another\n",
    ],
)
def test_what_bazel_says_of_a_shared_cache_is_found(output: str) -> None:
    assert caches.find_cache_warning(output) == "Connection refused"


def test_other_warnings_are_no_complaint_about_a_cache() -> None:
    assert (
        caches.find_cache_warning("WARNING: The following rc files are no longer being read\n")
        == ""
    )
