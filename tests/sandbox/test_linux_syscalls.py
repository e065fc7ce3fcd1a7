"""Real programs work in the sandboxes: what holds commands back leaves them what they need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skillbelt.sandbox.linux.bubblewrap import LinuxSandbox
from skillbelt.sandbox.linux.identity import current_identity
from skillbelt.sandbox.linux.landlock import LandlockSandbox
from skillbelt.sandbox.protocol import Mount, Outcome, Sandbox, run
from skillbelt.testing.sandbox_suite import PATH, Place
from skillbelt.values import Capabilities, Limits

SANDBOXES: dict[str, Sandbox] = {"bubblewrap": LinuxSandbox(), "landlock": LandlockSandbox()}
LIMITS = Limits(max_processes=256, max_memory_bytes=2**31, max_stream_bytes=2**16)

PYTHON = """
import asyncio, ctypes, fcntl, hashlib, mmap, multiprocessing, os, select, shutil, signal, socket
import sqlite3, ssl, subprocess, tempfile, threading, time, zlib
from concurrent.futures import ThreadPoolExecutor

async def both():
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    said, _ = await child.communicate(b"through")
    found = await asyncio.gather(asyncio.sleep(0, said), asyncio.to_thread(os.getpid))
    return found[0]

def sent(end):
    end.send(os.getpid())

assert asyncio.run(both()) == b"through"
with ThreadPoolExecutor(4) as pool:
    assert sum(pool.map(len, ["ab"] * 50)) == 100
for way in ("fork", "spawn"):
    context = multiprocessing.get_context(way)
    here, there = context.Pipe()
    child = context.Process(target=sent, args=(there,))
    if __name__ == "__main__":
        child.start()
        assert here.recv() == child.pid
        child.join()
if __name__ == "__main__":
    base = sqlite3.connect("data.db")
    base.execute("pragma journal_mode=wal")
    with base:
        base.execute("create table t (x)")
        base.execute("insert into t values (1)")
    assert base.execute("select x from t").fetchone() == (1,)
    with tempfile.TemporaryFile(dir=".") as file:
        file.write(bytes(8192))
        file.flush()
        with mmap.mmap(file.fileno(), 8192) as view:
            view[0] = 1
    ssl.create_default_context()
    assert subprocess.run("echo x | tr x y", shell=True, capture_output=True).stdout == b"y\\n"
    poll = select.epoll()
    a, b = socket.socketpair()
    poll.register(a, select.EPOLLIN)
    b.send(b"x")
    assert poll.poll(10)
    fcntl.flock(open("data.db"), fcntl.LOCK_SH)
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    while not seen:
        signal.pause()
    open("one", "w").write("x")
    os.chmod("one", 0o755)
    shutil.copy2("one", "two")
    shutil.copytree(".", "../work/copy", ignore=lambda *_: ["copy"])
    os.sched_getaffinity(0), os.getloadavg, os.cpu_count(), os.urandom(8), os.statvfs(".")
    print("worked")
