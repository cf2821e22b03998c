"""Makes this checkout importable in its own .venv, entry point included: a .pth file and the metadata of an editable install.

`pip install .` does the real thing; this does not copy or build anything, and `pip uninstall tpupilot` removes it.
"""

import base64
import hashlib
import pathlib
import re
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parents[1]
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "python/tpupilot/__init__.py").read_text()).group(1)


def main():
    site = pathlib.Path(sysconfig.get_path("purelib"))
    info = f"tpupilot-{VERSION}.dist-info"
    files = {
        "tpupilot.pth": f"{ROOT / 'python'}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: tpupilot\nVersion: {VERSION}\n",
        f"{info}/entry_points.txt": "[torch.backends]\ntpupilot = tpupilot:_autoload\n",
        f"{info}/INSTALLER": "tpupilot set-up\n",
    }
    (site / info).mkdir(exist_ok=True)
    record = []
    for name, text in files.items():
        path = site / name
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(text)}\n")
    (site / info / "RECORD").write_text("".join(record) + f"{info}/RECORD,,\n")


if __name__ == "__main__":
    main()
