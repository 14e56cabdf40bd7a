"""A local web server with archives, over http and https, and the workspace whose dependencies they
are."""

from __future__ import annotations

import contextlib
import functools
import http.server
import shutil
import ssl
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.builders.trees import make_tree

from tfbuild.upstream.download import hash_file
from tfcore.run import run

_SECRET = "changeit"  # noqa: S105  (of a throw-away key store)
_HTTP = 'load("@bazel_tools//tools/build_defs/repo:http.bzl", "http_archive")\n'
_FXDIV = {
    "WORKSPACE": 'workspace(name = "FXdiv")\n',
    "BUILD.bazel": """cc_library(
    name = "FXdiv",
    hdrs = ["fxdiv.h"],
    visibility = ["//visibility:public"],
)
""",
    "fxdiv.h": "#define FXDIV_ONE 1\n",
}


@dataclass(frozen=True, kw_only=True)
class Servers:
    """`startup` makes Bazel's JVM trust the https server; `asked` collects paths."""

    http: str
    https: str
    startup: tuple[str, ...]
    asked: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serving_folder(folder: Path, keys: Path) -> Iterator[Servers]:
    """Serve what `folder` holds on 127.0.0.1; certificates are made in `keys`."""
    requested_paths: list[str] = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            requested_paths.append(self.path)

    handler = functools.partial(Handler, directory=str(folder))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, key, store = _certificate(keys)
    context.load_cert_chain(certificate, key)
    with contextlib.ExitStack() as stack:
        plain, secure = (http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in "ab")
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        for server in (plain, secure):
            stack.enter_context(server)
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield Servers(
            http=f"http://127.0.0.1:{plain.server_port}",
            https=f"https://127.0.0.1:{secure.server_port}",
            startup=(
                f"--host_jvm_args=-Djavax.net.ssl.trustStore={store}",
                f"--host_jvm_args=-Djavax.net.ssl.trustStorePassword={_SECRET}",
            ),
            asked=requested_paths,
        )


def _certificate(folder: Path) -> tuple[Path, Path, Path]:
    """A certificate for 127.0.0.1, its key, and a Java key store that trusts it."""
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key, store = folder / "cert.pem", folder / "key.pem", folder / "trust.p12"
    about = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1")
    out = ("-keyout", key, "-out", certificate)
    run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *about, *out])
    into = ("-keystore", store, "-storepass", _SECRET)
    run(["keytool", "-importcert", "-noprompt", "-alias", "local", "-file", certificate, *into])
    return certificate, key, store


def publish_archives(site: Path, tree: Path) -> None:
    """XNNPACK, as it lies in the tree, and FXdiv as archives in the folder `site`."""
    site.mkdir()
    fxdiv = site.with_name(f"{site.name}-FXdiv")
    fxdiv.mkdir()
    for name, text in _FXDIV.items():
        (fxdiv / name).write_text(text)
    for name, source in {"XNNPACK-1": tree / "third_party/XNNPACK", "FXdiv-1": fxdiv}.items():
        with tarfile.open(site / f"{name}.tar.gz", "w:gz") as tar:
            tar.add(source, arcname=name)


def downloading_tree(folder: Path, site: Path, servers: Servers) -> Path:
    """The workspace with two downloads from `site`, which is filled if need be: XNNPACK is pinned,
    FXdiv (https: Bazel takes nothing else without a hash) is not."""
    tree = make_tree(folder)
    if not site.exists():
        publish_archives(site, tree)
    shutil.rmtree(tree / "third_party/XNNPACK")
    pinned = hash_file(site / "XNNPACK-1.tar.gz")
    (tree / "WORKSPACE").write_text(
        'workspace(name = "org_tensorflow")\n'
        + _HTTP
        + f"""
http_archive(
    name = "XNNPACK",
    sha256 = "{pinned}",
    strip_prefix = "XNNPACK-1",
    urls = ["{servers.http}/XNNPACK-1.tar.gz"],
)

http_archive(
    name = "FXdiv",
    strip_prefix = "FXdiv-1",
    urls = ["{servers.https}/FXdiv-1.tar.gz"],
)
"""
    )
    build = tree / "tensorflow/core/BUILD"
    build.write_text(build.read_text().replace('["@XNNPACK"]', '["@FXdiv", "@XNNPACK"]'))
    source = tree / "tensorflow/core/ops.cc"
    source.write_text('#include "fxdiv.h"\n' + source.read_text())
    return tree
