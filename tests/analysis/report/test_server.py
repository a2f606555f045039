"""The live page over HTTP: what is refused, what is served, and that runs in training are followed."""

import contextlib
import http.client
import json
import os
import socket
import threading
import time

import pytest

from gaitway.analysis.report.server import POLICY, DashServer


@contextlib.contextmanager
def serving(root, host=None):
    with DashServer(root, host, 0) as server:
        server.board.start()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.board.close()


def ask(server, path, method="GET", headers=None, host=None):
    """Status, headers and body; the path goes over the wire as it stands."""
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", host or f"127.0.0.1:{port}")
    for name, value in (headers or {}).items():
        connection.putheader(name, value)
    connection.endheaders()
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, dict(reply.getheaders()), content


def state_of(server, version=""):
    status, _, content = ask(server, f"/api/state?version={version}")
    return json.loads(content) if status == 200 else None


@pytest.fixture
def runs(three_groups, film):
    folder = three_groups / "0.2" / "0"
    (folder / "videos").mkdir()
    (folder / "videos" / "300 #1.mp4").write_bytes(film)
    (folder / "media").mkdir()
    (folder / "media" / "evil.html").write_text("<script>1</script>")
    (three_groups.parent / "outside.mp4").write_bytes(b"outside")
    return three_groups


def test_the_page_and_its_parts_are_served_under_a_strict_policy(runs):
    with serving(runs) as server:
        status, headers, page = ask(server, "/")
        assert status == 200
        assert b'id="curves-figure"' in page
        assert b"<script>" not in page
        assert headers["Content-Security-Policy"] == POLICY
        assert "unsafe" not in POLICY
        assert "http" not in POLICY
        assert headers["X-Content-Type-Options"] == "nosniff"
        for address in server.static:
            status, headers, content = ask(server, address)
            assert status == 200
            assert len(content) == int(headers["Content-Length"])
        state = state_of(server)
        assert state["verdict"]["heading"] == "lr=0.2 leads"
        assert ask(server, f"/api/state?version={state['version']}")[0] == 204
        curves = json.loads(ask(server, "/api/curves?metric=eval%2Freturn")[2])
        assert len(curves["runs"]) == 9
        assert ask(server, "/api/curves?metric=nothing")[0] == 404


def test_films_are_served_in_ranges(runs, film):
    with serving(runs) as server:
        state = state_of(server)
        number = next(one["run"] for one in state["media"] if one["kind"] == "video")
        address = f"/media/{state['runs'][number]['id']}/videos/300%20%231.mp4"
        whole = ask(server, address)
        assert whole[0] == 200
        assert whole[2] == film
        assert whole[1]["Accept-Ranges"] == "bytes"
        for asked, start, stop in (
            ("0-9", 0, 10),
            ("10-", 10, None),
            ("-7", len(film) - 7, None),
            ("5-9999999", 5, None),
        ):
            status, headers, content = ask(server, address, headers={"Range": f"bytes={asked}"})
            assert status == 206
            assert content == film[start:stop]
            assert headers["Content-Range"] == f"bytes {start}-{start + len(content) - 1}/{len(film)}"
        assert ask(server, address, headers={"Range": "bytes=9999999-"})[0] == 416
        assert ask(server, address, headers={"Range": "bytes=5-2"})[0] == 416
        status, headers, content = ask(server, address, "HEAD")
        assert (status, headers["Content-Length"], content) == (200, str(len(film)), b"")
        page = f"/media/{state['runs'][number]['id']}/media/evil.html"
        headers = ask(server, page)[1]
        assert headers["Content-Type"].startswith("text/plain")
        assert headers["Content-Disposition"] == "attachment"
        assert "sandbox" in headers["Content-Security-Policy"]
        video = runs / "0.2" / "0" / "videos" / "300 #1.mp4"
        video.unlink()
        os.symlink(runs.parent / "outside.mp4", video)  # after it was listed
        assert ask(server, address)[0] == 404


