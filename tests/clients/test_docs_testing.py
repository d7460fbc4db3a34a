"""docs/testing.md: its examples are tests, and they pass."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


@pytest.mark.promise("fixture", "Every example of testing.md runs as printed")
def test_every_example_on_the_page_runs_and_passes(tmp_path: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(examples) >= 6
    for number, example in enumerate(examples, 1):
        (tmp_path / f"test_example_{number}.py").write_text(example, encoding="utf-8")
    # As a user's project would run them: the plugin comes from the installed package alone.
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    outcome = subprocess.run([*command, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
