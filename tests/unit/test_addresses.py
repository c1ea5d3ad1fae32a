"""Lists of shards: every malformed one is refused with the item and its position, before any socket is opened."""

from __future__ import annotations

import pytest

from grpc_ps.client.shared.addresses import parse_addresses
from grpc_ps.client.shared.errors import UsageError


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a:1", ("a:1",)),
        ("a:1, b:2", ("a:1", "b:2")),
        (" a:1 ,\tb:2 ", ("a:1", "b:2")),
        ("localhost:2222,127.0.0.1:2222", ("localhost:2222", "127.0.0.1:2222")),
        ("[::1]:2222,[fe80::1%eth0]:65535", ("[::1]:2222", "[fe80::1%eth0]:65535")),
        ("Node-1.example.com:0080", ("node-1.example.com:80",)),
    ],
)
def test_b07_lists_are_read_in_order(text: str, addresses: tuple[str, ...]) -> None:
    assert parse_addresses(text) == addresses


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--ps '': the list of shards is empty; give HOST:PORT,HOST:PORT,..."),
        (",", "--ps: item 1 of 2 '' is empty"),
        ("a:1,", "--ps: item 2 of 2 '' is empty"),
        (",a:1", "--ps: item 1 of 2 '' is empty"),
        ("a:1,,b:2", "--ps: item 2 of 3 '' is empty"),
        ("a", "--ps: item 1 of 1 'a' has no port; give HOST:PORT"),
        ("a:", "--ps: item 1 of 1 'a:' has the port ''; it is 1 to 65535"),
        (":1", "--ps: item 1 of 1 ':1' has no host; give HOST:PORT"),
        ("b:1,a:0", "--ps: item 2 of 2 'a:0' has the port '0'; it is 1 to 65535"),
        ("a:70000", "--ps: item 1 of 1 'a:70000' has the port '70000'; it is 1 to 65535"),
        ("a:99999999999999999999", "--ps: item 1 of 1 'a:99999999999999999999' has the port"),
        ("a:x", "--ps: item 1 of 1 'a:x' has the port 'x'; it is 1 to 65535"),
        ("a:-1", "--ps: item 1 of 1 'a:-1' has the port '-1'; it is 1 to 65535"),
        ("http://a:1", "--ps: item 1 of 1 'http://a:1' is a URL; give HOST:PORT alone"),
        ("a:1,a:1", "--ps: item 2 of 2 'a:1' is there twice; each shard has its own"),
        ("a:1,b:1,A:01", "--ps: item 3 of 3 'a:1' is there twice; each shard has its own"),
        ("a b:1", "--ps: item 1 of 1 'a b:1' has the host 'a b'; it is no host name"),
        ("a:1;b:2", "--ps: item 1 of 1 'a:1;b:2' has the host 'a:1;b'; put an IPv6 address in brackets: [::1]:2222"),
    ],
)
def test_b07_malformed_lists_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_addresses(text)
    assert str(caught.value).startswith(message)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["::1:2222", "[::1]:x", "::1", "[::1:2222", "::1]:2222"])
def test_b65_malformed_ipv6_gets_a_hint_about_brackets(text: str) -> None:
    with pytest.raises(UsageError, match=r"put an IPv6 address in brackets: \[::1\]:2222"):
        parse_addresses(text)


def test_b65_ipv6_without_port_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'\[::1\]' has no port"):
        parse_addresses("[::1]")


def test_the_flag_is_named() -> None:
    with pytest.raises(UsageError, match=r"^--lead: item 1"):
        parse_addresses("x", "--lead")
