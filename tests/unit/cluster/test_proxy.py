"""Which connections use a proxy. The cases are those of Go's httpproxy and of curl, where curl has the same rule."""

from __future__ import annotations

import kubernetes
import pytest

from triton_operator.cluster.proxy import bypasses, choose, named

GO = (
    "foobar.com, .barbaz.net, *.wildcard.io, 192.168.1.1, 192.168.1.2:81, 192.168.1.3:80, 10.0.0.0/30, "
    "2001:db8::52:0:1, [2001:db8::52:0:2]:443, [2001:db8::52:0:3]:80, 2002:db8:a::45/64"
)
GO_DIRECT = [
    "localhost", "127.0.0.1", "127.0.0.2", "[::1]", "192.168.1.1", "192.168.1.3", "10.0.0.2", "[2001:db8::52:0:1]",
    "[2001:db8::52:0:3]", "[2002:db8:a::123]", "www.barbaz.net", "foobar.com", "www.foobar.com", "nested.wildcard.io",
]  # fmt: skip
GO_PROXIED = [
    "[::2]", "192.168.1.2", "192.168.1.4", "[2001:db8::52:0:2]", "[fe80::424b:c8be:1643:a1b6]", "barbaz.net",
    "foofoobar.com", "baz.com", "localhost.net", "local.localhost", "barbarbaz.net", "wildcard.io", "awildcard.io",
]  # fmt: skip


@pytest.mark.parametrize("host", GO_DIRECT + GO_PROXIED)
def test_hosts_as_in_go(host: str) -> None:
    assert bypasses(f"http://{host}:80", GO) == (host in GO_DIRECT)
    assert bypasses(f"http://{host}", GO) == (host in GO_DIRECT)
    assert bypasses(f"http://{host}:80", "*")


@pytest.mark.parametrize(
    ("host", "no_proxy", "direct"),
    [
        ("www.example.com", "localhost,.example.com,.example.de", True),
        ("example.com", "localhost,example.com,.example.de", True),
        ("www.example.com", "www2.example.com, .example.net", False),
        ("nonexample.com", ".example.com, .example.net", False),
        ("example.com", "ample.com", False),
        ("example.com", "*example.com", False),
        ("foobar", "barfoo", False),
        ("foobar", "foobar", True),
        ("BAr", "foo,,,,,              bar, ::1/64", True),
        ("192.168.0.1", "foobar", False),
        ("192.168.0.1", "192.168.0.0/16", True),
        ("192.168.0.1", "192.168.0.0/24", True),
        ("192.168.0.1", "192.168.0.9/24", True),
        ("192.168.0.1", "192.168.0.0/32", False),
        ("192.168.0.1", "192.168.0.0", False),
        ("192.168.0.1", "192.168.0.0/33", False),
        ("192.168.1.1", "foo, bar, 192.168.0.0/24", False),
        ("192.168.1.1", "foo, bar, 192.168.0.0/16", True),
        ("[fe80::ab47:4396:55c9:8474]", "foo, fe80::1/64", True),
        ("[fe80::1]", "foo, bar, 192.168.0.0/16", False),
        ("10.0.0.1", "0.0.1,.1", False),
        ("[1000::%25.example.com]", "example.com", False),
        # These must not end the process.
        ("example.com", ":1", False),
        ("example.com", "[, ], [], :, *., ., /8, http://example.com", False),
        ("172.30.0.1", ".cluster.local,.svc,10.0.0.0/16,10.128.0.0/14,172.30.0.0/16,127.0.0.1,localhost", True),
    ],
)
def test_hosts_as_in_go_and_curl(host: str, no_proxy: str, direct: bool) -> None:
    assert bypasses(f"https://{host}:6443", no_proxy) == direct


def test_without_a_port_in_the_url_it_is_the_schemes() -> None:
    assert bypasses("https://api.example.com", "api.example.com:443")
    assert not bypasses("https://api.example.com:6443", "api.example.com:443")


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("https://api", {}, ""),
        ("https://api", {"HTTP_PROXY": "http.proxy.tld"}, ""),
        ("http://api", {"HTTP_PROXY": "127.0.0.1:8080"}, "http://127.0.0.1:8080"),
        ("http://api", {"HTTP_PROXY": "localhost"}, "http://localhost"),
        ("https://api", {"HTTP_PROXY": "a", "https_proxy": "https://secure.proxy.tld"}, "https://secure.proxy.tld"),
        ("https://api", {"HTTPS_PROXY": "upper", "https_proxy": "lower"}, "http://upper"),
    ],
)
def test_proxy_of_the_environment(url: str, env: dict[str, str], proxy: str) -> None:
    assert named(url, env) == proxy


@pytest.mark.parametrize(
    ("of_kubeconfig", "env", "url", "no_proxy"),
    [
        (None, {}, None, "-"),
        (None, {"HTTPS_PROXY": "http://proxy", "NO_PROXY": "10.0.0.0/16"}, "http://proxy:80", "-"),
        (None, {"HTTPS_PROXY": "http://proxy", "no_proxy": "10.0.0.0/8"}, "http://proxy:80", "*"),
        ("https://other/", {"HTTPS_PROXY": "http://proxy", "NO_PROXY": "*"}, "https://other:443", "-"),
        ("socks5://other:1080", {}, "socks5://other:1080", "-"),
    ],
)
def test_the_kubeconfigs_proxy_is_first(
    of_kubeconfig: str | None, env: dict[str, str], url: str | None, no_proxy: str
) -> None:
    configuration = kubernetes.client.Configuration("https://10.1.0.1:443")
    configuration.proxy = of_kubeconfig
    choose(configuration, env)
    assert (configuration.proxy, configuration.no_proxy) == (url, no_proxy)


def test_credentials_become_a_header() -> None:
    configuration = kubernetes.client.Configuration("https://10.1.0.1:443")
    configuration.proxy = None
    choose(configuration, {"HTTPS_PROXY": "http://user:p%40ss@proxy:3128"})
    assert configuration.proxy == "http://user:p%40ss@proxy:3128"
    assert configuration.proxy_headers == {"proxy-authorization": "Basic dXNlcjpwQHNz"}
