"""Which requests are let in, by their headers alone."""

from __future__ import annotations

import pytest

from penstock.web.guard import BadAllowance, Guard

JSON_BODY = {"content-length": "2", "content-type": "application/json"}


def status(
    guard: Guard, method: str = "GET", host: str | None = "127.0.0.1:8088", **headers: str
) -> int | None:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if host is not None:
        given["host"] = host
    refusal = guard.refusal(
        method, [(name.encode(), value.encode("latin-1")) for name, value in given.items()]
    )
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8088", "127.1.2.3:1", "localhost", "LOCALHOST:99", "localhost.", "[::1]:8088"],
)
def test_names_of_loopback_are_taken_on_any_port(host):
    assert status(Guard(), host=host) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8088", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1",
     "[fe80::1]", "0.0.0.0:8088", "registry"],
)  # fmt: skip
def test_a_name_that_is_not_the_servers_is_refused(host):
    assert status(Guard(), host=host) == 403


@pytest.mark.parametrize(
    "host",
    ["", " ", ":80", "a b", "a/b", "user@localhost", "[::1", "::1", "localhost:80:80", "localhost:x", "[x]"],
)
def test_a_host_that_is_none_is_a_bad_request(host):
    assert status(Guard(), host=host) == 400


def test_a_request_without_a_host_is_not_a_browsers():
    assert status(Guard(), host=None) is None
    assert status(Guard(), "POST", None, **JSON_BODY, origin="http://evil.example") == 403


def test_two_hosts_or_origins_or_types_are_refused():
    for name in (b"host", b"origin", b"content-type"):
        refusal = Guard().refusal("GET", [(name, b"localhost"), (name, b"localhost")])
        assert refusal is not None and refusal.status == 400


def test_names_can_be_allowed():
    guard = Guard(hosts=["Registry", "*.example.com", "10.0.0.1", "[fd00::1]", ""])
    for host in ("registry:8081", "a.example.com", "a.b.example.com:1", "10.0.0.1", "[fd00::1]:8081"):
        assert status(guard, host=host) is None
    for host in ("example.com", "aexample.com", "10.0.0.2", "registry.evil.example"):
        assert status(guard, host=host) == 403
    assert status(Guard(hosts=["*"]), host="evil.example") is None


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "10.0.0.1", "broker-1", ""])
def test_a_server_that_others_reach_goes_by_its_addresses_and_not_by_any_name(bound):
    assert status(Guard(bound=bound), host="192.168.1.5:8081") is None
    assert status(Guard(bound=bound), host="[2001:db8::1]") is None
    assert status(Guard(bound=bound), host="evil.example") == 403


@pytest.mark.parametrize("bound", ["127.0.0.1", "localhost", "::1"])
def test_one_on_loopback_goes_by_loopback(bound):
    assert status(Guard(bound=bound), host="192.168.1.5") == 403


@pytest.mark.promise(
    "http",
    "A request body must have a JSON content type, and Origin and Sec-Fetch-Site must be the server's "
    "own or allowed",
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://evil.example", "http://localhost:3000", "http://localhost", "null", "",
     "http://localhost:8088.evil.example", "http://evil.example/localhost:8088", "file://localhost:8088",
     "localhost:8088", "http://user@localhost:8088", "http://127.0.0.1:8088"],
)  # fmt: skip
def test_a_page_of_another_origin_is_refused(method, origin):
    assert status(Guard(), method, "localhost:8088", origin=origin) == 403
    assert status(Guard(), method, "localhost:8088", origin=origin, **JSON_BODY) == 403


def test_a_page_of_the_server_is_taken():
    assert status(Guard(), "POST", "localhost:8088", origin="http://localhost:8088", **JSON_BODY) is None
    assert status(Guard(), "POST", "LocalHost:8088", origin="http://LOCALHOST:8088", **JSON_BODY) is None
    assert status(Guard(), "POST", "[::1]:8088", origin="http://[::1]:8088", **JSON_BODY) is None
    proxied = Guard(hosts=["sql.example.com"])
    assert status(proxied, "POST", "sql.example.com", origin="https://sql.example.com", **JSON_BODY) is None


@pytest.mark.promise(
    "http", "A request with a foreign host name that resolves to this machine (DNS rebinding) is rejected"
)
def test_a_page_under_a_rebound_name_is_refused_although_its_origin_is_its_host():
    assert status(Guard(), "POST", "evil.example:8088", origin="http://evil.example:8088", **JSON_BODY) == 403


