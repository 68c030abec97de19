"""Where lake, landing zone and keyring are, and how much may be in memory: the one place that reads the environment."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bronze.limits import Limits
from gold.margin import MARGIN
from lake.cluster import Cluster
from lake.errors import ContractBroken
from lake.keyring import KeyringFile, KeyringSecret, NoKeyring
from lake.lineage.keys import SigningKeys
from lake.locations import Location
from lake.sealed_files import LandingSeals
from pipelines.alert_settings import AlertSettings, read_alert_settings
from pipelines.cli.memory_advice import find_memory
from pipelines.hosts import parse_authority

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lake.executors import Site
    from lake.keyring import Keyring, KeyringSource

# The address of a PostgreSQL server for Dagster's records. It may hold a password: files name it, none repeats it.
POSTGRES_URL = "TEETOTAL_POSTGRES_URL"
# SQLAlchemy takes an address that names no driver for one of psycopg 3; dagster-postgres comes with psycopg 2.
_NO_DRIVER = ("postgresql://", "postgres://")
_DRIVER = "postgresql+psycopg2://"
# What our packages lie in: the top level of a checkout, `teetotal` in an installed wheel.
_BUNDLED = Path(__file__).parent.parent / "dagster.yaml"
_SPARK = re.compile(r"local(\[[^]]+\])?|spark://\S+|sc://\S+")
_CHECKS = ("duckdb", "spark")
_QUERY_MEMORY_BYTES = 4_000_000_000
_BYTES = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?([MG]B)", re.IGNORECASE)
_UNITS = {"MB": 1_000_000, "GB": 1_000_000_000}
_FRACTION = re.compile(r"0?\.[0-9]{1,6}")
# Dagster's own setting: how many events of a launch it stores in one transaction, where it has them at once.
_EVENT_BATCH = ("DAGSTER_EVENT_BATCH_SIZE", "1000")
_STORAGE_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_")


@dataclass(frozen=True)
class Home:
    """Where Dagster keeps its records: in a directory that someone set up, or in one that is set up from a file."""

    directory: Path
    # What it is set up from; none where it was set up by whoever named it.
    source: Path | None
    # Records on a PostgreSQL server instead of in files.
    is_postgres: bool


@dataclass(frozen=True)
class Settings:
    """Everything that a command or a job needs to know before it starts."""

    lake: Location
    landing: Location
    limits: Limits
    keyring: KeyringSource
    home: Home
    # Where the pages of the checks are written.
    docs: Path
    # Public keys that attestation tokens are verified with.
    attestation_keys: Path | None = None
    # What `--engine spark`, and checks on Spark, run on.
    spark: Cluster = field(default_factory=Cluster)
    # What looks at the rows when tables are held to their word.
    checks: str = "duckdb"
    # How often sensors look for something new.
    sensor_seconds: int = 15
    # Names beside those of loopback by which a browser may ask for the web interface: those of a proxy before it.
    ui_hosts: tuple[str, ...] = ()
    # What the process of a query may use.
    query_memory_bytes: int = _QUERY_MEMORY_BYTES
    # The largest difference between two groups of runs that counts as none.
    margin: float = MARGIN
    # Which limits a run may not pass unnoticed, and who is told.
    alerts: AlertSettings = field(default_factory=AlertSettings)
    # What signs the statements of commits, and which signatures count; none where nobody signs.
    signing: SigningKeys | None = None
    # Which signatures count when a lake is verified.
    trust: Path = Path("signing-trust.txt")
    # What opens files that landed sealed, and whether any others are taken.
    seals: LandingSeals = field(default_factory=LandingSeals)


def settings(
    lake: str | None = None,
    landing: str | None = None,
    keyring: str | None = None,
    environment: Mapping[str, str] | None = None,
    margin: str | None = None,
) -> Settings:
    """Settings from what was typed, else from the environment, else the defaults under `data/`."""
    if environment is None:
        _name_driver()
        os.environ.setdefault(*_EVENT_BATCH)
    known = os.environ if environment is None else environment
    options = {name: value for name, value in known.items() if name.startswith(_STORAGE_PREFIXES)}
    place = Location.of(lake or known.get("TEETOTAL_LAKE") or "data/lake", options)
    zone = Location.of(landing or known.get("TEETOTAL_LANDING") or "data/landing", options)
    keys = _keyring(place, keyring, known)
    seals = LandingSeals(
        partial(_peek_keyring, place, keys),
        _flag(known, "TEETOTAL_ACCEPT_ONLY_SEALED"),
        _flag(known, "TEETOTAL_SEAL_BRONZE"),
    )
    reach = partial(site, str(place), str(zone), _path_of(keys))
    reach = partial(reach, must_be_sealed=seals.must_be_sealed, seals_bronze=seals.seals_bronze)
    return Settings(
        lake=place,
        landing=zone,
        limits=_limits(known),
        keyring=keys,
        home=_home(place, known),
        docs=Path(known.get("TEETOTAL_DOCS") or _beside(place) / "docs").expanduser().resolve(),
        attestation_keys=_path(known.get("TEETOTAL_ATTESTATION_KEYS")),
        spark=_spark(known, reach),
        checks=_checks(known),
        sensor_seconds=_at_least_one(known, "TEETOTAL_SENSOR_SECONDS", Settings.sensor_seconds),
        ui_hosts=_ui_hosts(known),
        query_memory_bytes=_query_memory(known),
        margin=_margin(margin, known),
        alerts=read_alert_settings(known),
        signing=_signing(place, keys, known),
        trust=_trust(place, keys, known),
        seals=seals,
    )


def site(
    lake: str, landing: str, keyring: str | None, *, must_be_sealed: bool = False, seals_bronze: bool = False
) -> Site:
    """Lake and landing zone as an executor reaches them: with the credentials of its own environment."""
    # Here, so that a command that hands its work to another process imports no engine.
    from lake.executors import Site
    from lake.landing_zone import LandingZone
    from lake.store import Lake

    chosen = settings(lake, landing, keyring)
    # What the driver decides counts: an executor's environment need not say it again.
    decided = replace(chosen.seals, must_be_sealed=must_be_sealed, seals_bronze=seals_bronze)
    opened = Lake(chosen.lake, chosen.keyring, seals_bronze=seals_bronze)
    return Site(opened, LandingZone(chosen.landing, decided))


def _path_of(keyring: KeyringSource) -> str | None:
    """What an executor is told of a keyring: its path, never its text."""
    return str(keyring.path) if isinstance(keyring, KeyringFile) else None


def _spark(known: Mapping[str, str], reach: Callable[[], Site]) -> Cluster:
    """Everything that is said of Spark (docs/operations.md lists it)."""
    url = known.get("TEETOTAL_SPARK", "").strip() or None
    if url is not None and not _SPARK.fullmatch(url):
        raise ContractBroken(
            f"TEETOTAL_SPARK is {url!r}", "expected local[*], spark://host:port or sc://host:port (Spark Connect)"
        )
    conf: dict[str, str] = {}
    for line in known.get("TEETOTAL_SPARK_CONF", "").split():
        name, equals, value = line.partition("=")
        if not equals or not name.startswith("spark."):
            # Without the value: it may be a secret.
            raise ContractBroken(
                f"TEETOTAL_SPARK_CONF holds {name!r}", "expected spark.name=value, more than one with spaces between"
            )
        conf[name] = value
    return Cluster(
        url=url,
        executor_memory=known.get("TEETOTAL_SPARK_MEMORY") or None,
        shuffle_partitions=_at_least_one(known, "TEETOTAL_SPARK_SHUFFLE_PARTITIONS", 8),
        archive=known.get("TEETOTAL_SPARK_ARCHIVE") or None,
        python=known.get("TEETOTAL_SPARK_PYTHON") or known.get("PYSPARK_PYTHON") or None,
        conf=conf,
        reach=reach,
    )


def _checks(known: Mapping[str, str]) -> str:
    chosen = known.get("TEETOTAL_CHECKS", "").strip() or _CHECKS[0]
    if chosen not in _CHECKS:
        raise ContractBroken(f"TEETOTAL_CHECKS is {chosen!r}", f"expected {' or '.join(_CHECKS)}")
    return chosen


def _ui_hosts(known: Mapping[str, str]) -> tuple[str, ...]:
    chosen = tuple(known.get("TEETOTAL_UI_HOSTS", "").split())
    for host in chosen:
        if parse_authority(host) is None:
            raise ContractBroken(
                f"TEETOTAL_UI_HOSTS holds {host!r}",
                "expected lake.example.org or lake.example.org:8443, more than one with spaces between",
            )
    return chosen


def _margin(typed: str | None, known: Mapping[str, str]) -> float:
    given = (typed if typed is not None else known.get("TEETOTAL_MARGIN", "")).strip()
    found = _FRACTION.fullmatch(given)
    if given and (found is None or not 0 < float(given) < 1):
        raise ContractBroken(f"the margin is {given[:80]!r}", "expected a fraction between 0 and 1, such as 0.02")
    return float(given) if given else MARGIN


def is_debug() -> bool:
    """Whether a command that fails prints its traceback."""
    return bool(os.environ.get("TEETOTAL_DEBUG"))


def _query_memory(known: Mapping[str, str]) -> int:
    """What was set, else 4 GB, or half of the machine's memory where that is less."""
    given = known.get("TEETOTAL_QUERY_MEMORY", "").strip()
    return parse_bytes(given, "TEETOTAL_QUERY_MEMORY") if given else min(_QUERY_MEMORY_BYTES, find_memory() // 2)


def parse_bytes(text: str, name: str) -> int:
    """An amount of memory as a person writes it: 500MB, 4GB."""
    found = _BYTES.fullmatch(text.strip())
    if found is None:
        raise ContractBroken(f"{name} is {text[:80]!r}", "expected a number of MB or GB, such as 500MB or 4GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def query_environment() -> dict[str, str]:
    """The environment of the process that answers a query: without our own settings, some of which are secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TEETOTAL_")}


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser().resolve() if text and text.strip() else None


def environment(chosen: Settings) -> dict[str, str]:
    """The environment in which a process of its own would find the same settings."""
    named = {
        "DAGSTER_HOME": str(chosen.home.directory),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        # No process that Dagster starts looks for modules in the directory where the command was typed.
        "PYTHONSAFEPATH": "1",
        "TEETOTAL_LAKE": str(chosen.lake),
        "TEETOTAL_LANDING": str(chosen.landing),
        "TEETOTAL_DOCS": str(chosen.docs),
        "TEETOTAL_UI_HOSTS": " ".join(chosen.ui_hosts),
        "TEETOTAL_MARGIN": f"{chosen.margin:.6f}",
    }
    if isinstance(chosen.keyring, KeyringFile) and not chosen.keyring.is_made_on_first_use:
        named["TEETOTAL_KEYRING"] = str(chosen.keyring.path)
    if chosen.attestation_keys is not None:
        named["TEETOTAL_ATTESTATION_KEYS"] = str(chosen.attestation_keys)
    return {**os.environ, **named}


def _name_driver() -> None:
    """Say in the environment, which Dagster and our children read too, by which driver a server is to be reached."""
    scheme, mark, rest = os.environ.get(POSTGRES_URL, "").partition("://")
    if scheme + mark in _NO_DRIVER:
        os.environ[POSTGRES_URL] = _DRIVER + rest


def _home(lake: Location, known: Mapping[str, str]) -> Home:
    """The home that was named; else one in a checkout, for the lake inside it; else one beside the lake.

    Every lake has a history of its own: Dagster knows a run by its name alone.
    """
    is_postgres = bool(known.get(POSTGRES_URL))
    if known.get("DAGSTER_HOME"):
        return Home(Path(known["DAGSTER_HOME"]).expanduser().resolve(), None, is_postgres)
    here = Path.cwd()
    own = here / "dagster.yaml"
    if own.is_file() and (not lake.is_local or lake.directory.is_relative_to(here)):
        return Home(here / ".dagster", own, is_postgres)
    return Home(_beside(lake) / ".dagster", _BUNDLED, is_postgres)


def _beside(lake: Location) -> Path:
    return lake.directory.parent if lake.is_local else Path.cwd() / "data"


def _keyring(lake: Location, typed: str | None, known: Mapping[str, str]) -> KeyringSource:
    """The keyring that was named; else, beside a local lake, one that is made on first use."""
    path, secret = known.get("TEETOTAL_KEYRING"), known.get("TEETOTAL_KEYRING_SECRET")
    if typed or (path and not secret):
        return KeyringFile(Path(typed or path or "").expanduser().resolve())
    if path and secret:
        return NoKeyring("TEETOTAL_KEYRING and TEETOTAL_KEYRING_SECRET are both set", "unset one of them")
    if secret:
        return KeyringSecret("TEETOTAL_KEYRING_SECRET", secret)
    if lake.is_local:
        return KeyringFile(lake.directory.parent / "keyring.json", is_made_on_first_use=True)
    return NoKeyring(
        f"no keyring for {lake}: none is made by itself for a lake that others may share",
        "set TEETOTAL_KEYRING to the path of one, or TEETOTAL_KEYRING_SECRET to its text; to make one: "
        "`teetotal --keyring PATH keys create`",
    )


def _signing(lake: Location, keyring: KeyringSource, known: Mapping[str, str]) -> SigningKeys | None:
    """The command or the key file that was named; else, beside a local lake's keyring, a key made on first use."""
    trust, command = _trust(lake, keyring, known), known.get("TEETOTAL_SIGNER", "").strip()
    named, key = known.get("TEETOTAL_SIGNING_KEY", "").strip(), known.get("TEETOTAL_SIGNER_KEY", "").strip()
    if command and (named or not key):
        raise ContractBroken(
            "TEETOTAL_SIGNER is set" + (" beside TEETOTAL_SIGNING_KEY" if named else " without TEETOTAL_SIGNER_KEY"),
            "a command that signs needs its public key (name+hash+key) in TEETOTAL_SIGNER_KEY, and no other key",
        )
    if command:
        return SigningKeys(trust, command=command, command_key=key)
    if named == "none":
        return None
    if named:
        return SigningKeys(trust, _path(named))
    if not lake.is_local:  # others may share it: no key is made by itself
        return None
    return SigningKeys(trust, trust.with_name("signing-key.pem"), is_made_on_first_use=True)


def _trust(lake: Location, keyring: KeyringSource, known: Mapping[str, str]) -> Path:
    beside = keyring.path.parent if isinstance(keyring, KeyringFile) else _beside(lake)
    return _path(known.get("TEETOTAL_TRUST")) or beside / "signing-trust.txt"


def _limits(known: Mapping[str, str]) -> Limits:
    """The limits, each overridable by `TEETOTAL_` and its name."""
    given: dict[str, int] = {"workers": os.cpu_count() or 1}
    for one in fields(Limits):
        value = _at_least_one(known, f"TEETOTAL_{one.name.upper()}", 0)
        if value:
            given[one.name] = value
    return Limits(**given)


def _peek_keyring(lake: Location, keyring: KeyringSource) -> Keyring:
    """The keyring as it is; none is made where the lake was sealed already."""
    from lake.keyring_guard import KeyringGuard  # here, because it imports an engine

    return KeyringGuard(lake, keyring).peek()


def _flag(known: Mapping[str, str], variable: str) -> bool:
    """Whether something was switched on in the environment."""
    value = known.get(variable, "").strip()
    if value not in {"", "0", "1"}:
        raise ContractBroken(f"{variable} is {value[:80]!r}", "expected 1 for yes or 0 for no")
    return value == "1"


def _at_least_one(known: Mapping[str, str], variable: str, default: int) -> int:
    """A whole number from the environment, or the default where none is given."""
    value = known.get(variable, "").strip()
    if value and (not value.isdecimal() or int(value) < 1):
        raise ContractBroken(f"{variable} is {value!r}", "expected a whole number of at least 1")
    return int(value) if value else default
