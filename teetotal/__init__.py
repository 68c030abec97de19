"""teetotal for Python: `teetotal.open(path)` gives a lake, whose tables and answers are frames (docs/python.md)."""

from lake.errors import (
    ContractBroken,
    DataDamaged,
    EvidenceRejected,
    LakeError,
    LimitReached,
    SourceUnavailable,
)
from pipelines.api.lake import Comparison, Lake
from pipelines.api.lake import open_lake as open  # noqa: A004 - as in gzip.open: read with the package's name
from pipelines.api.rows import Rows

__all__ = [
    "Comparison",
    "ContractBroken",
    "DataDamaged",
    "EvidenceRejected",
    "Lake",
    "LakeError",
    "LimitReached",
    "Rows",
    "SourceUnavailable",
    "open",
]
