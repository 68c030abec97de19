"""How ranks find each other and agree on keys before the first message; all of them learn of any failure."""

from __future__ import annotations

import os
import secrets
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch.distributed as dist

from .errors import CollectorError, RingBroken
from .frames import LINK, Carrier, Place
from .links import KEY_BYTES, Chains, Ends, Handshake, Identity
from .rotation import Keys
from .shared_memory import SharedLink
from .wire import Link

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import ThreadPoolExecutor

Address = tuple[str, int]
# From the address on which a rank listens to the one that its peers should dial: a tunnel may stand between.
Via = Callable[[Address], Address]
# A host by name and boot, and the path of a socket there.
Nearby = tuple[str, str]
Message = TypeVar("Message")
_SHARE_BYTES, _SIGNATURE_BYTES = 32, 64
_LOCAL = {"localhost", "127.0.0.1", "::1"}


@dataclass(frozen=True)
class Member:
    """A rank's place in the ring and how it is reached."""

    rank: int
    ranks: int
    group: dist.ProcessGroup | None
    timeout_s: float

    @property
    def next(self) -> int:
        """The rank that it sends to."""
        return (self.rank + 1) % self.ranks

    @property
    def previous(self) -> int:
        """The rank that it receives from."""
        return (self.rank - 1) % self.ranks

    def gather(self, message: Message) -> list[Message]:
        """The message of every rank, by rank."""
        answers: list[Any] = [None] * self.ranks
        dist.all_gather_object(answers, message, group=self.group)
        return answers


def host() -> str:
    """The name that peers dial: this host alone where the job has only one."""
    return "127.0.0.1" if os.environ.get("MASTER_ADDR", "localhost") in _LOCAL else socket.gethostname()


def connect_neighbours(
    member: Member,
    identity: Identity | None,
    identities: Mapping[int, bytes] | None,
    chains: int,
    via: Via | None,
    transport: str,
) -> tuple[Carrier, list[bytes], list[bytes]]:
    """Connect to both neighbours; with an identity, prove who is who and agree on keys for both links."""
    name = host()
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1" if name in _LOCAL else "", 0), backlog=4))
        address: Address = (name, server.getsockname()[1])
        local, nearby = _local(stack) if via is None and transport == "auto" else (None, None)
        session = secrets.token_bytes(16)
        public = identity.public if identity else b""
        answers = member.gather((via(address) if via else address, public, session, nearby))
        known = {rank: answer[1] for rank, answer in enumerate(answers)} | dict(identities or {})
        # The session is everybody's: no rank can bring back an old one.
        whole = b"".join(answer[2] for answer in answers)
        is_shared = nearby is not None and all(answer[3] and answer[3][0] == nearby[0] for answer in answers)
        reason, found = "", None
        try:
            onward, inward = _dial(member, local if is_shared and local else server, answers[member.next], is_shared)
            found = _connect_sealed(member, onward, inward, identity, known, whole, chains)
        except (OSError, EOFError, CollectorError) as error:
            reason = f"rank {member.rank} could not join the ring: {str(error) or type(error).__name__}"
        reasons = [text for text in member.gather(reason) if text]
    if found is None or reasons:
        if found:
            for sock in found[:2]:
                sock.close()
        raise RingBroken("; ".join(reasons))
    onward, inward, onward_keys, inward_keys = found
    link = (SharedLink if is_shared else Link)(member.rank, member.ranks, onward, inward, member.timeout_s)
    return link, onward_keys, inward_keys


def _local(stack: ExitStack) -> tuple[socket.socket | None, Nearby | None]:
    """A socket in a folder of this user's alone, and what tells its host from others; none where that is not to be."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        # Two containers of one host do not see each other's files.
        token = f"{boot} {Path('/proc/self/ns/mnt').readlink()}"
        path = f"{stack.enter_context(tempfile.TemporaryDirectory(prefix='ring-'))}/link"
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(path)
        server.listen(4)
    except OSError:
        return None, None
    return server, (token, path)


def _dial(
    member: Member, server: socket.socket, address_card: tuple[Address, bytes, bytes, Nearby | None], is_shared: bool
) -> tuple[socket.socket, socket.socket]:
    server.settimeout(member.timeout_s)
    if is_shared and address_card[3]:
        onward = socket.socket(socket.AF_UNIX)
        onward.settimeout(member.timeout_s)
        onward.connect(address_card[3][1])
    else:
        onward = socket.create_connection(address_card[0], timeout=member.timeout_s)
    inward, _ = server.accept()
    inward.settimeout(member.timeout_s)
    return onward, inward


def _connect_sealed(
    member: Member,
    onward: socket.socket,
    inward: socket.socket,
    identity: Identity | None,
    known: Mapping[int, bytes],
    session: bytes,
    chains: int,
) -> tuple[socket.socket, socket.socket, list[bytes], list[bytes]]:
    if identity is None:
        return onward, inward, [], []
    me, to, fro = member.rank, member.next, member.previous
    sending = Handshake(Ends(session, me, to, known[me], known[to]), identity, is_sender=True)
    receiving = Handshake(Ends(session, fro, me, known[fro], known[me]), identity, is_sender=False)
    onward.sendall(sending.share)
    previous_share = _exactly(inward, _SHARE_BYTES)
    inward.sendall(receiving.share + receiving.signature(previous_share))
    next_share, next_signature = _exactly(onward, _SHARE_BYTES), _exactly(onward, _SIGNATURE_BYTES)
    onward_keys = sending.keys(next_share, next_signature, chains)
    onward.sendall(sending.signature(next_share))
    inward_keys = receiving.keys(previous_share, _exactly(inward, _SIGNATURE_BYTES), chains)
    return onward, inward, onward_keys, inward_keys


def share_keys(member: Member, link: Carrier, keys: Keys, chains: int, pool: ThreadPoolExecutor | None) -> Keys:
    """Give every rank every origin's keys, over the sealed links: what an origin seals, each member can open.

    This is the price of direct forwarding: a message is good for the whole group, no longer for one link alone.
    """
    mine = secrets.token_bytes(KEY_BYTES * chains)
    origins, travelling = {member.rank: mine}, mine
    length = keys.onward.sealed_bytes(len(mine))
    link.reserve(length, 1, 1)
    for hop in range(member.ranks - 1):
        # Distribution has places that no gradient has: collective and step are as high as they go.
        top = (1 << 64) - 1
        sent, due = (Place(LINK, hop, sender, 0, 0, hop, top, top, length) for sender in (member.rank, member.previous))
        out, opened = link.next_slot(length), bytearray(len(mine))
        keys.onward.seal(memoryview(travelling), sent.context(), out)
        link.send(sent, out)
        link.ask(due, None)
        came = link.take()
        keys.inward.open(came, due.context(), memoryview(opened))
        link.free(came)
        link.drain()
        travelling = bytes(opened)
        origins[(member.rank - 1 - hop) % member.ranks] = travelling

    def cut(whole: bytes) -> list[bytes]:
        return [whole[at : at + KEY_BYTES] for at in range(0, len(whole), KEY_BYTES)]

    return Keys(keys.onward, keys.inward, {rank: Chains(cut(whole), pool) for rank, whole in origins.items()})


def _exactly(sock: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = sock.recv(count - len(found))
        if not piece:
            raise EOFError("the other end hung up before the keys were agreed on")
        found += piece
    return bytes(found)
