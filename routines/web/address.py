"""Where to listen, and whom to answer: an address of this machine, and the names it goes by."""

import ipaddress
import socket
from dataclasses import dataclass

from routines.errors import UsageError

_EXAMPLE = "write it as 127.0.0.1:9464, or [::1]:9464"


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on.

    Attributes:
        name: The host as it was given.
        ip: What it stands for.
        port: The port; 0 lets the system choose one.
    """

    name: str
    ip: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return ipaddress.ip_address(self.ip).is_loopback

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every address of this machine."""
        return ipaddress.ip_address(self.ip).is_unspecified

    @property
    def is_ipv6(self) -> bool:
        """Whether it is one of IPv6."""
        return ":" in self.ip

    def url(self, port: int) -> str:
        """Return where it is reached, at the *port* that it got."""
        return f"http://[{self.ip}]:{port}" if self.is_ipv6 else f"http://{self.ip}:{port}"

    def answers_to(self, host: str, *, reached_at: str) -> bool:
        """Return whether a `Host` header names this address.

        A page in a browser whose own name leads to 127.0.0.1 sends that name: it is refused.

        Args:
            host: The header.
            reached_at: The address of this machine that the connection came in at.
        """
        known = {self.name.lower(), self.ip}
        if self.is_loopback or self.is_wildcard:
            known.add("localhost")
        if self.is_wildcard:
            known.add(reached_at)
        return _host_of(host) in {_plain(one) for one in known}


def _host_of(header: str) -> str:
    """Return the host of a `Host` header without its port; empty if it is none."""
    text = header.strip().lower()
    if text.startswith("["):
        host, bracket, port = text[1:].partition("]")
        if not bracket or (port and not _is_port(port.removeprefix(":"))):
            return ""
        return _plain(host)
    host, colon, port = text.partition(":")
    return "" if colon and not _is_port(port) else _plain(host)


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _plain(host: str) -> str:
    """Return an IP address in the one form that it has; a name as it is."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def parse_address(text: str) -> Address:
    """Return the address that `HOST:PORT` names.

    Raises:
        UsageError: It is none, or this machine does not know the name.
    """
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not colon or not bare or not _is_port(port) or (":" in bare and bare == host):
        raise UsageError(f"{text!r} is no address with a port", hint=_EXAMPLE)
    if int(port) > 65535:  # noqa: PLR2004 - the last port there is
        raise UsageError(f"{text!r}: there is no port {port}", hint="the last one is 65535")
    return Address(name=bare, ip=_ip(bare), port=int(port))


def _ip(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"this machine knows no address of {host!r}", hint="give an IP address, 127.0.0.1"
        ) from error
    # IPv4 first: where `localhost` is both, that is what a scrape configuration most often says.
    ordered = sorted(found, key=lambda one: one[0] != socket.AF_INET)
    return str(ordered[0][4][0])
