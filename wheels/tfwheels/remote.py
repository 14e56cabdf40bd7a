"""An index on a server: its address, its credentials and its pages.

A password never appears in an address, a command line or a message. It comes from the first of:
TWINE_USERNAME and TWINE_PASSWORD; keyring, for the upload address; netrc, for its host. ~/.pypirc
is not read. The password goes only to the server of the upload address, and never from https to
http. If the pages are on another server, netrc has its password. REQUESTS_CA_BUNDLE sets the
certificates.
"""

from __future__ import annotations

import contextlib
import ipaddress
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_netrc_auth
from simple_repository.model import File
from simple_repository.parser import parse_html_project_page, parse_json_project_page
from twine.auth import CredentialInput, Resolver
from twine.exceptions import NonInteractive
from twine.repository import Repository

from tfcore.errors import PublishError, UsageError

REFUSALS = (requests.codes.unauthorized, requests.codes.forbidden)

_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT = f"{_JSON}, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"
_PLACES = ("simple/", "+simple/")
"""Where indexes have their pages, relative to the upload address; the second is devpi's."""
_PATIENCE_S = (15.0, 900.0)
"""Timeouts to connect and between two blocks: a server hashes a large wheel before it answers.
twine has no timeout."""
_MOST_REDIRECTS = 5
# html.parser raises AssertionError when it gives up.
_FOREIGN = (ValueError, KeyError, TypeError, AttributeError, RecursionError, AssertionError)
_LARGEST = 32 << 20
"""Largest page of a project, in bytes: about 60,000 files."""
_BLOCK = 1 << 16
_LONGEST_REASON = 200
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HOW = (
    "Set TWINE_USERNAME and TWINE_PASSWORD, or store them in ~/.netrc or with: keyring set URL NAME"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """A name and a password; `origin` is their source, empty if there are none."""

    name: str = ""
    password: str = field(default="", repr=False)
    origin: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Index:
    """An index that can be queried; `pages` is the address of its pages and ends with a slash."""

    pages: str
    credentials: Credentials
    repository: Repository

    def read(self, project: str) -> Mapping[str, File]:
        """Return the files that the project's page lists, by name; none if there is no page.

        Raises PublishError if it cannot be read.
        """
        address = f"{self.pages}{project}/"
        response = self.get(address)
        if response is None:
            return {}
        try:
            with response:
                body = _read_body(response)
            if response.headers.get("Content-Type", "").startswith(_JSON):
                files = parse_json_project_page(body.decode()).files
            else:
                files = parse_html_project_page(body.decode(errors="replace"), project).files
            return {_unquote_name(file.filename): _check_hashes(file) for file in files}
        except _FOREIGN as error:
            reason = self._sanitize(repr(error))
            raise PublishError(f"{address} is not a page of an index ({reason})") from error

    def get(self, address: str, redirects: int = _MOST_REDIRECTS) -> requests.Response | None:
        """Fetch a page of this index; the caller reads and closes it.

        None if the page does not exist or redirects to another server: some indexes redirect
        clients to PyPI for missing projects.
        """
        # The size of compressed data is unknown before it is unpacked.
        packed = {"Accept-Encoding": "identity", "Cache-Control": "no-cache"}
        try:
            response = self.repository.session.get(
                address, headers={"Accept": _ACCEPT, **packed}, allow_redirects=False, stream=True
            )
        except requests.RequestException:
            raise
        except ValueError as error:  # (requests parses the redirect address anyway)
            raise PublishError(
                f"{address}: the index redirects to an invalid address ({error})"
            ) from error
        if response.ok and not response.is_redirect:
            return response
        with response:
            if response.is_redirect and redirects:
                onward = self._resolve_redirect(address, response)
                return self.get(onward, redirects - 1) if onward else None
            if response.status_code == requests.codes.not_found:
                return None
            raise self.create_error(address, response)

    def _resolve_redirect(self, address: str, answer: requests.Response) -> str:
        """Return the address that a redirect leads to; empty if that is another server.

        Raises PublishError for a redirect from https to http on the same server.
        """
        try:
            target = urljoin(address, answer.headers["Location"])
            old, new = urlsplit(address), urlsplit(target)
        except ValueError as error:
            raise self.create_error(address, answer) from error
        if new.netloc != old.netloc:
            return ""
        if (old.scheme, new.scheme) == ("https", "http"):
            raise PublishError(
                f"{address}: the index redirects to {self._sanitize(target)}, without encryption",
                hint="Make it redirect to https, or pass the https address of its pages",
            )
        return target

    def create_error(self, action: str, answer: requests.Response) -> PublishError:
        """Create the error for a refusal, which shows at most one line of the response."""
        if answer.is_redirect:
            target = self._sanitize(answer.headers["Location"])
            return PublishError(
                f"{action}: the index redirects to {target}", hint="Use that address"
            )
        status = f"{answer.status_code} {self._sanitize(answer.reason)}".rstrip()
        if answer.status_code in REFUSALS:
            origin = self.credentials.origin
            credentials = (
                f"the name and password from {origin}" if origin else "access without password"
            )
            return PublishError(f"{action}: the index refuses {credentials} ({status})", hint=_HOW)
        return PublishError(f"{action}: the index answers {status}")

    def _sanitize(self, text: str | None) -> str:
        """Return a server's text in printable form, without the password."""
        line = "".join(letter for letter in text or "" if letter.isprintable())[:_LONGEST_REASON]
        password = self.credentials.password
        return line.replace(password, "***") if password else line


def read_body(answer: requests.Response, address: str) -> bytes:
    """Read the body of a response, at most 32 MiB. Raises PublishError."""
    try:
        return _read_body(answer)
    except ValueError as error:
        raise PublishError(f"cannot read {address}: {error}") from error


def _read_body(answer: requests.Response) -> bytes:
    """Read the body of a response.

    Raises ValueError if it is compressed, or too large.
    """
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise ValueError("it is compressed, which was not requested")
    body = bytearray()
    for block in answer.iter_content(_BLOCK):
        body += block
        if len(body) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} bytes")
    return bytes(body)


