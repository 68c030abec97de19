"""Compressed bytes in, plain bytes out: gzip, zstd or neither, told by the first bytes and never by the name."""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backports import zstd
from isal import isal_zlib
from isal.igzip_lib import IsalError

from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bronze.limits import Limits


@dataclass(frozen=True)
class _Packing:
    """One way to compress: how it begins, how it is opened, and what is left in it when its output is bounded."""

    name: str
    magic: bytes
    open: Callable[[], Any]
    has_more: Callable[[Any], bool]
    left: Callable[[Any], bytes]
    error: type[Exception]
    output_bytes: int = 1 << 20


_GZIP = _Packing(
    name="gzip",
    magic=b"\x1f\x8b",
    open=lambda: isal_zlib.decompressobj(wbits=31),
    has_more=lambda stream: bool(stream.unconsumed_tail) and not stream.eof,
    left=lambda stream: stream.unconsumed_tail,
    error=IsalError,  # type: ignore[arg-type]  # the stub takes the class for an instance
)
_ZSTD = _Packing(
    name="zstd",
    magic=b"\x28\xb5\x2f\xfd",
    open=zstd.ZstdDecompressor,
    has_more=lambda stream: not stream.eof and not stream.needs_input,
    left=lambda _: b"",
    error=zstd.ZstdError,
)


# Up to so many plain bytes the ratio is not asked.
_ANY_RATIO_BYTES = 16 << 20
_SAVED_BYTES = 32
_TRAILER_BYTES = 8


class Inflated:
    """The plain bytes of a source, block by block; `fault` says afterwards why it ended early, if it did.

    `again` gives the source once more from its beginning, to save what a damaged stream holds up to the damage.
    """

    def __init__(
        self, blocks: Iterator[bytes], limits: Limits, again: Callable[[], Iterator[bytes]] | None = None
    ) -> None:
        self._blocks = blocks
        self._limits = limits
        self._again = again
        self.total_bytes = 0
        self._packed_bytes = 0
        self.fault: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        held = b""
        while len(held) < 4 and (block := next(self._blocks, None)) is not None:
            held += block
        blocks = itertools.chain((held,), self._blocks)
        packing = next((known for known in (_GZIP, _ZSTD) if held.startswith(known.magic)), None)
        for block in blocks if packing is None else self._unpack(packing, self._count_blocks(blocks)):
            self.total_bytes += len(block)
            if self.total_bytes > self._limits.max_inflated_bytes:
                raise EvidenceRejected(
                    f"it inflates to more than {self._limits.max_inflated_bytes:,} bytes",
                    "raise TEETOTAL_MAX_INFLATED_BYTES if you trust it, and run with --full",
                )
            if packing is not None:
                self._require_ratio()
            if block:
                yield block

    def _require_ratio(self) -> None:
        """Refuse what inflates to more than telemetry does; a small file may be anything."""
        most = self._limits.max_inflation_ratio
        if self.total_bytes > max(_ANY_RATIO_BYTES, most * self._packed_bytes):
            raise EvidenceRejected(
                f"it inflates to more than {most:,} times its size: {self._packed_bytes:,} bytes gave "
                f"{self.total_bytes:,} so far",
                "raise TEETOTAL_MAX_INFLATION_RATIO if you trust it, and run with --full",
            )

    def _count_blocks(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        for block in blocks:
            self._packed_bytes += len(block)
            yield block

    def _unpack(self, packing: _Packing, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """Inflate member after member, a bounded amount at a time, and say how it ended."""
        stream = packing.open()
        try:
            for block in blocks:
                rest = block
                while rest:
                    if stream.eof:
                        rest = rest.lstrip(b"\x00")  # padding is no fault
                        if not packing.magic.startswith(rest[: len(packing.magic)]):
                            self.fault = f"there are bytes after the end of the {packing.name} stream"
                            return
                        stream = packing.open() if rest else stream
                    if rest:
                        yield stream.decompress(rest, packing.output_bytes)
                    while packing.has_more(stream):
                        yield stream.decompress(packing.left(stream), packing.output_bytes)
                    rest = stream.unused_data if stream.eof and rest else b""
        except packing.error as error:
            self.fault = f"the {packing.name} stream is damaged: {error}"
            if packing is _GZIP and self._again is not None:
                yield from self._salvage(self._again())
            return
        if not stream.eof:
            self.fault = f"the {packing.name} stream is cut short"

    def _salvage(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """What a damaged gzip stream holds beyond what has been given already.

        A decompressor that meets an error keeps what it had made in that call to itself. So this one is asked for a few
        bytes at a time, and is given the bare deflate stream: a wrong checksum behind it costs nothing.
        """
        rest, stream, made, given = b"", None, 0, self.total_bytes
        for block in itertools.chain(blocks, (b"",)):
            rest += block
            while rest or (stream is not None and stream.unconsumed_tail):
                if stream is None:
                    start = _header_bytes(rest)
                    if start is None:
                        break
                    stream, rest = zlib.decompressobj(wbits=-15), rest[start:]
                try:
                    piece = stream.decompress(stream.unconsumed_tail or rest, _SAVED_BYTES)
                except zlib.error:
                    return
                rest = rest if stream.unconsumed_tail and not rest else b""
                made += len(piece)
                if made > given:
                    yield piece[max(0, len(piece) - (made - given)) :]
                if stream.eof:
                    rest, stream = stream.unused_data[_TRAILER_BYTES:] + rest, None


def _header_bytes(data: bytes) -> int | None:
    """How long the gzip header at the front is; none where it is no whole header."""
    if len(data) < 10 or not data.startswith(_GZIP.magic):
        return None
    flags, end = data[3], 10
    if flags & 4:
        end += 2 + int.from_bytes(data[end : end + 2], "little")
    for text in (8, 16):
        if flags & text:
            end = data.find(b"\x00", end) + 1
            if not end:
                return None
    end += 2 if flags & 2 else 0
    return end if end <= len(data) else None
