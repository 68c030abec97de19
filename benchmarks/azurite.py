"""Azure's blob store on loopback: Azurite, which npm installs, behind what completes its listings.

Azure lists blobs from a name on (`startFrom`), and clients rely on it; Azurite passes over that and lists all of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import http.client
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from email.utils import formatdate
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from benchmarks.object_store import Emulator, StoreProxy, await_answer, run_proxy, serve_alone
from benchmarks.standalone import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

# Names the program `azurite-blob`, wherever it was installed.
VARIABLE = "TEETOTAL_AZURITE"
_ACCOUNT = "devstoreaccount1"
# The emulator's own, published by its makers: it opens nothing else.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_VERSION = "2021-08-06"
_BLOB = re.compile(r"<Blob>.*?<Name>(.*?)</Name>.*?</Blob>", re.DOTALL)


def azure_options_for(port: int) -> dict[str, str]:
    """The variables that name such a server."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": _KEY,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{_ACCOUNT}",
        "AZURE_ALLOW_HTTP": "true",
    }


class ListingProxy(StoreProxy):
    """Stands before Azurite and leaves out of a listing what lies before the name that it is to begin with."""

    def complete_answer(self, path: str, body: bytes) -> bytes:
        """The listing from that name on."""
        start = parse_qs(urlsplit(path).query).get("startFrom", [""])[0]
        if not start:
            return body
        return _BLOB.sub(lambda found: found[0] if html.unescape(found[1]) >= start else "", body.decode()).encode()


@contextmanager
def serve_azurite() -> Iterator[int]:
    """Azurite's blob service, in memory; gives the port at which its listings are complete."""
    port = free_port()
    words = ("--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry")
    command = [os.environ[VARIABLE], "--blobPort", str(port), *words]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_answer(f"http://127.0.0.1:{port}/")
        with run_proxy("benchmarks.azurite", port) as completed:
            yield completed
    finally:
        server.terminate()
        server.wait()


def make_container(port: int, name: str) -> str:
    """An empty container; gives its URL."""
    named = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _VERSION}
    headers = "\n".join(f"{key}:{value}" for key, value in named.items())
    # By Azure's rules for a shared key; the emulator's account stands twice in what is signed.
    text = "PUT" + "\n" * 12 + f"{headers}\n/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    signature = base64.b64encode(hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)).decode()
    connection = http.client.HTTPConnection("127.0.0.1", port)
    signed = {**named, "Authorization": f"SharedKey {_ACCOUNT}:{signature}"}
    connection.request("PUT", f"/{_ACCOUNT}/{name}?restype=container", headers=signed)
    answer = connection.getresponse()
    if answer.status != http.client.CREATED:
        raise AssertionError(f"no container was made: {answer.status} {answer.read()[:300]!r}")
    connection.close()
    return f"az://{name}"


_EXPIRED = b"<Error><Code>AuthenticationFailed</Code><Message>Signature not valid in its time.</Message></Error>"
AZURE = Emulator(serve_azurite, azure_options_for, make_container, _KEY, (403, _EXPIRED))


if __name__ == "__main__":
    serve_alone(ListingProxy(int(sys.argv[1])))
