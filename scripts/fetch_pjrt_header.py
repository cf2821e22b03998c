"""Puts the headers of the PJRT and FFI C APIs into a folder: from the source distribution of pypjrt (Apache-2.0), all checked by hash.

The wheel has no header, and a plugin's own header may be too old (an older header fails on newer plugins), so they are taken
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
SOURCE = "pypjrt-0.1.1/vendor/"
HEADERS = {  # path below vendor/: SHA-256
    "xla/pjrt/c/pjrt_c_api.h": "a38827698466b7ac81b2402ad144d027a8566714d94d649fba74a37be464ece4",
    "xla/pjrt/c/pjrt_c_api_ffi_extension.h": "62686e8b557bbb2996defa39bdd4c6e671489d0aa2f9545872dd122bd269a3f1",
    "xla/ffi/api/c_api.h": "85fc385c2d3a6b539a05b9cf4c3535aa24b4b41040f9e111c1f2c11b0e2fa539",
}


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
            headers = {path: checked(tar.extractfile(SOURCE + path).read(), sha, path) for path, sha in HEADERS.items()}
    for path, header in headers.items():
        # They include each other by these paths; the C API alone is also known by its bare name.
        for place in [path, "pjrt_c_api.h"] if path.endswith("/pjrt_c_api.h") else [path]:
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            (target / place).unlink(missing_ok=True)
            (target / place).write_bytes(header)


if __name__ == "__main__":
    main()