def test_origins_can_be_allowed():
    guard = Guard(origins=["https://Console.example.com/"])
    assert (
        status(guard, "POST", origin="https://console.example.com", sec_fetch_site="cross-site", **JSON_BODY)
        is None
    )
    assert status(guard, "POST", origin="http://console.example.com", **JSON_BODY) == 403
    assert status(guard, "POST", origin="https://console.example.com:444", **JSON_BODY) == 403
    assert status(Guard(origins=["*"]), "POST", origin="null", **JSON_BODY) is None


@pytest.mark.promise(
    "http",
    "A request body must have a JSON content type, and Origin and Sec-Fetch-Site must be the server's "
    "own or allowed",
)
def test_what_a_browser_says_of_the_site_counts_where_there_is_no_origin():
    for site in ("cross-site", "same-site", "nonsense"):
        assert status(Guard(), "POST", sec_fetch_site=site) == 403
        assert status(Guard(), "GET", sec_fetch_site=site) is None, "a link to a page of the server"
    for site in ("same-origin", "none"):
        assert status(Guard(), "POST", sec_fetch_site=site, **JSON_BODY) is None


@pytest.mark.promise(
    "http",
    "A request body must have a JSON content type, and Origin and Sec-Fetch-Site must be the server's "
    "own or allowed",
)
@pytest.mark.parametrize("body", [{"content_length": "2"}, {"transfer_encoding": "chunked"}])
def test_a_body_must_be_json(body):
    for kind in ("application/json", "application/json; charset=utf-8", " Application/JSON ;x"):
        assert status(Guard(), "POST", content_type=kind, **body) is None
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "",
                 "json", "text/plain; application/json", "text/plain, application/json", "\xff"):  # fmt: skip
        assert status(Guard(), "POST", content_type=kind, **body) == 415
        assert status(Guard(untyped=True), "POST", content_type=kind, **body) == 415
    assert status(Guard(), "POST", **body) == 415


def test_without_a_body_there_is_no_type_to_check():
    assert status(Guard(), "POST", content_type="text/plain", content_length="0") is None
    assert status(Guard(), "DELETE") is None


def test_a_body_without_a_type_is_taken_where_the_server_says_so_but_from_no_browser():
    guard = Guard(untyped=True)
    assert status(guard, "POST", content_length="2") is None
    assert status(guard, "POST", content_length="2", sec_fetch_site="same-origin") == 415
    assert status(guard, "POST", "localhost", content_length="2", origin="http://localhost") == 415


def test_a_server_without_bodies_takes_none():
    assert status(Guard(types=()), "POST", **JSON_BODY) == 415
    assert status(Guard(types=()), "GET") is None


def test_a_refusal_says_what_to_do():
    def message(guard, *headers):
        refusal = guard.refusal("POST", headers)
        assert refusal is not None
        return refusal.message

    assert "--allow-host sql.example.com" in message(Guard(), (b"host", b"sql.example.com"))
    assert "--allow-origin" in message(Guard(), (b"host", b"localhost"), (b"origin", b"http://a"))
    typed = message(Guard(), (b"content-length", b"1"), (b"content-type", b"text/plain"))
    assert "'text/plain'" in typed and "'Content-Type: application/json'" in typed
    fixed = Guard(adjustable=False)
    assert "--allow" not in message(fixed, (b"host", b"x")) + message(fixed, (b"origin", b"http://a"))


def test_only_pages_of_allowed_origins_may_read_answers_and_are_told_what_they_may_send():
    guard = Guard(origins=["http://a"])
    asked = [(b"origin", b"http://a"), (b"access-control-request-method", b"PUT"),
             (b"access-control-request-headers", b"content-type")]  # fmt: skip
    assert (b"access-control-allow-origin", b"http://a") in guard.cors(asked)
    told = dict(guard.preflight("OPTIONS", asked))
    assert (
        told[b"access-control-allow-headers"] == b"content-type"
        and b"PUT" in told[b"access-control-allow-methods"]
    )
    assert guard.preflight("PUT", asked) is None and guard.preflight("OPTIONS", asked[:1]) is None
    assert guard.cors([(b"origin", b"http://b")]) == [] and guard.cors([]) == []


@pytest.mark.parametrize("name", ["a:80", "http://a", "a b", "*a", "a/*"])
def test_an_allowed_host_must_be_a_name(name):
    with pytest.raises(BadAllowance, match="--allow-host"):
        Guard(hosts=[name])


@pytest.mark.parametrize("origin", ["a", "a:80", "http://", "http://a/b", "null", "http://*.a"])
def test_an_allowed_origin_must_be_one(origin):
    with pytest.raises(BadAllowance, match="--allow-origin"):
        Guard(origins=[origin])
