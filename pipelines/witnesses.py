"""Witnesses of the log (C2SP tlog-witness): each remembers what it saw last, and countersigns what goes on from there.

Who holds the signing key could show two people two histories. A witness would have to countersign both, and one that
is honest countersigns one.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

from lake.errors import ContractBroken, EvidenceRejected, SourceUnavailable
from lake.lineage.merkle import prove_consistency
from lake.lineage.notes import list_cosigners, read_checkpoint
from pipelines.web_address import WebAddress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake.lineage.keys import Trust
    from pipelines.web_address import Answer

_SIZE = "text/x.tlog.size"
_REWRITTEN = "the log was put back, rewritten or forked since: `teetotal verify --since` an older checkpoint says more"


def countersign(checkpoint: str, hashes: Sequence[bytes], url: str, trust: Trust) -> str:
    """The checkpoint with what one witness adds to it; `hashes` are the leaves of the log that it is of."""
    address, size = WebAddress.parse(url, "--witness"), read_checkpoint(checkpoint, (), "the checkpoint")[0].size
    answer = _submit(address, checkpoint, hashes[:size], 0)
    seen = _read_size(answer)
    if seen is not None and 0 < seen <= size:
        answer = _submit(address, checkpoint, hashes[:size], seen)
    if answer.status != 200:
        raise _describe_refusal(address, answer, size, checkpoint)
    # One line at a time, beside no other: what is not of a witness that is believed is left out.
    body = checkpoint.partition("\n\n")[0] + "\n\n"
    lines = dict.fromkeys(f"{line}\n" for line in answer.body.split("\n"))
    own = [line for line in lines if line not in checkpoint and list_cosigners(body + line, trust.witnesses)]
    if not own:
        raise EvidenceRejected(
            f"the witness at {address.host} answered without a signature of a witness that {trust.place} lists",
            "put its public key there, as a line name+hash+key",
        )
    return checkpoint + "".join(own)


def _submit(address: WebAddress, checkpoint: str, hashes: Sequence[bytes], seen: int) -> Answer:
    """Ask for a cosignature, with the proof that the log goes on from what the witness has seen."""
    proof = "".join(f"{base64.b64encode(node).decode()}\n" for node in prove_consistency(hashes, seen))
    body = f"old {seen}\n{proof}\n{checkpoint}".encode()
    return address.post("the witness", body, {"Content-Type": "text/plain; charset=utf-8"}, "/add-checkpoint")


def _read_size(answer: Answer) -> int | None:
    """How many statements the witness has seen, where it says that it was not what we took it for."""
    is_told = answer.status == 409 and answer.kind == _SIZE and re.fullmatch(r"[0-9]{1,18}\n?", answer.body)
    return int(answer.body) if is_told else None


def _describe_refusal(
    address: WebAddress, answer: Answer, size: int, checkpoint: str
) -> ContractBroken | EvidenceRejected | SourceUnavailable:
    seen = _read_size(answer)
    if seen is not None and seen > size:
        return ContractBroken(
            f"the witness at {address.host} has countersigned {seen:,} statements, and the log holds {size:,}",
            _REWRITTEN,
        )
    if answer.status in {409, 422}:
        return ContractBroken(
            f"the witness at {address.host} has countersigned a log that this one does not continue", _REWRITTEN
        )
    if answer.status in {403, 404}:
        origin = checkpoint.partition("\n")[0]
        return EvidenceRejected(
            f"the witness at {address.host} does not know the log {origin} or its key ({answer.status})",
            "give whoever runs it what `teetotal signing list` prints",
        )
    return SourceUnavailable(f"the witness at {address.host} answered {answer.status}", "try again")
