"""The server through TLS, with certificates that openssl makes for this run: what a client gets, what
one without TLS or without a certificate gets, and that no secret reaches the log."""
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import httpx
import openai
import pytest

from conftest import BIN, ROOT, free_port

KEY, ADMIN_KEY, PASSWORD = "key-4f1d7c", "admin-9b2e60", "pass-c81a55"


def make_certificates(folder):
    def run(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    ec = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
    run("req", "-x509", *ec, "-nodes", "-days", "2", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    run("req", *ec, "-passout", f"pass:{PASSWORD}", "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
        "-extfile", "names", "-out", "server.pem")


def serve(port, *flags, **options):
    return subprocess.Popen([BIN, "serve", "--config", "configs/demo/settings.json", "--ae-config",
                             "configs/demo/config.toml", "--device", "cpu", "--port", str(port), *flags],
                            cwd=ROOT, **options)


class Server:
    def __init__(self, folder):
        self.port, self.log_path, self.ca = free_port(), folder / "log", folder / "ca.pem"
        self.url = f"https://127.0.0.1:{self.port}"
        self.context = ssl.create_default_context(cafile=self.ca)
        self.log = open(self.log_path, "wb")
        self.process = serve(self.port, "--ssl-certfile", folder / "server.pem", "--ssl-keyfile", folder / "server.key",
                             "--ssl-keyfile-password", PASSWORD, "--api-key", KEY, "--admin-api-key", ADMIN_KEY,
                             "--log-level", "debug", "--http-max-n", "3", stdout=self.log, stderr=self.log)
        deadline = time.time() + 60
        while self.get("/health") != 200:
            assert self.process.poll() is None and time.time() < deadline, self.log_path.read_text()[-4000:]
            time.sleep(0.1)

    def get(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        try:
            return urllib.request.urlopen(request, context=self.context, timeout=30).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def client(self, key=KEY):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=120,
                             http_client=httpx.Client(verify=self.context))


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    make_certificates(folder)
    started = Server(folder)
    yield started
    started.process.terminate()
    assert started.process.wait(60) == 0
    started.log.close()


def ask(client, **more):
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hello"}], temperature=0,
                                          max_tokens=8, **more)


def test_a_stream_is_the_whole_reply(server):
    client = server.client()
    whole = ask(client).choices[0].message.content
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(client, stream=True) if chunk.choices]
    assert whole and "".join(pieces) == whole


def test_a_limit_is_a_setting_and_is_named(server):
    with pytest.raises(openai.BadRequestError, match=r"from 1 to 3 \(http_max_n\), got 4"):
        ask(server.client(), n=4)


def test_curl_gets_a_stream_to_its_end(server):
    out = subprocess.run(["curl", "-sS", "--cacert", server.ca, "-H", f"Authorization: Bearer {KEY}", "-H",
                          "Content-Type: application/json", "-d",
                          '{"stream":true,"max_tokens":4,"messages":[{"role":"user","content":"a"}]}',
                          server.url + "/v1/chat/completions"], check=True, capture_output=True, text=True, timeout=60)
    assert out.stdout.endswith("data: [DONE]\n\n") and out.stderr == ""


def test_a_client_without_tls_is_closed(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        try:
            answer = b"".join(iter(lambda: plain.recv(4096), b""))
        except ConnectionResetError:
            answer = b""
    assert b"HTTP" not in answer
    assert server.get("/health") == 200


def test_no_key_reaches_the_log(server):
    wrong = "wrong-77aa03"
    prompt = "sesame-31f2"
    assert server.get("/v1/models", Authorization=f"Bearer {KEY}") == 200
    assert server.get("/v1/models", Authorization=f"Bearer {wrong}") == 401
    assert server.get("/v1/models", **{"x-api-key": wrong}) == 401
    assert server.get("/flush_cache", Authorization=f"Bearer {KEY}") == 401
    assert server.get("/flush_cache", Authorization=f"Bearer {ADMIN_KEY}") in (200, 400)
    server.client().completions.create(model="m", prompt=prompt, max_tokens=1)
    with pytest.raises(openai.AuthenticationError):
        ask(server.client(wrong))
    log = server.log_path.read_text()
    assert "Prefill batch" in log
    for secret in (KEY, ADMIN_KEY, PASSWORD, wrong, prompt):
        assert secret not in log


@pytest.mark.parametrize("certificate, reason", [("/none.pem", "No such file or directory"),
                                                 ("README.md", "no start line")])
def test_a_start_without_its_certificate_says_why(certificate, reason):
    process = serve(free_port(), "--ssl-certfile", certificate, "--ssl-keyfile", certificate,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    out = process.communicate(timeout=60)[0]
    assert process.returncode not in (0, None)
    assert f"ssl_certfile is {certificate}: {reason}" in out
