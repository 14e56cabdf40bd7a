"""Check whether hosts answer through the proxies of the environment, as for Bazel."""

from __future__ import annotations

import email.utils
import http
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException
from urllib.parse import SplitResult, urlsplit

from tfbuild.upstream.download import strip_login

LIMIT_S = 5.0
"""Time limit for all hosts together, in seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostAnswer:
    """The answer of a host. `skew_s` is this machine's clock minus the host's, if it sent a time.

    `proxy` is the host and port that the request went through, without a password; "" if there
    was none.
    """

    url: str
    reached: bool
    said: str
    proxy: str = ""
    skew_s: float | None = None

    @property
    def host(self) -> str:
        return _split_url(self.url).hostname or self.url


def query_hosts(
    urls: Iterable[str], env: Mapping[str, str], limit_s: float = LIMIT_S
) -> tuple[HostAnswer, ...]:
    """Query all hosts at once, and return the answers that came within `limit_s` seconds.

    A name server that does not answer blocks its thread for longer than any socket timeout, so
    the threads continue until the program ends. A user name and password in an address are not
    sent: a host that refuses the request was reached.
    """
    addresses = tuple(dict.fromkeys(map(strip_login, urls)))
    answers: dict[str, HostAnswer] = {}

    def query(url: str) -> None:
        answers[url] = _query_host(url, env, limit_s)

    threads = [threading.Thread(target=query, args=(url,), daemon=True) for url in addresses]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"no answer within {limit_s:g} s"
    return tuple(
        answers.get(url)
        or HostAnswer(url=url, reached=False, said=late, proxy=_format_proxy(url, env))
        for url in addresses
    )


def _query_host(url: str, env: Mapping[str, str], limit_s: float) -> HostAnswer:
    proxy = find_proxy(url, env)
    proxies = {_split_url(url).scheme: proxy} if proxy else {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
    try:
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310  (https and http)
        with opener.open(request, timeout=limit_s) as answer:
            return _build_answer(url, env, answer.status, answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return _build_answer(url, env, error.code, error.headers)
    except (OSError, HTTPException, ValueError) as error:
        reason = str(getattr(error, "reason", error)) or type(error).__name__
        return HostAnswer(url=url, reached=False, said=reason, proxy=_format_proxy(url, env))


def _build_answer(url: str, env: Mapping[str, str], status: int, headers: Message) -> HostAnswer:
    """Build the answer of an HTTP status.

    A host that answers "not found" was reached. One behind a proxy that requires a login was not,
    nor one with a server error.
    """
    refused = status == http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
    down = status >= http.HTTPStatus.INTERNAL_SERVER_ERROR
    return HostAnswer(
        url=url,
        reached=not (refused or down),
        said=f"HTTP {status}",
        proxy=_format_proxy(url, env),
        skew_s=_compute_skew(headers.get("Date")),
    )


def _compute_skew(date: str | None) -> float | None:
    try:
        return time.time() - email.utils.parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return None


def find_proxy(url: str, env: Mapping[str, str]) -> str:
    """Return the proxy that the environment names for an address; "" for none.

    Source: curl and Bazel, which read http_proxy, https_proxy and no_proxy in either case.
    """
    parts = _split_url(url)
    scheme = parts.scheme
    proxy = env.get(f"{scheme}_proxy") or env.get(f"{scheme}_proxy".upper()) or ""
    excepted = env.get("no_proxy") or env.get("NO_PROXY") or ""
    host = parts.netloc.rpartition("@")[2]
    bypass = urllib.request.proxy_bypass_environment  # type: ignore[attr-defined]  # not in typeshed
    return "" if bypass(host, {"no": excepted}) else proxy


def _format_proxy(url: str, env: Mapping[str, str]) -> str:
    """Return a proxy's host and port: its address may hold a password."""
    proxy = find_proxy(url, env)
    return _split_url(proxy if "://" in proxy else f"//{proxy}").netloc.rpartition("@")[2]


def _split_url(url: str) -> SplitResult:
    """Split an address into its parts.

    An invalid URL gets no host: its query then reports the error.
    """
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult(scheme="", netloc="", path=url, query="", fragment="")
