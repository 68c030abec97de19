"""The command that holds a hop against cryptography alone."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.ranks import ROOT

HOP = ("hop", "--worlds", "2", "--chunks-kib", "64", "--bucket-mib", "1", "--seconds", "0.05")


def test_hop_prints_a_row_for_every_way_and_both_transports_with_its_share_of_cryptography_alone() -> None:
    words = [sys.executable, "-m", "collector", *HOP]
    settings = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=settings, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in done.stdout.strip().splitlines()[2:]]
    ways = [("plain", "whole"), ("plain", "2048"), ("sealed", "whole"), ("sealed", "64")]
    assert [tuple(row[1:4]) for row in rows] == [(via, *way) for via in ("shared memory", "tcp") for way in ways]
    for row in rows:
        hop, alone, share, whole_share = row[5:9]
        assert float(hop) > 0
        if row[2] == "plain":
            assert (alone, share, whole_share) == ("-", "-", "-")
        else:
            assert float(alone) > 0
            # The additions take time, so an all-reduce is never nearer to the processor's rate than its hops are.
            assert 0 < int(whole_share.rstrip("%")) <= int(share.rstrip("%"))