def _unquote_name(name: str) -> str:
    """Return a file's name from a page, which may quote it.

    Raises ValueError.
    """
    unquoted = unquote(name).strip()
    unquoted.encode()  # (a lone surrogate cannot be printed)
    return unquoted


def _check_hashes(file: File) -> File:
    """Return the file after checking its hashes.

    Raises TypeError if they are invalid.
    """
    hashes: object = file.hashes
    sha256 = hashes.get("sha256", "") if isinstance(hashes, dict) else None
    if not isinstance(sha256, str) or not sha256.isprintable():
        raise TypeError(f"{file.filename} has no hashes")
    return file


class _ServerAuth(AuthBase):
    """The credentials for the server of the upload address.

    Other servers, also the same one without encryption, get the credentials that netrc has for
    them, or none.
    """

    def __init__(self, url: str, credentials: Credentials) -> None:
        self._url = url
        self._own = HTTPBasicAuth(credentials.name.encode(), credentials.password.encode())

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        address = request.url or ""
        if _is_same_server(address, self._url):
            return self._own(request)
        pair = get_netrc_auth(address)
        return HTTPBasicAuth(*pair)(request) if pair else request


def _is_same_server(address: str, known: str) -> bool:
    """Return whether the address is on the known server, with at least as much encryption."""
    new, old = urlsplit(address), urlsplit(known)
    if new.scheme == old.scheme:
        ports = [parts.port or _DEFAULT_PORTS[parts.scheme] for parts in (new, old)]
        return new.hostname == old.hostname and ports[0] == ports[1]
    return new.scheme == "https" and new.netloc == old.netloc


@contextlib.contextmanager
def open_index(url: str, pages: str, credentials: Credentials) -> Iterator[Index]:
    """Open the index that accepts uploads at `url`.

    `pages` is the address of its pages; empty for the usual paths below `url`. Raises PublishError.
    """
    repository = Repository(url, None, None, disable_progress_bar=not sys.stderr.isatty())
    if credentials.origin:
        repository.session.auth = _ServerAuth(url, credentials)
    for scheme in ("http://", "https://"):
        repository.session.mount(scheme, _TimeoutAdapter())
    with _convert_errors(urlsplit(url).netloc), contextlib.closing(repository):
        index = Index(pages=pages, credentials=credentials, repository=repository)
        address = pages or _find_pages(index, url)
        yield replace(index, pages=f"{address.rstrip('/')}/")


def check_url(url: str, option: str) -> SplitResult:
    """Return the parts of an address.

    Raises UsageError if it is invalid. The message does not repeat the address, because it may
    contain a password.
    """
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise UsageError(f"{option} is not a valid address") from None
    if "@" in url or parts.query or parts.fragment:
        raise UsageError(
            f"{option} must be an address without name, password and parameters",
            hint=f"Addresses appear in logs and process lists. {_HOW}",
        )
    if not is_complete:
        raise UsageError(f"{option} must be an address that begins with https:// or http://")
    return parts


def is_localhost(parts: SplitResult) -> bool:
    """Return whether the address is one of this machine's own."""
    host = parts.hostname or ""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def find_credentials(url: str, env: Mapping[str, str]) -> Credentials:
    """Find the credentials for an address in the environment, keyring or netrc.

    Raises UsageError if only one of name and password is set.
    """
    name, password = env.get("TWINE_USERNAME") or None, env.get("TWINE_PASSWORD") or None
    config = {"repository": url, "username": None, "password": None}
    resolver = Resolver.choose(interactive=False)(config, CredentialInput(name, password))
    try:
        origin = "the environment" if password else "keyring"
        return Credentials(
            name=resolver.username or "", password=resolver.password or "", origin=origin
        )
    except NonInteractive:
        if name or password:
            half = "TWINE_USERNAME" if name else "TWINE_PASSWORD"
            raise UsageError(f"{half} is set, but the other variable is not", hint=_HOW) from None
    pair = get_netrc_auth(url)
    return Credentials(name=pair[0], password=pair[1], origin="netrc") if pair else Credentials()


class _TimeoutAdapter(HTTPAdapter):
    """An HTTP adapter with a default timeout."""

    def send(self, *args: Any, **options: Any) -> requests.Response:  # noqa: ANN401
        options["timeout"] = options.get("timeout") or _PATIENCE_S
        return super().send(*args, **options)


def _find_pages(index: Index, url: str) -> str:
    places = [f"{url.rstrip('/')}/{place}" for place in _PLACES]
    for place in places:
        response = index.get(place)
        if response is not None:
            response.close()
            return place
    raise PublishError(
        f"found no pages of an index at {' or '.join(places)}",
        hint="Check the address, or pass the address of its pages: --simple URL",
    )


@contextlib.contextmanager
def _convert_errors(host: str) -> Iterator[None]:
    """Convert network errors to PublishError, without the library's long text."""
    try:
        yield
    except requests.RequestException as error:
        raise PublishError(
            f"the request to {host} failed ({_describe_cause(error)})",
            hint="Check the address and the network, then run the same command again",
        ) from error


def _describe_cause(error: BaseException) -> str:
    """Return the operating system's message if there is one, else the type of the error."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
