"""Start a stranger's script outside the sandbox, to learn whether this machine could at all.

Outside still means harmless: an unprivileged user who owns nothing, no network, a folder of its
own for HOME and /tmp, a copy of the skill, a time limit, and only as root on Linux, who can set
that up. The packages are those that the sandboxed run had; where it got none, the modules that the
script imports are looked for in the index by their names, so that a package that skillbelt failed
to find still counts against it.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from skillbelt.format.skill import Skill
from skillbelt.running.packages.installers import find_uv
from skillbelt.running.trial.scripts import Script
from skillbelt.running.trial.trial import ScriptTrial
from skillbelt.running.trial.verdict import Ended, Verdict, judge

USER = 61_234
# Too large to be worth a disk: a script that imports one of these is counted apart.
HEAVY = frozenset(
    ("torch", "tensorflow", "jax", "vllm", "torchvision", "torchaudio", "transformers", "nvidia",
     "sentence_transformers", "ultralytics", "easyocr", "whisper", "whisperx", "paddleocr",
     "paddle", "keras", "pytorch_lightning", "diffusers", "accelerate", "torch_geometric", "peft",
     "stable_baselines3", "scvi", "deepchem", "unsloth", "bitsandbytes", "cupy", "docling",
     "pyspark", "trl", "timm", "spacy", "flair", "stanza", "demucs", "kokoro")
)  # fmt: skip
SECONDS = 20.0
_OUTPUT = 2**16
_SYSTEM_PYTHON = "/usr/bin/python3"
_BUILTIN_JS = re.compile(
    r"""(?:require\(|from\s|import\s|import\()\s*['"]([^'"./][^'"]*)['"]""",
)
# Names that differ from the package's, for the commonest of them; others are tried as they are.
_PACKAGES = {
    "PIL": "pillow", "cv2": "opencv-python-headless", "yaml": "pyyaml", "bs4": "beautifulsoup4",
    "docx": "python-docx", "pptx": "python-pptx", "fitz": "pymupdf", "sklearn": "scikit-learn",
    "skimage": "scikit-image", "dotenv": "python-dotenv", "dateutil": "python-dateutil",
    "Bio": "biopython", "serial": "pyserial", "jwt": "pyjwt", "git": "gitpython",
    "googleapiclient": "google-api-python-client", "google": "google-genai",
    "OpenSSL": "pyopenssl", "Crypto": "pycryptodome", "telegram": "python-telegram-bot",
    "websocket": "websocket-client", "magic": "python-magic", "slugify": "python-slugify",
    "youtube_transcript_api": "youtube-transcript-api", "frontmatter": "python-frontmatter",
}  # fmt: skip
_NODE_OWN = frozenset(
    ("assert", "buffer", "child_process", "cluster", "console", "crypto", "dgram", "dns", "events",
     "fs", "http", "http2", "https", "inspector", "module", "net", "os", "path", "perf_hooks",
     "process", "punycode", "querystring", "readline", "repl", "stream", "string_decoder",
     "timers", "tls", "tty", "url", "util", "v8", "vm", "wasi", "worker_threads", "zlib")
)  # fmt: skip
# The caller's own folders are hidden, and /tmp is the script's own. `$1` is the work folder, `$2`
# the packages; both may lie below /tmp, so they are held elsewhere while that is covered.
_SETUP = """
set -e
work=$1; packages=$2; shift 2
mount -t tmpfs tmpfs /mnt
mkdir /mnt/w /mnt/p
mount --bind "$work" /mnt/w
if [ -n "$packages" ]; then mount --bind "$packages" /mnt/p; fi
for folder in /tmp /var/tmp /root /home /work /media /srv /dev/shm; do
  if [ -d "$folder" ]; then mount -t tmpfs -o mode=1777 tmpfs "$folder"; fi
done
mkdir -p "$work"; mount --bind /mnt/w "$work"
if [ -n "$packages" ]; then
  mkdir -p "$packages"; mount --bind /mnt/p "$packages"; mount -o remount,bind,ro "$packages"
fi
umount -l /mnt
cd "$work/skill/$CWD"
unset CWD
exec setpriv --reuid="$RUN_AS" --regid="$RUN_AS" --clear-groups --no-new-privs \
  --inh-caps=-all --bounding-set=-all prlimit --nproc=512 --fsize=268435456 --core=0 "$@"
"""


def why_not() -> str:
    """Return why nothing can be started outside here; "" when it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "only root on Linux can make a user and a network for strangers' scripts"
    missing = [one for one in ("unshare", "setpriv", "prlimit", "mount") if not shutil.which(one)]
    return f"{', '.join(missing)} cannot be found" if missing else ""


def start_outside(skill: Skill, script: Script, tried: ScriptTrial, cache: str) -> Verdict:
    """Start the script outside, as the trial did inside; return the verdict on it."""
    needed = tried.how in ("package", "module", "refused") or not tried.environment
    packages = tried.environment
    # Packages that are declared and cannot be provided as a whole are not there outside either.
    if needed and not packages and tried.how != "package":
        packages = _own_packages(skill, script, cache)
    with tempfile.TemporaryDirectory(prefix="outside-", dir=cache) as work:
        copy = shutil.copytree(skill.dir, f"{work}/skill", symlinks=True)
        home = Path(work, "home")
        home.mkdir()
        modules = f"{packages}/node_modules"
        if packages and os.path.isdir(modules) and not os.path.lexists(f"{copy}/node_modules"):
            os.symlink(modules, f"{copy}/node_modules")
        for folder, names, files in os.walk(work):
            for name in (".", *names, *files):
                os.chown(os.path.join(folder, name), USER, USER, follow_symlinks=False)
        os.chmod(work, 0o755)
        arguments: tuple[str, ...] = () if script.library else ("--help",)
        arguments = script.example.arguments if script.example else arguments
        return judge(script, _run(work, packages, script, (*script.command, *arguments)))


def _run(work: str, packages: str, script: Script, command: Sequence[str]) -> Ended:
    path = [f"{packages}/interpreter", f"{packages}/bin"] if packages else []
    path += ["/usr/local/bin", "/usr/bin", "/bin"]
    if packages:
        path.append(f"{packages}/node_modules/.bin")
    env = {
        "PATH": ":".join(path),
        "HOME": f"{work}/home",
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NODE_PATH": f"{packages}/node_modules" if packages else "",
        "CWD": script.cwd,
        "RUN_AS": str(USER),
    }
    alone = ("unshare", "--net", "--mount", "--pid", "--ipc", "--fork", "--kill-child")
    argv = (*alone, "--mount-proc", "sh", "-c", _SETUP, "sh", work, packages, *command)
    process = subprocess.Popen(
        argv,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=SECONDS)
        late = False
    except subprocess.TimeoutExpired:
        # The signal that `--kill-child` asks for is gone with the change of the user: the first
        # process of the namespace is ended here, and all others with it.
        for child in _children(process.pid):
            os.kill(child, signal.SIGKILL)
        process.kill()
        stdout, stderr = process.communicate()
        late = True
    said, complained = (one[:_OUTPUT].decode("utf-8", "replace") for one in (stdout, stderr))
    return Ended(process.returncode, said, complained, late)


def _children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


# Packages that the sandboxed run did not get


def _own_packages(skill: Skill, script: Script, cache: str) -> str:
    """Return an environment with what the index has of the skill's imports; "" for none."""
    kinds = {"python": (".py",), "shell": ()}.get(script.language, (".js", ".mjs", ".cjs", ".ts"))
    found: set[str] = set()
    for entry in skill.files.entries():
        if entry.kind == "file" and entry.path.endswith(kinds):
            text = Path(skill.dir, entry.path).read_text("utf-8", "replace")
            if kinds == (".py",):
                found.update(_python_imports(text))
            else:
                found.update(_node_package(one) for one in _BUILTIN_JS.findall(text))
    if script.language == "python":
        names = found - _own_modules(skill) - sys.stdlib_module_names - HEAVY
        return _environment("python", sorted({_PACKAGES.get(one, one) for one in names}), cache)
    return _environment("node", sorted(found - _NODE_OWN - {""}), cache)


def _python_imports(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for one in ast.walk(tree):
        if isinstance(one, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in one.names)
        elif isinstance(one, ast.ImportFrom) and one.module and not one.level:
            yield one.module.partition(".")[0]


def _own_modules(skill: Skill) -> set[str]:
    parts = (Path(one.path) for one in skill.files.entries())
    return {name for path in parts for name in (path.stem, *path.parts[:-1])}


def _node_package(name: str) -> str:
    if name.startswith(("node:", "https:", "npm:", "jsr:")):
        return ""
    return "/".join(name.split("/")[: 2 if name.startswith("@") else 1])


def _environment(kind: str, names: Sequence[str], cache: str) -> str:
    if not names:
        return ""
    path = Path(cache, "outside", sha256("\n".join((kind, *names)).encode()).hexdigest()[:24])
    if (path / "done").exists():
        return str(path)
    path.mkdir(parents=True, exist_ok=True)
    if kind == "python":
        _install_python(path, names)
    else:
        (path / "package.json").write_text("{}")
        npm = (
            "npm",
            "install",
            "--ignore-scripts",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(path),
        )
        _try_each(npm, names)
    (path / "done").touch()
    return str(path)


def _install_python(path: Path, names: Sequence[str]) -> None:
    uv = find_uv("", os.environ)
    subprocess.run((uv, "venv", "-q", "--allow-existing", "-p", _SYSTEM_PYTHON, path), check=True)
    (path / "interpreter").unlink(missing_ok=True)
    os.symlink("bin", path / "interpreter")
    wheels = (uv, "pip", "install", "-q", "--only-binary", ":all:", "-p", str(path / "bin/python"))
    _try_each(wheels, names)


def _try_each(command: Iterable[str], names: Sequence[str]) -> None:
    """Install all at once, or, if one of them cannot be had, each by itself."""

    def install(*some: str) -> bool:
        done = subprocess.run(
            (*command, *some), stdin=subprocess.DEVNULL, capture_output=True, timeout=900
        )
        return done.returncode == 0

    if not install(*names) and len(names) > 1:
        for one in names:
            install(one)
