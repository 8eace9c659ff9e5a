"""Where `--http` listens, and which names it answers to."""

import pytest

from routines.errors import UsageError
from routines.web.address import parse_address


@pytest.mark.parametrize(
    ("text", "ip", "port", "is_loopback"),
    [
        ("127.0.0.1:9464", "127.0.0.1", 9464, True),
        ("127.8.9.1:80", "127.8.9.1", 80, True),
        ("[::1]:9464", "::1", 9464, True),
        ("[0:0::1]:9464", "::1", 9464, True),
        ("localhost:0", "127.0.0.1", 0, True),
        ("0.0.0.0:9464", "0.0.0.0", 9464, False),
        ("[::]:9464", "::", 9464, False),
        ("192.0.2.7:9464", "192.0.2.7", 9464, False),
        # It reaches this machine, and on some systems so can others: it is not taken on trust.
        ("[::ffff:127.0.0.1]:9464", "::ffff:7f00:1", 9464, False),
    ],
)
def test_address_with_a_port_is_read(text, ip, port, is_loopback):
    address = parse_address(text)

    assert (address.port, address.is_loopback) == (port, is_loopback)
    assert address.ip in {ip, "::ffff:127.0.0.1"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "9464",
        ":9464",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:http",
        "127.0.0.1:-1",
        "127.0.0.1:99999",
        "127.0.0.1:٣",
        "::1:9464",
        "[]:9464",
        "http://127.0.0.1:9464",
        "no-such-host.invalid:9464",
        "a" * 70 + ":9464",
    ],
)
def test_what_is_no_address_is_called_wrongly(text):
    with pytest.raises(UsageError) as raised:
        parse_address(text)

    assert raised.value.hint


@pytest.mark.parametrize(
    ("http", "host", "answers"),
    [
        ("127.0.0.1:9464", "127.0.0.1:9464", True),
        ("127.0.0.1:9464", "127.0.0.1", True),
        # Forwarded by ssh or a container, it is reached at another port.
        ("127.0.0.1:9464", "localhost:19464", True),
        ("127.0.0.1:9464", "LocalHost:9464", True),
        ("[::1]:9464", "[::1]:9464", True),
        ("[::1]:9464", "[0::1]", True),
        ("localhost:9464", "localhost:9464", True),
        ("0.0.0.0:9464", "10.0.0.5:9464", True),
        ("0.0.0.0:9464", "localhost:9464", True),
        # A page whose own name was made to lead here.
        ("127.0.0.1:9464", "evil.example:9464", False),
        ("127.0.0.1:9464", "127.0.0.1.evil.example", False),
        ("127.0.0.1:9464", "localhost.evil.example:9464", False),
        ("127.0.0.1:9464", "localhost.", False),
        ("127.0.0.1:9464", "evil.example:127.0.0.1", False),
        ("127.0.0.1:9464", "127.0.0.1@evil.example", False),
        ("127.0.0.1:9464", "127.0.0.1:9464:9464", False),
        ("127.0.0.1:9464", "0.0.0.0:9464", False),
        ("127.0.0.1:9464", "10.0.0.5:9464", False),
        ("127.0.0.1:9464", "", False),
        ("127.0.0.1:9464", ":9464", False),
        ("[::1]:9464", "[::1", False),
        ("[::1]:9464", "[::1]evil.example", False),
        ("0.0.0.0:9464", "evil.example:9464", False),
        ("0.0.0.0:9464", "192.0.2.7", False),
        ("192.0.2.7:9464", "localhost", False),
        ("192.0.2.7:9464", "192.0.2.7:9464", True),
    ],
)
def test_it_answers_to_its_own_names_alone(http, host, answers):
    assert parse_address(http).answers_to(host, reached_at="10.0.0.5") is answers
