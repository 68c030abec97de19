"""What the machine says of itself: processor, GPU, driver, confidential-computing state, samples, attestation."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from io import FileIO

    import torch

SAMPLED = (
    "timestamp",
    "index",
    "name",
    "driver_version",
    "pstate",
    "utilization.gpu",
    "utilization.memory",
    "memory.used",
    "memory.total",
    "temperature.gpu",
    "power.draw",
    "clocks.sm",
    "clocks.mem",
)
SAMPLE_MS = 500
_PATIENCE_S = 20.0
_CPUINFO = Path("/proc/cpuinfo")


def run_command(*words: str, patience_s: float = _PATIENCE_S) -> str | None:
    """What a command says; nothing where it is absent, fails or does not come back."""
    program = shutil.which(words[0])
    if program is None:
        return None
    try:
        done = subprocess.run([program, *words[1:]], capture_output=True, timeout=patience_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")


def processor() -> dict[str, str | bool | int]:
    """The host's processor and what of AES it does in hardware."""
    try:
        text = _CPUINFO.read_text("utf-8", "replace")
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    found = set(flags[1].split()) if flags else set()
    return {
        "host_cpu": named[1].strip() if named else platform.processor() or platform.machine(),
        "has_aes_instructions": "aes" in found,
        "has_vector_aes_instructions": "vaes" in found,
        "cores_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    }


def software() -> dict[str, str]:
    """Versions of what trains."""
    import torch

    found: dict[str, str] = {"torch_version": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda_version"] = torch.version.cuda
    return found


def gpu(device: torch.device | None) -> dict[str, str]:
    """The GPU and its driver; empty without one."""
    if device is None or device.type != "cuda":
        return {}
    import torch

    found = {"gpu": torch.cuda.get_device_name(device)}
    said = run_command("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    if said and said.strip():
        found["driver_version"] = said.strip().splitlines()[0].strip()
    return found


def confidential() -> tuple[str | None, str | None]:
    """The mode that the driver reports (off, on, devtools), and its own words; nothing where it says nothing."""
    said = run_command("nvidia-smi", "conf-compute", "-q")
    return (cc_mode_of(said) if said else None), said


def cc_mode_of(said: str) -> str | None:
    """The mode in the words of `nvidia-smi conf-compute -q`, which promises no layout: look for the lines by name."""
    fields = dict(re.findall(r"^\s*([A-Za-z][A-Za-z -]*?)\s*:\s*(.+?)\s*$", said, re.MULTILINE))
    named = {name.lower(): value.upper() for name, value in fields.items()}
    state = named.get("cc state") or named.get("cc status")
    if state is None:
        return None
    if any("devtools" in name and value in {"ON", "ENABLED"} for name, value in named.items()):
        return "devtools"
    return {"ON": "on", "ENABLED": "on", "OFF": "off", "DISABLED": "off"}.get(state)


def fetch_attestation(nonce: str | None = None) -> str | None:
    """Evidence from the vendor's attestation tool, where it is installed; it is kept as it comes, and judged later."""
    asked = [] if nonce is None else ["--nonce", nonce]
    return run_command("nvattest", "attest", "--device", "gpu", "--format", "json", *asked, patience_s=60)


class Sampler:
    """`nvidia-smi` saying what the device does, twice a second, beside the training; nothing without it.

    It writes through a pipe, so that it ends with this process, however that ends.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._copying: threading.Thread | None = None

    def __enter__(self) -> Self:
        program = shutil.which("nvidia-smi")
        if program is not None:
            query = [f"--query-gpu={','.join(SAMPLED)}", "--format=csv", f"--loop-ms={SAMPLE_MS}"]
            # Its timestamps carry no zone: ours say UTC.
            settings = {**os.environ, "TZ": "UTC"}
            file = self.path.open("wb", buffering=0)
            self._process = subprocess.Popen(
                [program, *query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=settings, bufsize=0
            )
            self._copying = threading.Thread(target=_copy, args=(self._process.stdout, file), name="nvidia-smi")
            self._copying.daemon = True
            self._copying.start()
        return self

    @property
    def has_table(self) -> bool:
        """Whether it has written a table: a driver that does not know a field says so in words in its place."""
        try:
            with self.path.open("rb") as said:
                return said.readline().startswith(SAMPLED[0].encode())
        except FileNotFoundError:
            return False

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._copying is not None:
            self._copying.join()
            self._copying = None
            if not self.has_table:
                self.path.unlink()


def _copy(said: IO[bytes], file: FileIO) -> None:
    """What a process says, as it comes, until it has ended."""
    with said, file:
        while block := said.read(1 << 16):
            file.write(block)
