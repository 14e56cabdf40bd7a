from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tfbuild.machine import network


class Handler(BaseHTTPRequestHandler):
    """Answers /404 with 404 and so on; as a proxy it is asked for whole addresses."""

    asked: list[str]
    date = ""

    def do_HEAD(self) -> None:
        self.asked.append(self.path)
        status = self.path.rpartition("/")[2]
        self.send_response_only(int(status) if status.isdecimal() else 200)
        self.send_header("Date", self.date or self.date_time_string())
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Tests are quiet."""


@contextlib.contextmanager
def served(date: str = "") -> Iterator[tuple[str, list[str]]]:
    """A server's address and what it was asked for."""
    requests: list[str] = []
    handler = type("Here", (Handler,), {"asked": requests, "date": date})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", requests
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("path", "reached"), [("", True), ("404", True), ("403", True), ("503", False), ("407", False)]
)
def test_a_host_is_reached_when_it_answers_itself(path: str, reached: bool) -> None:
    with served() as (address, requests):
        (host_answer,) = network.query_hosts([f"http://{address}/{path}"], {})
    assert requests == [f"/{path}"]
    assert host_answer.reached is reached
    assert host_answer.said == f"HTTP {path or 200}"
    assert host_answer.host == "127.0.0.1"
    assert host_answer.proxy == ""


def test_an_address_that_cannot_be_parsed_is_not_reached() -> None:
    (host_answer,) = network.query_hosts(
        ["http://[me:secret@bad/"], {"http_proxy": "http://[proxy"}
    )
    assert not host_answer.reached
    assert "secret" not in repr(host_answer)


def test_a_proxy_that_is_none_reaches_nothing() -> None:
    (host_answer,) = network.query_hosts(["http://127.0.0.1:9/"], {"http_proxy": "http://[proxy"})
    assert not host_answer.reached


def test_a_proxy_is_asked_instead_and_its_password_is_not_shown() -> None:
    with served() as (address, requests):
        env = {"http_proxy": f"http://user:secret@{address}"}
        (host_answer,) = network.query_hosts(["http://nowhere.invalid/x"], env)
    assert requests == ["http://nowhere.invalid/x"]
    assert host_answer.reached
    assert host_answer.proxy == address
    assert "secret" not in repr(host_answer)


def test_a_password_in_an_address_is_neither_sent_nor_shown() -> None:
    with served() as (address, requests):
        (host_answer,) = network.query_hosts([f"http://user:secret@{address}/401"], {})
    assert requests == ["/401"]
    assert host_answer.reached
    assert "secret" not in repr(host_answer)


def test_no_proxy_is_asked_for_an_excepted_host() -> None:
    with served() as (address, requests):
        env = {"HTTP_PROXY": "http://127.0.0.1:9", "no_proxy": "example.org,127.0.0.1"}
        (host_answer,) = network.query_hosts([f"http://{address}/x"], env)
    assert host_answer.reached
    assert requests == ["/x"]


@pytest.mark.parametrize(
    ("env", "proxy"),
    [
        ({}, ""),
        ({"http_proxy": "http://p:1"}, ""),
        ({"https_proxy": "http://p:1", "HTTPS_PROXY": "http://q:2"}, "http://p:1"),
        ({"HTTPS_PROXY": "q:2"}, "q:2"),
        ({"https_proxy": "http://p:1", "no_proxy": ".org"}, ""),
        ({"https_proxy": "http://p:1", "NO_PROXY": "*"}, ""),
        ({"https_proxy": "http://p:1", "no_proxy": "other.org"}, "http://p:1"),
    ],
)
def test_the_environment_names_the_proxy(env: dict[str, str], proxy: str) -> None:
    assert network.find_proxy("https://files.example.org/x", env) == proxy


def test_a_closed_port_and_a_proxy_that_is_gone_say_why() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"  # bound, but nobody listens
        direct, through = network.query_hosts(
            [f"http://{address}/", "https://nowhere.invalid/"], {"https_proxy": f"http://{address}"}
        )
    assert not direct.reached
    assert "refused" in direct.said
    assert not through.reached
    assert (through.proxy, "refused" in through.said) == (address, True)


def test_who_never_answers_does_not_hold_the_others_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, served() as (address, _):
        mute = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        host_answers = network.query_hosts([mute, f"http://{address}/", mute], {}, limit_s=0.5)
    assert [host_answer.reached for host_answer in host_answers] == [False, True]
    assert "time" in host_answers[0].said or "no answer within 0.5 s" in host_answers[0].said


def test_the_clocks_are_compared() -> None:
    with served() as (address, _):
        (host_answer,) = network.query_hosts([f"http://{address}/"], {})
    assert host_answer.skew_s is not None
    assert abs(host_answer.skew_s) < 10
    with served("Sat, 01 Jan 2000 00:00:00 GMT") as (address, _):
        (host_answer,) = network.query_hosts([f"http://{address}/"], {})
    assert host_answer.skew_s is not None
    assert host_answer.skew_s > 10 * 365 * 86_400
    with served("yesterday") as (address, _):
        (host_answer,) = network.query_hosts([f"http://{address}/"], {})
    assert (host_answer.reached, host_answer.skew_s) == (True, None)


def test_an_address_that_is_none_is_not_reached() -> None:
    (host_answer,) = network.query_hosts(["https://"], {})
    assert not host_answer.reached
