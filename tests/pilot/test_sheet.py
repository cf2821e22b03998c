"""The published schema, and the report in a real browser."""

import json
import pathlib
import shutil
import subprocess

import jsonschema
import pytest
from conftest import JOBS, ROOT

pytestmark = pytest.mark.slow

SCHEMA = json.loads((ROOT / "docs/sheet.schema.json").read_text())


@pytest.fixture(scope="module")
def finished(shared_pilot):
    code, sheet, errors = shared_pilot.run(JOBS / "small")
    assert code == 0, errors
    return shared_pilot.folder(), sheet


def test_the_sheet_has_the_published_form(finished):
    folder, sheet = finished
    validator = jsonschema.Draft202012Validator(SCHEMA)
    validator.validate(sheet)
    assert json.loads((folder / "sheet.json").read_text()) == sheet
    broken = {**sheet, "verdict": "maybe"}
    assert not validator.is_valid(broken) and not validator.is_valid({k: v for k, v in sheet.items() if k != "files"})


def test_the_report_opens_in_a_browser(finished, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser, "no browser: install chromium (scripts/setup dev does where it may)"
    folder, _ = finished
    shot = tmp_path / "report.png"
    subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", f"--user-data-dir={tmp_path / 'profile'}",
         f"--screenshot={shot}", "--window-size=1100,1600", (folder / "report.html").as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert shot.stat().st_size > 20_000
    page = pathlib.Path(folder / "report.html").read_text()
    assert page.count("<svg") == 3 and "par.next-step" in page
