"""An authority of our own, and what it has signed."""

import subprocess
from pathlib import Path


def make(folder: Path) -> None:
    """Write `ca.crt`, and `server` and `client` with `.crt` and `.key`."""
    folder.mkdir(parents=True)
    (folder / "names").write_text("subjectAltName = IP:127.0.0.1, DNS:localhost\n")
    _openssl(folder, "ecparam -name prime256v1 -out params")
    _openssl(folder, "req -x509 -newkey ec:params -nodes -keyout ca.key -out ca.crt -subj /CN=authority")
    for name in ("server", "client"):
        _openssl(folder, f"req -newkey ec:params -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}")
        signed = f"-CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -extfile names"
        _openssl(folder, f"x509 -req -in {name}.csr {signed}")


def _openssl(folder: Path, words: str) -> None:
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)
