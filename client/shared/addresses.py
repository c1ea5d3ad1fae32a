"""The list of shards as people type it."""

from __future__ import annotations

import re
from typing import Any

from grpc_ps.client.shared.errors import UsageError

MAX_PORT = 65535

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[A-Za-z0-9._-]+)?\]")


def parse_addresses(text: str, flag: str = "--ps") -> tuple[str, ...]:
    """Reads `HOST:PORT,HOST:PORT,...`, shard 0 first. Spaces around an item do not matter.

    Raises UsageError for anything else: it names the flag and quotes the item with its position.
    """
    items = [item.strip() for item in text.split(",")]
    if items == [""]:
        raise UsageError(f"{flag} {text!r}: the list of shards is empty; give HOST:PORT,HOST:PORT,...")
    addresses = tuple(_parse(item, f"{flag}: item {number} of {len(items)}") for number, item in enumerate(items, 1))
    for number, address in enumerate(addresses, 1):
        if address in addresses[: number - 1]:
            raise UsageError(
                f"{flag}: item {number} of {len(items)} {address!r} is there twice; each shard has its own"
            )
    return addresses


def addresses_of(given: Any, name: str) -> tuple[str, ...]:
    """Reads what a program gives as the keyword `name`: such a text, or a sequence of its items.

    Raises UsageError for anything else: it names the keyword and quotes the item with its position.
    """
    if isinstance(given, str):
        return parse_addresses(given, name)
    if not isinstance(given, (list, tuple)):
        raise UsageError(f'{name}: must be "HOST:PORT,..." or a list of "HOST:PORT"; it is {given!r}')
    for number, item in enumerate(given, 1):
        if not isinstance(item, str):
            raise UsageError(f'{name}: item {number} of {len(given)} is {item!r}; it must be a text, "HOST:PORT"')
    return parse_addresses(",".join(given), name)


def _parse(item: str, where: str) -> str:
    """Returns the address in its one form: lower case, the port without leading zeros."""
    if not item:
        raise UsageError(f"{where} {item!r} is empty")
    if "://" in item:
        raise UsageError(f"{where} {item!r} is a URL; give HOST:PORT alone")
    host, colon, port = item.rpartition(":")
    if _IPV6.fullmatch(item) or not colon:
        raise UsageError(f"{where} {item!r} has no port; give HOST:PORT")
    if not host:
        raise UsageError(f"{where} {item!r} has no host; give HOST:PORT")
    if not _HOST.fullmatch(host) and not _IPV6.fullmatch(host):
        hint = "put an IPv6 address in brackets: [::1]:2222" if ":" in host else "it is no host name"
        raise UsageError(f"{where} {item!r} has the host {host!r}; {hint}")
    return f"{host.lower()}:{_port(port, item, where)}"


def _port(port: str, item: str, where: str) -> int:
    if not (port.isascii() and port.isdigit() and 1 <= int(port[:9]) <= MAX_PORT):
        hint = "; put an IPv6 address in brackets: [::1]:2222" if item.startswith("[") or item.count(":") > 1 else ""
        raise UsageError(f"{where} {item!r} has the port {port!r}; it is 1 to {MAX_PORT}{hint}")
    return int(port)
