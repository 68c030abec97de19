"""Compressed bytes in, plain bytes out: gzip, zstd or neither, told by the first bytes and never by the name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backports import zstd
from isal import isal_zlib
from isal.igzip_lib import IsalError

from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bronze.limits import Limits

_OUTPUT_BYTES = 1 << 20


class Inflated:
    """The plain bytes of a source, block by block; `fault` says afterwards why it ended early, if it did."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        self._blocks = _peekable(blocks)
        self._limits = limits
        self.total_bytes = 0
        self.fault: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        first = self._blocks.peek()
        packing = next((known for known in (_GZIP, _ZSTD) if first.startswith(known.magic)), None)
        plain = iter(self._blocks) if packing is None else self._unpack(packing)
        for block in plain:
            self.total_bytes += len(block)
            if self.total_bytes > self._limits.max_inflated_bytes:
                raise EvidenceRejected(
                    f"it inflates to more than {self._limits.max_inflated_bytes:,} bytes",
                    "raise TEETOTAL_MAX_INFLATED_BYTES if you trust it",
                )
            if block:
                yield block

    def _unpack(self, packing: _Packing) -> Iterator[bytes]:
        """Inflate member after member, a bounded amount at a time, and say how it ended."""
        stream = packing.open()
        try:
            for block in self._blocks:
                rest = block
                while rest:
                    if stream.eof:
                        if not packing.magic.startswith(rest[: len(packing.magic)]):
                            self.fault = f"there are bytes after the end of the {packing.name} stream"
                            return
                        stream = packing.open()
                    yield stream.decompress(rest, _OUTPUT_BYTES)
                    while packing.has_more(stream):
                        yield stream.decompress(packing.left(stream), _OUTPUT_BYTES)
                    rest = stream.unused_data if stream.eof else b""
        except packing.error as error:
            self.fault = f"the {packing.name} stream is damaged: {error}"
            return
        if not stream.eof:
            self.fault = f"the {packing.name} stream is cut short"


@dataclass(frozen=True)
class _Packing:
    """One way to compress: how it begins, how it is opened, and what is left in it when its output is bounded."""

    name: str
    magic: bytes
    open: Callable[[], Any]
    has_more: Callable[[Any], bool]
    left: Callable[[Any], bytes]
    error: type[Exception]


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


class _peekable:  # noqa: N801 - an iterator adaptor, named like those of itertools
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._held: list[bytes] = []

    def peek(self) -> bytes:
        """The first bytes, at least four of them where the source has as many."""
        while sum(map(len, self._held)) < 4:
            block = next(self._blocks, None)
            if block is None:
                break
            self._held.append(block)
        self._held = [b"".join(self._held)]
        return self._held[0]

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return self._held.pop(0) if self._held else next(self._blocks)
