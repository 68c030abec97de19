"""Training loops in processes of their own, for tests of what a recording leaves behind."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from collector import Window, record

WINDOW = Window(warmup_steps=1, bare_steps=2, recorded_steps=3)


def main() -> None:
    """Train a little under the recorder; end as the second argument says."""
    landing, ending = sys.argv[1], sys.argv[2]
    is_live = ending.startswith("live")
    window = replace(WINDOW, cycles=2) if is_live else WINDOW
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with record(
        landing, "run-1", window=window, module=model, is_live=is_live, model="line", regime="cc_off"
    ) as recording:
        for step in range(2 if ending == "short" else window.total_steps + 1):
            if is_live:
                sys.stderr.write(
                    f"{step}: {' '.join(sorted(path.name for path in Path(landing, 'run-1').iterdir()))}\n"
                )
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            recording.step()
            if step == WINDOW.total_steps - 1 and ending in {"kill", "live kill"}:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == WINDOW.total_steps - 1 and ending in {"raise", "live raise"}:
                raise ValueError("the loop broke")


if __name__ == "__main__":
    main()
