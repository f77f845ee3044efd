"""The proxy for the API server: kubectl's rule for every HTTP library.

urllib3, aiohttp and websocket-client each have a rule of their own, and only some know a CIDR in NO_PROXY. So the
choice is made here, once, and they get its result instead of the environment.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

import kubernetes
import urllib3.util

_PORTS = {"http": 80, "https": 443}


def choose(configuration: kubernetes.client.Configuration, env: Mapping[str, str]) -> None:
    """Sets the proxy: that of the kubeconfig, which `configuration` has already, otherwise that of the environment.

    NO_PROXY doesn't restrict a kubeconfig's `proxy-url`, as in kubectl.
    """
    server, chosen = configuration.host, configuration.proxy
    bypassed = not chosen and bypasses(server, env.get("NO_PROXY") or env.get("no_proxy", ""))
    # With no proxy, or an empty list, websocket-client would read the environment. Nothing has the name "-".
    configuration.no_proxy = "*" if bypassed else "-"
    if not (proxy := chosen or named(server, env)):
        configuration.proxy = None
        return
    parts = urlsplit(proxy)
    # websocket-client demands a port.
    host = parts.netloc if parts.port else f"{parts.netloc}:{_PORTS.get(parts.scheme, 1080)}"
    configuration.proxy = f"{parts.scheme}://{host}"
    if parts.username:
        # urllib3 doesn't take them from the URL.
        credentials = unquote(f"{parts.username}:{parts.password or ''}")
        configuration.proxy_headers = urllib3.util.make_headers(proxy_basic_auth=credentials)


def named(url: str, env: Mapping[str, str]) -> str:
    """Returns the proxy that the environment names for URLs with this scheme; "" without one."""
    name = f"{urlsplit(url).scheme}_proxy"
    proxy = env.get(name.upper()) or env.get(name, "")
    return proxy if "://" in proxy or not proxy else f"http://{proxy}"


def bypasses(url: str, no_proxy: str) -> bool:
    """Returns whether requests to this URL use no proxy: with Go's rules, which kubectl and OpenShift's own parts have.

    An entry of `no_proxy` is `*`, an address, a CIDR, a name, which includes the names below it, or `.name` or
    `*.name`, which are only those below it. All but a CIDR may have a port. Loopback never uses a proxy.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme)
    network = _network(host)
    if host == "localhost" or (network and network.is_loopback):
        return True
    for entry in (e.strip().lower() for e in no_proxy.split(",")):
        name, _, its_port = entry.rpartition(":")
        # The last colon of an IPv6 address precedes no port.
        if _network(entry) or not its_port.isdecimal():
            name, its_port = entry, ""
        if entry == "*" or (_covers(name, host, network) and its_port in ("", str(port))):
            return True
    return False


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _covers(name: str, host: str, network: _Network | None) -> bool:
    if network:
        among = _network(name.strip("[]"))
        return among is not None and network.network_address in among
    name = name[1:] if name.startswith("*.") else name
    return bool(name) and (host == name or host.endswith(name if name.startswith(".") else f".{name}"))


def _network(text: str) -> _Network | None:
    """Returns an address or a CIDR as a network; None for anything else."""
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
