"""The nginx of docs/nginx.conf before a web server: its own text, with ports and paths of this machine."""

from __future__ import annotations

import base64
import contextlib
import http.client
import shutil
import socket
import ssl
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.web_interface import ROOT, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME, USER, PASSWORD = "lake.example.org", "ada", "correct horse"
_EXAMPLE = ROOT / "docs" / "nginx.conf"
_AROUND = """
daemon off;
master_process off;
pid DIRECTORY/pid;
events {}
http {
    access_log off;
    client_body_temp_path DIRECTORY/body;
    proxy_temp_path DIRECTORY/proxy;
    fastcgi_temp_path DIRECTORY/fastcgi;
    uwsgi_temp_path DIRECTORY/uwsgi;
    scgi_temp_path DIRECTORY/scgi;
    include DIRECTORY/teetotal.conf;
}
"""


@dataclass(frozen=True)
class Proxy:
    """An nginx at work."""

    port: int

    @property
    def origin(self) -> str:
        return f"https://{NAME}:{self.port}"

    def send(self, method: str, path: str, headers: dict[str, str], body: str | None = None) -> int:
        """Send a request as a browser would that was given the password; give the status."""
        own = {"Host": f"{NAME}:{self.port}", "Authorization": as_authorization(PASSWORD)}
        with contextlib.closing(
            http.client.HTTPSConnection("127.0.0.1", self.port, timeout=30, context=trust_anybody())
        ) as connection:
            connection.request(method, path, body, own | headers)
            return connection.getresponse().status


def as_authorization(password: str) -> str:
    """What a browser sends when a person has typed a password."""
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


def trust_anybody() -> ssl.SSLContext:
    """TLS without a look at the certificate, which is nobody's but the test's."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def serve_proxy(directory: Path, behind: str) -> Iterator[Proxy]:
    """Run nginx as the example says, before the server at this host and port."""
    _write_secrets(directory)
    port = _find_free_port()
    text = _EXAMPLE.read_text("utf-8")
    for ours, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/teetotal/", f"{directory}/"),
        ("http://127.0.0.1:3000", f"http://{behind}"),
    ):
        assert ours in text, f"{_EXAMPLE} says {ours!r} no more"
        text = text.replace(ours, here)
    (directory / "teetotal.conf").write_text(text, "utf-8")
    (directory / "nginx.conf").write_text(_AROUND.replace("DIRECTORY", str(directory)), "utf-8")
    log = directory / "log"
    with (
        log.open("w") as said,
        subprocess.Popen(
            [_find("nginx", "/usr/sbin"), "-e", "stderr", "-p", str(directory), "-c", "nginx.conf"], stderr=said
        ) as nginx,
    ):
        try:

            def answers() -> bool:
                assert nginx.poll() is None, log.read_text()
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            eventually(answers, "nginx answers", 30)
            yield Proxy(port)
        finally:
            nginx.terminate()


def _write_secrets(directory: Path) -> None:
    """A certificate for the name, and the file of passwords, by the commands that docs/operations.md names."""
    openssl = _find("openssl")
    made = ("-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={NAME}")
    files = ("-keyout", str(directory / "key.pem"), "-out", str(directory / "certificate.pem"))
    subprocess.run([openssl, "req", "-x509", *made, *files], check=True, capture_output=True)
    hashed = subprocess.run([openssl, "passwd", "-6", PASSWORD], check=True, capture_output=True, text=True).stdout
    (directory / "passwords").write_text(f"{USER}:{hashed}", "utf-8")


def _find(name: str, beside: str = "") -> str:
    found = shutil.which(name) or shutil.which(name, path=beside)
    assert found, f"no {name}: `make test` installs it on Debian (packages nginx, openssl)"
    return found


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
