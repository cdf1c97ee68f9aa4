"""What the tests of real clients share. AERIE_URL is a server with a model, AERIE_ECHO_URL one that
says what the user said last (src/frontend/testing/echo_main.cc); tests/http/run starts both."""
import http.client
import os
import pathlib
import socket
import time
import urllib.parse
import urllib.request

import anthropic
import openai
import pytest

URL = os.environ.get("AERIE_URL", "http://127.0.0.1:30000").rstrip("/")
ECHO_URL = os.environ.get("AERIE_ECHO_URL", "").rstrip("/")
ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / os.environ.get("AERIE_BIN", "build/cpu/aerie")
KEY = os.environ.get("AERIE_API_KEY", "none")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def request(url, method, path, body=None, headers=None):
    """(status, headers, text) of one plain request."""
    where = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    connection.request(method, path, body, {"Content-Type": "application/json",
                                            "Authorization": f"Bearer {KEY}"} | (headers or {}))
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, dict(reply.getheaders()), text


def openai_client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key=KEY, max_retries=0, timeout=120)


def anthropic_client(url):
    return anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0, timeout=120)


@pytest.fixture(scope="session")
def echo_url():
    if not ECHO_URL:
        pytest.skip("AERIE_ECHO_URL is not set")
    deadline = time.time() + 30
    while True:
        try:
            urllib.request.urlopen(ECHO_URL + "/health", timeout=5)
            return ECHO_URL
        except OSError:
            if time.time() > deadline:
                raise
            time.sleep(0.05)


@pytest.fixture(scope="session")
def echo(echo_url):
    """An OpenAI client of it."""
    return openai_client(echo_url)