"""
NODE = """
const {Worker, isMainThread, parentPort} = require("worker_threads");
if (!isMainThread) { parentPort.postMessage(21 * 2); return; }
const fs = require("fs"), os = require("os"), {execFileSync} = require("child_process");
const sum = require("./node_modules/sum");
new Worker(__filename).on("message", async (number) => {
  fs.writeFileSync("made", String(number));
  await fs.promises.copyFile("made", "copied");
  const said = execFileSync("cat", ["copied"]).toString();
  require("crypto").randomBytes(8); os.cpus(); os.totalmem(); process.memoryUsage();
  const data = require("zlib").gzipSync("x".repeat(1000));
  if (said === "42" && sum(1, 2) === 3 && data.length < 100) console.log("worked");
});
"""
JAVA = """
import java.nio.file.*; import java.util.concurrent.*;
public class Main {
  public static void main(String[] words) throws Exception {
    var pool = Executors.newFixedThreadPool(4);
    int found = pool.submit(() -> 42).get();
    pool.shutdown();
    Files.writeString(Path.of("made"), "x" + found);
    var child = new ProcessBuilder("cat", "made").start();
    if (new String(child.getInputStream().readAllBytes()).equals("x42")) {
      System.out.println("worked");
    }
  }
}
"""
CPP = """
#include <atomic>
#include <filesystem>
#include <iostream>
#include <thread>
#include <vector>
int main() {
  std::atomic<int> sum{0};
  std::vector<std::thread> all;
  for (int each = 0; each < 8; each++) all.emplace_back([&] { sum += 1; });
  for (auto& one : all) one.join();
  for (auto& found : std::filesystem::directory_iterator(".")) (void)found;
  std::cout << (sum == 8 ? "worked" : "failed") << std::endl;
}
"""
MAKEFILE = "all: a b\n\t@cat a b\na:\n\t@printf wor > a\nb:\n\t@printf 'ked\\n' > b\n"
FILES = {
    "all.py": PYTHON, "all.js": NODE, "Main.java": JAVA, "all.cc": CPP, "Makefile": MAKEFILE,
    "node_modules/sum/index.js": "module.exports = (a, b) => a + b;",
    "hello.c": '#include <stdio.h>\nint main(void) { puts("worked"); return 0; }\n',
}  # fmt: skip
# Each prints that it worked; the first word is the program that must be there.
SCRIPTS = (
    "python3 all.py",
    "node all.js",
    "java -Xmx256m -XX:+UseSerialGC Main.java",
    "gcc -O1 -pipe -o hello hello.c && ./hello",
    "g++ -std=c++17 -pthread -o all all.cc && ./all",
    "make -s -j4",
    "perl -MFile::Temp -MPOSIX -e 'my $p = fork // die; exit 0 unless $p; waitpid($p, 0); "
    'open(my $f, "-|", "echo worked"); print <$f>\'',
    "bash -c 'set -o pipefail; cat <(seq 3) | sort -r | while read x; do last=$x; done; "
    "coproc cat; echo worked >&${COPROC[1]}; read -u ${COPROC[0]} said; echo $said; kill %1'",
    "git init -q r && cd r && echo x > a && git add a && git -c user.name=a -c user.email=a@b "
    "commit -qm one && git clone -q . ../s && git gc -q && git log --format=tformat:worked",
    "tar cf a.tar hello.c && mkdir t && tar xpf a.tar -C t && cmp hello.c t/hello.c && echo worked",
    "gzip -k hello.c && gunzip -c hello.c.gz | cmp - hello.c && echo worked",
    "xz -k -T2 hello.c && xz -dc hello.c.xz | cmp - hello.c && echo worked",
    "zstd -q -T2 hello.c && zstd -dqc hello.c.zst | cmp - hello.c && echo worked",
    "jq -nr '[\"wor\", \"ked\"] | add'",
    "openssl rand 8 > r && openssl dgst -sha256 r > s && openssl genrsa -out k 2048 2> /dev/null "
    "&& openssl pkey -in k -pubout > /dev/null && echo worked",
    "sqlite3 base.db 'create table t (x); insert into t values (\"worked\"); select x from t'",
    "awk 'BEGIN { \"echo worked\" | getline x; print x }'",
    "find . -name hello.c -exec sh -c 'echo worked' ';'",
    "cp -a hello.c b.c && install -m 755 b.c c.c && mv c.c d.c && ln -s d.c e && ls -l > /dev/null "
    "&& stat e > /dev/null && mkfifo p && rm -r p e && nproc > /dev/null && date > /dev/null && "
    "timeout 9 nice sort hello.c > /dev/null && echo worked",
)  # fmt: skip


def there(script: str) -> bool:
    return any(
        os.access(f"{folder}/{script.split()[0]}", os.X_OK) for folder in ("/usr/bin", "/bin")
    )


# Both have one list of system calls; the other tests run with both.
@pytest.mark.parametrize(
    "sandbox", ["bubblewrap", pytest.param("landlock", marks=pytest.mark.long)]
)
@pytest.mark.parametrize(
    "script", [one for one in SCRIPTS if there(one)], ids=lambda script: str(script).split()[0]
)
def test_a_program_works(script: str, sandbox: str, place: Place) -> None:
    outcome = started(script, sandbox, place)
    said = outcome.exit_code, outcome.stdout.data, outcome.stderr.data
    assert said[:2] == (0, b"worked\n"), said


@pytest.mark.parametrize("sandbox", sorted(SANDBOXES))
def test_a_script_works_without_the_right_to_start_processes(sandbox: str, place: Place) -> None:
    code = (
        "import mmap, os, sqlite3, ssl, threading; t = threading.Thread(target=os.getpid); "
        "t.start(); t.join(); mmap.mmap(-1, 4096); ssl.create_default_context(); print('worked')"
    )
    job = place.python(code, capabilities=Capabilities(), limits=LIMITS)
    outcome = run(SANDBOXES[sandbox], job)
    said = outcome.exit_code, outcome.stdout.data, outcome.stderr.data
    assert said[:2] == (0, b"worked\n"), said


def started(script: str, sandbox: str, place: Place) -> Outcome:
    for name, text in FILES.items():
        path = Path(place.folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.chown(path, *current_identity())
    home = {"HOME": place.target, "TMPDIR": place.target, "GIT_CONFIG_NOSYSTEM": "1"}
    mounts = [Mount(place.folder, place.target, True)]
    mounts += (Mount(str(path), str(path)) for path in Path("/etc").glob("java-*-openjdk"))
    job = place.job(
        "bash", "-c", script, env={"PATH": PATH, **home}, limits=LIMITS, mounts=tuple(mounts)
    )
    return run(SANDBOXES[sandbox], job)
