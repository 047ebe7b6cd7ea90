"""The hub, played by a real HTTP server on this machine with the hub's status codes and headers."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_source_headers import safetensors

from gpu_plan.planner.errors import InputError, UnreachableError
from gpu_plan.planner.model.config_reader import MAX_BYTES
from gpu_plan.planner.model.source import hub as source_hub
from gpu_plan.planner.model.source import ranges
from gpu_plan.planner.model.source.resolve import resolve

CONFIG = json.dumps({"model_type": "llama", "hidden_size": 64}).encode()
COMMIT = "c" * 40
WEIGHTS = safetensors({"w": ("BF16", (256, 512)), "v": ("F32", (4,))})


class Hub(BaseHTTPRequestHandler):
    """Files of repositories, refusals by repository, and a log of requests."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, *, body):
        _owner, repo, _, revision, *rest = self.path.split("?")[0].strip("/").split("/")
        name = "/".join(rest)
        server = self.server
        server.log.append((self.command, repo, name, self.headers.get("Range"), self.headers.get("Authorization")))
        if repo == "stalls":
            server.released.wait(900)  # longer than any test may take: who returns has given up
            return
        if body and repo.startswith("never-"):
            self.never_ends(repo)
            return
        if repo == "garbles":
            self.wfile.write(b"\x00\x01 this is no HTTP\r\n\r\n")
            self.close_connection = True
            return
        refusal = server.refusals.get(repo)
        if refusal is None and revision not in ("main", COMMIT):
            refusal = (404, {"X-Error-Code": "RevisionNotFound"})
        content = server.files.get((repo, name))
        if refusal is None and content is None:
            refusal = (404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        if refusal is not None:
            self.reply(refusal[0], refusal[1], b"refused" if body else b"", 7)
            return
        commit = {"climbs": "../../../climbed", "mute": ""}.get(repo, COMMIT)
        headers = {"ETag": f'"{hash(content):x}"', "X-Repo-Commit": commit, "Accept-Ranges": "bytes"}
        span = self.headers.get("Range")
        if span and repo != "rangeless":
            first, last = (int(part) for part in span.removeprefix("bytes=").split("-"))
            piece = content[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{first + len(piece) - 1}/{len(content)}"
            self.reply(206, headers, piece if body else b"", len(piece))
        else:
            self.reply(200, headers, content if body else b"", len(content))

    def never_ends(self, repo):
        """Answers that go on, end early, or are not what they say; each ends where the reader hangs up."""
        form = repo.removeprefix("never-")
        self.close_connection = True
        self.send_response(200)
        if form == "chunked":
            self.send_header("Transfer-Encoding", "chunked")
        elif form == "packed":
            self.send_header("Content-Encoding", "gzip")
        elif form == "short":
            self.send_header("Content-Length", str(len(CONFIG)))
        elif form == "huge":
            self.send_header("Content-Length", str(2**62))
        self.end_headers()
        piece = b" " * 65536
        try:
            if form in ("short", "cut"):
                self.wfile.write(CONFIG[:20])
                return
            while not self.server.released.is_set():
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if form == "chunked" else piece)
                self.server.sent += len(piece)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def reply(self, status, headers, content, length):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        try:
            self.wfile.write(content)
            self.server.sent += len(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


class Server(ThreadingHTTPServer):
    """A client that hangs up early is part of the test, not worth a traceback."""

    def handle_error(self, request, client_address):
        pass


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The server, with the environment pointing at it and at an empty cache; nothing else is ever asked."""
    server = Server(("127.0.0.1", 0), Hub)
    server.log, server.refusals, server.sent = [], {}, 0
    server.files, server.released = {("tiny", "config.json"): CONFIG}, threading.Event()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    constants = pytest.importorskip("huggingface_hub.constants")
    for name in (
        "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_HUB_CACHE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()


def test_config_is_fetched_once_and_cached(hub, tmp_path, capfd):
    source = resolve("me/tiny")
    assert (source.kind, source.revision, source.config["hidden_size"]) == ("hub", COMMIT, 64)
    assert source.path.is_relative_to(tmp_path / "hf")
    assert {name for _, _, name, _, _ in hub.log} <= {
        "config.json",
        "model.safetensors.index.json",
        "model.safetensors",
    }
    hub.log.clear()
    assert resolve("me/tiny").kind == "cache"
    assert hub.log == []
    assert capfd.readouterr() == ("", "")


def test_the_token_is_sent(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    resolve("me/tiny")
    assert {authorization for *_, authorization in hub.log} == {"Bearer hf_test"}


@pytest.mark.parametrize(
    ("status", "headers", "said"),
    [
        (401, {"X-Error-Code": "GatedRepo"}, ("is gated", "HF_TOKEN", "hf auth login")),
        (403, {"X-Error-Code": "GatedRepo"}, ("is gated", "HF_TOKEN", "hf auth login")),
        (
            404,
            {"X-Error-Code": "RepoNotFound"},
            ("the hub has no model meta-llama/Lama-3.1-8B", "Did you mean"),
        ),
        (401, {}, ("the hub has no model", "HF_TOKEN", "Did you mean meta-llama/Llama-3.1-8B")),
        (403, {"X-Error-Message": "Access to this resource is disabled."}, ("has disabled",)),
        (500, {}, ("answered 500",)),
        (429, {}, ("answered 429",)),
    ],
)
def test_refusals_are_one_line_and_quick(hub, capfd, status, headers, said):
    hub.refusals["Lama-3.1-8B"] = (status, headers)
    with pytest.raises(UnreachableError) as caught:
        resolve("meta-llama/Lama-3.1-8B")
    message = str(caught.value)
    assert all(part in message for part in said), message
    assert "\n" not in message
    assert caught.value.exit_code == 3
    assert capfd.readouterr() == ("", "")


def test_a_refused_token_is_named(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    hub.refusals["x"] = (401, {"X-Error-Message": "Invalid credentials in Authorization header"})
    with pytest.raises(UnreachableError, match="refuses the token"):
        resolve("me/x")
    hub.refusals["x"] = (403, {"X-Error-Code": "GatedRepo"})
    with pytest.raises(UnreachableError, match="the token given has no access"):
        resolve("me/x")


def test_an_unknown_revision_is_named(hub):
    with pytest.raises(UnreachableError, match="no revision 'v9'"):
        resolve("me/tiny", revision="v9")


def test_a_repository_without_config_is_explained(hub):
    hub.files["llama-gguf", "model.gguf"] = b"GGUF"
    with pytest.raises(InputError, match=r"has no config\.json on the hub"):
        resolve("me/llama-gguf")


def test_an_oversized_config_is_not_fetched(hub):
    hub.files["big", "config.json"] = b" " * 6_000_000
    with pytest.raises(InputError, match="6,000,000 bytes"):
        resolve("me/big")
    assert hub.sent < 1_000_000


def test_a_broken_config_names_the_repository(hub):
    hub.files["bad", "config.json"] = b'{"model_type": "llama", '
    with pytest.raises(InputError, match=r"config\.json of me/bad is not valid JSON"):
        resolve("me/bad")


def test_no_network_is_one_quick_line(hub, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UnreachableError, match=r"the hub cannot be reached .*Did you mean meta-llama") as caught:
        resolve("meta-llama/Lama-3.1-8B")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("repo", ["garbles", "stalls"])
def test_a_server_that_stalls_or_garbles_is_given_up(hub, monkeypatch, repo):
    monkeypatch.setattr(source_hub, "CONNECT_SECONDS", 0.5)
    with pytest.raises(UnreachableError, match="cannot be reached"):
        resolve(f"me/{repo}")


def test_the_whole_conversation_is_bounded(hub, monkeypatch):
    monkeypatch.setattr(source_hub, "TOTAL_SECONDS", 0.3)
    with pytest.raises(UnreachableError, match="within 0 seconds"):
        resolve("me/stalls")


@pytest.mark.parametrize("form", ["endless", "chunked", "packed", "short", "cut", "huge"])
def test_bytes_are_bounded_whatever_the_hub_says(hub, tmp_path, capfd, form):
    hub.files[(f"never-{form}", "config.json")] = CONFIG
    with pytest.raises((InputError, UnreachableError)) as refused:
        resolve(f"me/never-{form}")
    assert str(refused.value).count("\n") == 0
    assert hub.sent < 2 * MAX_BYTES + 8_000_000, "what the sockets hold may be on its way"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("repo", ["climbs", "mute"])
def test_a_commit_is_no_path(hub, tmp_path, repo):
    hub.files[(repo, "config.json")] = CONFIG
    with pytest.raises(UnreachableError, match="does not say which commit"):
        resolve(f"me/{repo}")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_is_no_config_is_not_kept(hub, tmp_path):
    hub.files[("half", "config.json")] = CONFIG[:20]
    with pytest.raises(InputError, match="not valid JSON"):
        resolve("me/half")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_all_headers_together_are_bounded(hub, monkeypatch):
    monkeypatch.setattr(ranges, "MAX_BYTES", 1000)
    index = {"weight_map": {f"w{n}": f"model-{n}.safetensors" for n in range(40)}}
    hub.files |= {("tiny", "model.safetensors.index.json"): json.dumps(index).encode()}
    hub.files |= {("tiny", f"model-{n}.safetensors"): WEIGHTS for n in range(40)}
    source = resolve("me/tiny")
    assert source.stored is None
    assert "more than 1,000 bytes" in source.notes[-1]


def test_huggingface_hub_itself_finds_what_is_kept(hub, tmp_path):
    from huggingface_hub import try_to_load_from_cache

    source = resolve("me/tiny")
    found = try_to_load_from_cache("me/tiny", "config.json", cache_dir=tmp_path / "hf" / "hub")
    assert found == str(source.path)


def test_offline_mode_asks_nothing(hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UnreachableError, match="HF_HUB_OFFLINE"):
        resolve("me/tiny")
    assert hub.log == []


@pytest.mark.parametrize("repo", ["single", "rangeless"])
def test_headers_are_read_by_range_and_weights_are_not(hub, repo, monkeypatch):
    monkeypatch.setattr("gpu_plan.planner.model.source.ranges.FIRST_BYTES", 64)
    hub.files[repo, "config.json"] = CONFIG
    hub.files[repo, "model.safetensors"] = WEIGHTS
    source = resolve(f"me/{repo}")
    assert source.stored.entries == {"w": ((256, 512), "bfloat16"), "v": ((4,), "float32")}
    asked = [span for _, _, name, span, _ in hub.log if name == "model.safetensors"]
    assert asked[0] == "bytes=0-63"
    assert all(span is not None for span in asked)
    if repo == "single":
        assert hub.sent < 2000


def test_sharded_headers_are_read_through_the_index(hub):
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    hub.files["big", "config.json"] = CONFIG
    hub.files["big", "model.safetensors.index.json"] = json.dumps(index).encode()
    hub.files["big", "m-1.safetensors"] = safetensors({"a": ("F32", (2,))})
    hub.files["big", "m-2.safetensors"] = safetensors({"b": ("F32", (3,))})
    assert resolve("me/big").stored.parameters == 5


@pytest.mark.parametrize(
    ("content", "said"), [(b"\xff" * 200, "not read from the hub"), (None, "no safetensors weights")]
)
def test_unusable_headers_are_a_note_not_an_error(hub, content, said):
    hub.files["odd", "config.json"] = CONFIG
    if content is not None:
        hub.files["odd", "model.safetensors"] = content
    source = resolve("me/odd")
    assert source.stored is None
    assert said in source.notes[-1]
