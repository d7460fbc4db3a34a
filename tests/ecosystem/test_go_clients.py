"""Clients in Go as extras: Sarama and franz-go, where Go and its module proxy answer.

The programs are built in a temporary module at test time, and kept under build/ by the hash of
their source and versions, so that the next run starts at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing import PenstockBroker

pytestmark = [pytest.mark.extras, pytest.mark.timeout(600)]

SOURCES = Path(__file__).with_name("go")
CACHE = Path(__file__).resolve().parents[2] / "build" / "go-clients"
MODULES = {
    "sarama": ["github.com/IBM/sarama@v1.61.1"],
    "franz": ["github.com/twmb/franz-go@v1.22.2", "github.com/twmb/franz-go/pkg/kgo@v1.22.2"],
}
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def build(name: str, work: Path) -> Path:
    """The program, built if it is not there yet; a skip that names what did not answer otherwise."""
    source = SOURCES / name / "main.go"
    key = hashlib.sha256(source.read_bytes() + repr(MODULES[name]).encode()).hexdigest()[:16]
    program = CACHE / f"{name}-{key}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists():
            return program
        if shutil.which("go") is None:
            pytest.skip(f"the {name} client needs Go, which is not installed")
        shutil.copy(source, work)
        # A toolchain that is too old for the module is a skip, not a download of another toolchain.
        environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
        steps = [
            ["go", "mod", "init", f"penstock-{name}"],
            ["go", "get", *MODULES[name]],
        ]
        for step in steps:
            try:
                done = subprocess.run(
                    step, cwd=work, env=environment, capture_output=True, text=True, timeout=120
                )
            except subprocess.TimeoutExpired:
                pytest.skip(f"{name}: `{' '.join(step)}` got no answer in 120 s")
            if done.returncode != 0:
                pytest.skip(f"{name}: `{' '.join(step)}`: {done.stderr.strip().splitlines()[-1][:200]}")
        built = work / "program"
        done = subprocess.run(
            ["go", "build", "-o", str(built), "."],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr
        partial = program.with_suffix(".partial")
        shutil.copy2(built, partial)
        partial.rename(program)
    return program


def run(program: Path, *arguments: str) -> None:
    done = subprocess.run([str(program), *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.promise(
    "clients", "Sarama, franz-go and kcat work unchanged (`make test-ecosystem`, where they are installed)"
)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("version", ["default", "2.1.0", "4.0.0"])
def test_sarama_round_trip_at_the_release_it_is_told(
    penstock: PenstockBroker, tmp_path: Path, version: str, codec: str
) -> None:
    run(build("sarama", tmp_path), penstock.bootstrap, version, codec)


@pytest.mark.promise(
    "clients", "Sarama, franz-go and kcat work unchanged (`make test-ecosystem`, where they are installed)"
)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", ["true", "false"])
def test_franz_go_round_trip(penstock: PenstockBroker, tmp_path: Path, idempotent: str, codec: str) -> None:
    run(build("franz", tmp_path), penstock.bootstrap, idempotent, codec)