def test_nothing_outside_is_served_however_it_is_written(runs):
    with serving(runs) as server:
        state = state_of(server)
        number = next(one["run"] for one in state["media"] if one["kind"] == "video")
        here = f"/media/{state['runs'][number]['id']}"
        ups = ("..", "%2e%2e", "%2E.", "..%2f..", "%252e%252e", "..%5c..", "%c0%ae%c0%ae", "..;", "....//", "%00..")
        paths = [f"{here}/videos/{up}/{up}/{up}/{up}/outside.mp4" for up in ups]
        paths += [f"{here}/videos/{up}/config.yaml" for up in ups]
        paths += [f"/{up}/{up}/outside.mp4" for up in ups] + [f"/static/{up}/page.py" for up in ups]
        paths += [f"{here}//etc/passwd", f"{here}/config.yaml", "/etc/passwd", "//etc/passwd", "/media", "/media/"]
        paths += [f"{here}/videos", f"{here}/videos/", f"{here}/videos/300 .mp4".replace(" ", "%20"), "http://other/"]
        for path in paths:
            status, _, content = ask(server, path)
            assert (status in (400, 404), content[:9]) == (True, b"gaitway: "), path


def test_other_methods_and_names_are_refused(runs):
    with serving(runs) as server:
        port = server.server_address[1]
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
            status, headers, _ = ask(server, "/api/state", method)
            assert status == 405
            assert headers["Allow"] == "GET, HEAD"
        assert ask(server, "/", "BREW")[0] == 501
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1",
            "127.0.0.1:1",
            f"127.0.0.1.evil.example:{port}",
        ):
            assert ask(server, "/api/state", host=host)[0] == 421, host
        for host in (f"10.0.0.1:{port}", f"127.0.0.1:{port}@evil", "", f"localhost:{port}, evil"):
            assert ask(server, "/api/state", host=host or " ")[0] == 421, host
        assert ask(server, "/", host=f"LOCALHOST:{port}")[0] == ask(server, "/", host=f"[::1]:{port}")[0] == 200
        for raw in (
            b"GET / HTTP/1.0\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"\x16\x03\x01\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as raw_socket:
                raw_socket.sendall(raw)
                assert b"not understood" in (said := raw_socket.makefile("rb").read()) or b" 421 " in said
        assert server.server_address[0] == "127.0.0.1"


def test_beyond_this_machine_a_token_is_needed(runs):
    with serving(runs, host="0.0.0.0") as server:
        port = server.server_address[1]
        assert server.token is not None
        assert f"?token={server.token}" in server.url
        for path in ("/", "/api/state", "/?token=wrong", f"/api/state?token={server.token}", "/media/x/y"):
            assert ask(server, path)[0] == 403, path
        assert ask(server, "/", headers={"Cookie": f"gaitway-{port}=wrong"})[0] == 403
        assert ask(server, "/", host="evil.example")[0] == ask(server, "/", host=f"evil.example:{port}")[0] == 421
        status, headers, _ = ask(server, f"/?token={server.token}", host=f"192.168.1.7:{port}")
        assert status == 303
        assert headers["Location"] == "/"
        assert "HttpOnly" in headers["Set-Cookie"]
        assert "SameSite=Strict" in headers["Set-Cookie"]
        cookie = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
        assert ask(server, "/", headers=cookie)[0] == ask(server, "/api/state", headers=cookie)[0] == 200


def test_points_and_runs_arrive_within_five_seconds_whatever_becomes_of_the_file(runs, make_run):
    metrics = runs / "0.3" / "2" / "metrics.jsonl"

    def await_state(server, holds):
        begun = time.monotonic()
        while not holds(state := state_of(server)):
            assert time.monotonic() - begun < 5.0
            time.sleep(0.1)
        return state

    def last(state):
        return state["runs"][-1]["last"]

    with serving(runs) as server:
        await_state(server, lambda state: len(state["runs"]) == 9)
        with metrics.open("a") as file:
            file.write('{"step": 400, "eval/return": 50.0}\n{"step": 500, "eval/ret')
        await_state(server, lambda state: last(state) == 50.0)  # the line that is cut waits for its end
        with metrics.open("a") as file:
            file.write('urn": 60.0}\n')
        await_state(server, lambda state: last(state) == 60.0)
        other = metrics.with_name("other")
        other.write_text('{"step": 100, "eval/return": 1.5}\n')
        os.replace(other, metrics)
        await_state(server, lambda state: last(state) == 1.5)
        metrics.unlink()
        os.symlink("/etc/passwd", metrics)
        state = await_state(server, lambda state: len(state["runs"]) == 8)
        assert "0.3/2" in state["problems"][0]["folder"]
        assert "root:" not in json.dumps(state)
        make_run("new", [3.0], lr=0.9)
        await_state(server, lambda state: any(run["name"] == "new" for run in state["runs"]))
