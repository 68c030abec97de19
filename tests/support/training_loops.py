"""Training loops in processes of their own, for tests of what a recording leaves behind."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from collector import Window, record
from collector import landing as landing_module
from collector.sealed_files import seal_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collector.recording import Recording

WINDOW = Window(warmup_steps=1, bare_steps=2, recorded_steps=3)
ANNOTATION, OWNER = "planted-annotation-merger", "planted-owner-erika"


def main() -> None:
    """Train a little under the recorder; end as the second argument says."""
    landing, ending, *sealing = sys.argv[1:]
    is_live = ending.startswith("live")
    window = replace(WINDOW, cycles=2) if is_live else WINDOW
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with record(
        landing, "run-1", window=window, module=model, is_live=is_live, model="line", regime="cc_off", **_seal(*sealing)
    ) as recording:
        for step in range(2 if ending == "short" else window.total_steps + 1):
            if is_live:
                sys.stderr.write(
                    f"{step}: {' '.join(sorted(path.name for path in Path(landing, 'run-1').iterdir()))}\n"
                )
            if sealing:
                _await_reading(recording)
                _look(Path(landing), step)
            with torch.profiler.record_function(ANNOTATION):
                optimizer.zero_grad()
                model(torch.ones(4, 8)).sum().backward()
                optimizer.step()
            if step == window.total_steps - 1 and ending == "live cut":
                vars(landing_module)["seal_blocks"] = _seal_and_die
            recording.step()
            if step == WINDOW.total_steps - 1 and ending in {"kill", "live kill"}:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == WINDOW.total_steps - 1 and ending in {"raise", "live raise"}:
                raise ValueError("the loop broke")


def _seal(public_key: str = "", signing_key: str = "") -> dict[str, Any]:
    """What a recording is told where it is sealed and signed."""
    if not public_key:
        return {}
    tempfile.tempdir = None  # whoever was forked has another
    return {"seal_for": public_key, "signing_key": signing_key, "owner": OWNER}


def _await_reading(recording: Recording) -> None:
    """Until the device was read once more: how often it is read beside a step is no matter of speed then."""
    assert recording._sampler is not None
    path, deadline = recording._sampler.path, time.monotonic() + 30
    before = path.stat().st_size
    while path.stat().st_size < before + 64:
        assert time.monotonic() < deadline, "the device is read no more"
        time.sleep(0.002)


def _look(landing: Path, step: int) -> None:
    """Say which files hold a planted name in the clear, on the disk and in memory; keep what is seen of the run."""
    home = landing.parent
    files = [path for path in home.rglob("*") if path.is_file() and path.parent.name != "bin"]
    clear = [str(path.relative_to(home)) for path in files if b"planted-" in path.read_bytes()]
    memory = [path.name for path in Path("/dev/shm").glob("teetotal-recording-*/*") if _is_planted(path)]  # noqa: S108
    sys.stderr.write(f"at {step} in the clear: {clear}; in memory: {sorted(memory)}\n")
    shutil.copytree(landing / "run-1", home / "seen" / f"{step:02d}")


def _is_planted(path: Path) -> bool:
    try:
        return b"planted-" in path.read_bytes()
    except FileNotFoundError:  # of another test's recording
        return False


def _seal_and_die(*given: Any) -> Iterator[bytes]:
    """Seal a file, and be killed before its last byte."""
    yield b"".join(seal_blocks(*given))[:-1]
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
