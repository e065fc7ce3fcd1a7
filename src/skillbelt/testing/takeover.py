"""The attacks on the process that supervises a run, as data; see `probes`.

That is the first process of a pid namespace, or the launcher if there is none.
"""

from skillbelt.testing.probe import Probe

_ABOVE = """
above = sorted({1, os.getppid()} - {0, os.getpid()})
def opened(pid, name, flags): return os.open(f"/proc/{pid}/{name}", flags)
def written(pid):
    room = ctypes.create_string_buffer(8)
    mine = struct.pack("QQ", ctypes.addressof(room), 8)
    return syscall(311, 271, pid, mine, 1, struct.pack("QQ", 0x400000, 8), 1, 0)
ways = (
    lambda pid: opened(pid, "mem", os.O_RDWR), lambda pid: opened(pid, "mem", os.O_RDONLY),
    lambda pid: opened(pid, "maps", os.O_RDONLY), lambda pid: opened(pid, "exe", os.O_RDWR),
    lambda pid: opened(pid, "environ", os.O_RDONLY), lambda pid: os.listdir(f"/proc/{pid}/fd"),
    lambda pid: os.listdir(f"/proc/{pid}/map_files"), lambda pid: os.readlink(f"/proc/{pid}/exe"),
    lambda pid: syscall(101, 117, 16, pid, 0, 0), lambda pid: syscall(101, 117, 0x4206, pid, 0, 0),
    lambda pid: syscall(438, 438, os.pidfd_open(pid), 0, 0), written,
)
"""

TAKEOVER = (
    Probe(
        name="take over PID 1",
        numbers=(73,),
        claim="other processes",
        script=_ABOVE
        + """
attempt(*(lambda way=way, pid=pid: way(pid) for way in ways for pid in above))
""",
        allowed="os.kill(os.getpid(), 0); os.getppid()",
    ),
    Probe(
        name="outlive the run",
        numbers=(74,),
        claim="time",
        script="""
import signal
told, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        libc.prctl(1, 0, 0, 0, 0)
        for number in range(1, 65):
            try:
                signal.signal(number, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        os.write(tell, b"1")
        os.closerange(0, 64)
        for _ in range(200):
            time.sleep(0.1)
    os._exit(0)
os.wait()
os.read(told, 1)
for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
    for pid in {1, os.getppid()} - {0}:
        try:
            os.kill(pid, number)
        except OSError:
            pass
held("what it left is looked for")
""",
        allowed="import subprocess; subprocess.Popen(['sleep', '0']).wait()",
    ),
    Probe(
        name="hold PID 1 back",
        numbers=(74,),
        claim="other processes",
        script=_ABOVE
        + """
ways = (
    lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    lambda pid: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}),
    lambda pid: syscall(251, 30, 1, pid, 3 << 13),
    lambda pid: os.setpriority(os.PRIO_PGRP, 0, 19),
    lambda pid: os.setpriority(os.PRIO_USER, os.getuid(), 19),
)
attempt(*(lambda way=way, pid=pid: way(pid) for way in ways for pid in above))
""",
        allowed="os.nice(1); os.sched_setaffinity(0, os.sched_getaffinity(0))",
    ),
    Probe(
        name="raise limits through PID 1",
        numbers=(75,),
        claim="other processes",
        script=_ABOVE
        + """
import resource
kinds = (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)
free = struct.pack("QQ", 2**64 - 1, 2**64 - 1)
attempt(*(lambda kind=kind, pid=pid: syscall(302, 261, pid, kind, free, 0)
          for kind in kinds for pid in (0, *above)),
        *(lambda pid=pid: opened(pid, "limits", os.O_WRONLY) for pid in above),
        *(lambda pid=pid: opened(pid, "mem", os.O_RDWR) for pid in above))
""",
        allowed="import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    ),
    Probe(
        name="become another program through PID 1",
        numbers=(76,),
        claim="other programs",
        script=_ABOVE
        + """
def replaced(): os.execv("/bin/sh", ["sh", "-c", "echo broke another program runs"])
attempt(replaced, *(lambda way=way, pid=pid: way(pid) for way in ways for pid in above),
        *(lambda name=name: os.chmod(name, 0o755) for name in ("/.sandbox/sh", "/.sandbox/last")),
        lambda: os.fork())
""",
        allowed="import threading; t = threading.Thread(target=print); t.start(); t.join()",
        processes=False,
    ),
)
