"""Whether an address leads anywhere: its name, and a TCP connection."""

from __future__ import annotations

import socket

from grpc_ps.client.doctor.check import PEER, Check, fail, ok, warn, within


def split(address: str) -> tuple[str, int]:
    """Splits host:port; brackets of an IPv6 address go."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def resolve(address: str, seconds: float) -> list[str]:
    """Returns all IP addresses of a host, in the order in which they are tried.

    Raises:
        OSError: it has none, with a text for people; TimeoutError is one of those.
    """
    host, port = split(address)
    try:
        found = within(seconds, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    except socket.gaierror as error:
        raise OSError(f"{host} cannot be resolved: {error.strerror}; is it spelled right?") from None
    except TimeoutError:
        raise TimeoutError(f"{host} was not resolved within {seconds:g} s: is the name server reachable?") from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def check_reached(name: str, address: str, seconds: float) -> Check:
    """Resolves and connects; what is found of each IP address is said, for a process tries them all."""
    try:
        addresses = resolve(address, seconds)
    except OSError as error:
        return fail(name, f"{address}: {error}", PEER)
    failures = {ip: why for ip in addresses if (why := _connect(ip, split(address)[1], seconds / len(addresses)))}
    if not failures:
        return ok(name, f"{address}: connects to {', '.join(addresses)}")
    # One address that is typed as such need not be said again.
    typed = [split(address)[0]] == addresses
    said = "; ".join(why if typed else f"{ip}: {why}" for ip, why in failures.items())
    if len(failures) < len(addresses):
        connected = ", ".join(ip for ip in addresses if ip not in failures)
        return warn(name, f"{address}: connects to {connected}, not to {said}")
    return fail(name, f"{address}: {said}", PEER)


def _connect(ip: str, port: int, seconds: float) -> str:
    """Returns what went wrong, or nothing."""
    try:
        socket.create_connection((ip, port), timeout=seconds).close()
    except TimeoutError:
        return f"no answer within {seconds:g} s: is the machine up, does a firewall swallow port {port}?"
    except ConnectionRefusedError:
        return "nothing listens there: start psserver first, or mend the port in --ps"
    except OSError as error:
        return error.strerror or str(error)
    return ""
