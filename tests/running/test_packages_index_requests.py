"""Whom a request trusts."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillbelt.running.packages import index_requests
from skillbelt.running.packages.fetched import NotFetched
from skillbelt.running.packages.index_config import IndexAddress, IndexConfig
from skillbelt.running.packages.index_fetcher import IndexFetcher
from tests import needs
from tests.discovery.sources.server import Server, running

pytestmark = needs.needs(bool(shutil.which("openssl")), "needs openssl: install it")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate that no authority of this machine made, with its key."""
    path = tmp_path / "own.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", path, "-out",
         tmp_path / "certificate.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + (tmp_path / "certificate.pem").read_text())
    return path


@pytest.fixture
def server(certificate: Path) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with running() as found:
        found._http.socket = context.wrap_socket(found._http.socket, server_side=True)
        found.url = found.url.replace("http:", "https:")
        found.pages["/a"] = b"there"
        yield found


def fetch(server: Server, *authorities: str) -> bytes:
    indexes = IndexConfig(IndexAddress(server.url, "Bearer x"), authorities=authorities)
    return IndexFetcher(indexes, environ={}).get(f"{server.url}/a").whole(9)


def test_an_authority_of_the_user_counts_beside_those_of_the_system(
    server: Server, tmp_path: Path
) -> None:
    assert fetch(server, str(tmp_path / "certificate.pem")) == b"there"
    assert len(server.requests) == 1


def test_a_server_that_nobody_vouches_for_is_told_nothing(server: Server) -> None:
    with pytest.raises(NotFetched, match="certificate verify failed"):
        fetch(server)
    assert server.requests == []


def test_an_authority_in_the_folder_of_the_system_is_enough(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "authorities"
    folder.mkdir()
    shutil.copy(tmp_path / "certificate.pem", folder)
    subprocess.run(["openssl", "rehash", folder], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))

    index_requests._folder_context.cache_clear()
    try:
        assert fetch(server) == b"there"
    finally:
        monkeypatch.undo()
        index_requests._folder_context.cache_clear()
