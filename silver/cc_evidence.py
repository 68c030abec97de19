"""One row per run: what device, NCCL and attestation say of its confidential-computing mode, whatever it claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import to_flag
from silver.attestations import STANDINGS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lake.frames import Frame

# How `nvidia-smi conf-compute` spells what is looked for; its text is not promised to stay.
_STATES = ("CC State", "CC status", "CC Status")
_TOOLS = ("CC DevTools Mode", "DevTools Mode", "CC Devtools Mode")
_MULTI = "Multi-GPU Mode"
_ON, _OFF = ("ON", "On", "on"), ("OFF", "Off", "off")
_PROTECTED = ("Protected PCIe", "PROTECTED_PCIE", "PPCIE", "Protected-PCIe")
_COUNTS = ("_cc_on", "_cc_off", "_cc_tools", "_cc_protected", "_nccl_on", "_nccl_off")


_HOPPER = ("H100", "H200", "H800", "H20", "GH200")


def infer_regime(readings: Mapping[str, Collection[str]], gpu: str | None) -> str | None:
    """The regime that an answer of `nvidia-smi conf-compute -q` stands for; none where it leaves that open.

    OFF counts only beside the mode of several GPUs, because the query says OFF under Protected PCIe too; ON alone is a
    regime only of a GPU that has no other.
    """
    states = {value for name in _STATES for value in readings.get(name, ())}
    modes = set(readings.get(_MULTI, ()))
    if modes & set(_PROTECTED):
        return "hopper_ppcie"
    if states and states <= set(_ON):
        return "hopper_spt_cc" if gpu is not None and any(name in gpu for name in _HOPPER) else None
    return "cc_off" if modes and states and states <= set(_OFF) else None


def count_evidence(device_samples: Frame, collective_records: Frame, attestations: Frame, runs: Frame) -> Frame:
    """Count what speaks for each mode; under Protected PCIe the query says OFF, and that is no word against CC."""
    readings = device_samples.filter(nw.col("tool") == "conf_compute")
    is_state, value = nw.col("metric").is_in(_STATES), nw.col("value").fill_null("")
    said = readings.select(
        "run_id",
        _cc_on=to_flag(is_state & value.is_in(_ON)),
        _cc_off=to_flag(is_state & value.is_in(_OFF)),
        _cc_tools=to_flag(nw.col("metric").is_in(_TOOLS) & value.is_in(_ON)),
        _cc_protected=to_flag((nw.col("metric") == _MULTI) & value.is_in(_PROTECTED)),
    )
    lines = collective_records.filter(nw.col("record") == "nccl_log_cc").select(
        "run_id", _nccl_on=to_flag(nw.col("cc_state") == "On"), _nccl_off=to_flag(nw.col("cc_state") == "Off")
    )
    known = runs.select("run_id")
    for rows, names in ((said, _COUNTS[:4]), (lines, _COUNTS[4:])):
        sums = rows.group_by("run_id").agg(*(nw.col(name).sum().cast(nw.Int64) for name in names))
        known = known.join(sums, on="run_id", how="left")
    known = known.with_columns(nw.col(*_COUNTS).fill_null(0))
    return known.join(_summarise_attestations(attestations), on="run_id", how="left")


def _summarise_attestations(attestations: Frame) -> Frame:
    """The worst standing of a run's tokens, one finding of those, and what the proven ones say of the device."""
    place = nw.lit(len(STANDINGS)).cast(nw.Int64)
    for index, standing in enumerate(STANDINGS):
        place = nw.when(nw.col("standing") == standing).then(nw.lit(index).cast(nw.Int64)).otherwise(place)
    tokens = attestations.with_columns(_place=place)
    tokens = tokens.with_columns(_worst=nw.col("_place").min().over("run_id"))
    is_worst, is_proven = nw.col("_place") == nw.col("_worst"), nw.col("standing") == "attested"
    tokens = tokens.select(
        "run_id",
        "_worst",
        _finding=nw.when(is_worst).then(nw.col("finding")),
        _driver=nw.when(is_proven).then(nw.col("driver_version")),
        _hardware=nw.when(is_proven).then(nw.col("hardware_model")),
        _device=to_flag(is_proven & ~nw.col("submodule").is_null()),
    )
    sums = tokens.group_by("run_id").agg(
        _worst=nw.col("_worst").min(),
        _finding=nw.col("_finding").min(),
        _driver=nw.col("_driver").max(),
        _hardware=nw.col("_hardware").max(),
        _devices=nw.col("_device").sum().cast(nw.Int64),
        _tokens=nw.len().cast(nw.Int64),
    )
    attested = nw.lit(None).cast(nw.String)
    for index, standing in enumerate(STANDINGS):
        attested = nw.when(nw.col("_worst") == index).then(nw.lit(standing)).otherwise(attested)
    return sums.with_columns(attestation=attested).drop("_worst")
