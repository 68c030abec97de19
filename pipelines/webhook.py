"""One notification to a web address: a POST of JSON, with a token that no error, log or record repeats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lake.errors import ContractBroken, SourceUnavailable
from pipelines.web_address import WebAddress

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Webhook:
    """Where notifications go; the token is sent as `Authorization: Bearer …` and shown nowhere."""

    address: WebAddress
    token: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, token: str | None, variable: str) -> Webhook:
        """A webhook from its address; what is wrong is said without repeating it."""
        address = WebAddress.parse(url, variable)
        if token is not None and (not token.isascii() or not token.isprintable()):
            raise ContractBroken(f"the token for {variable} holds characters that no header takes", "set it again")
        return cls(address, token)

    def send(self, message: Mapping[str, Any]) -> None:
        """Post one message."""
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        status = self.address.post("the webhook", json.dumps(message).encode(), headers).status
        if not 200 <= status < 300:
            raise SourceUnavailable(f"the webhook at {self.address.host} answered {status}", "it is tried again")
