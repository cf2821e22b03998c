"""Puts pjrt_c_api.h into a folder: from the source distribution of pypjrt (Apache-2.0), both checked by hash.

The wheel has no header, and a plugin's own header may be too old (an older header fails on newer plugins), so it is taken
from the pinned source at build time and never kept in this repository.

Usage: python scripts/fetch_pjrt_header.py FOLDER
"""

import hashlib
import pathlib
import subprocess
import sys
import tarfile
import tempfile

PACKAGE = "pypjrt==0.1.1"
ARCHIVE_SHA256 = "e85e8fd382801726f9b8d1348deeebe5fb3aab35e95147c09d693cc701190dec"
HEADER = "pypjrt-0.1.1/vendor/xla/pjrt/c/pjrt_c_api.h"
HEADER_SHA256 = "a38827698466b7ac81b2402ad144d027a8566714d94d649fba74a37be464ece4"


def checked(data, expected, what):
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        sys.exit(f"{what} has SHA-256 {found}, expected {expected}: refusing to build against it")
    return data


def main():
    target = pathlib.Path(sys.argv[1])
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    with tempfile.TemporaryDirectory() as folder:
        # pip asks the source's build back end for its metadata; that back end may come as a wheel.
        subprocess.run([*pip, "--no-binary", "pypjrt", "-d", folder, PACKAGE], check=True)
        archive = next(pathlib.Path(folder).glob("*.tar.gz"))
        checked(archive.read_bytes(), ARCHIVE_SHA256, archive.name)
        with tarfile.open(archive) as tar:
            header = checked(tar.extractfile(HEADER).read(), HEADER_SHA256, HEADER)
    target.mkdir(parents=True, exist_ok=True)
    (target / "pjrt_c_api.h").write_bytes(header)


if __name__ == "__main__":
    main()
