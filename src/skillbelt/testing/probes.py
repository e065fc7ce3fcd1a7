"""The attacks, as data: what each tries inside, and an ordinary action that must work.

Each probe is Python that ends in `held(why)` when it was stopped or `broke(what)` when it was not.
The functions it can use are in `skillbelt.testing.prelude`; `scene` holds what the host prepared,
see `skillbelt.testing.attacks`. The numbers are those of the list in design/attacks.md.
"""

from skillbelt.testing.probe import Probe as Probe
from skillbelt.testing.resource_attacks import HOARDS
from skillbelt.testing.takeover import TAKEOVER

_FILL_DISK = """
for n in range(300):
    with open(f"part{n}", "wb", 0) as file:
        for _ in range(4):
            file.write(os.urandom(2**20))
broke("1200 MiB")
"""

FILES = (
    Probe(
        name="read credentials",
        numbers=(1,),
        claim="files",
        script="""
home = "/root" if sys.platform == "wasi" else os.path.expanduser("~" + "root")
attempt(*(lambda path=path: read(path) for path in (
    scene["secret"], scene["home"] + "/.ssh/id_ed25519", home + "/.ssh/id_rsa", "/etc/shadow")))
""",
        allowed="open('mine', 'w').write('x'); assert read('mine') == b'x'",
    ),
    Probe(
        name="list the home of the user",
        numbers=(1,),
        claim="files",
        script="""
attempt(lambda: os.listdir(scene["home"]))
""",
        allowed="os.listdir('.')",
    ),
    Probe(
        name="leave something where all can find it",
        numbers=(3,),
        claim="temporary files",
        script="""
for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", "/dev", "/run/lock"):
    try:
        write(folder + "/" + scene["planted"])
    except OSError:
        pass
held("what was written is the run's own")
""",
        allowed="write('/tmp/x'); read('/tmp/x'); write('/dev/shm/x')",
    ),
    Probe(
        name="read another session",
        numbers=(2, 88),
        claim="files",
        script="""
attempt(lambda: read(scene["other"] + "/work"), lambda: os.listdir(scene["other"]))
""",
        allowed="write('own'); read('own')",
    ),
    Probe(
        name="write outside the workspace",
        numbers=(3,),
        claim="files",
        script="""
attempt(*(lambda path=path: write(path + "/planted") for path in (
    scene["home"], scene["other"], "/etc", "/usr", "/usr/bin", "/usr/local", "/var/tmp",
    "/", "/root", "/opt", "/lib", "/run")))
""",
        allowed="write('planted')",
    ),
    Probe(
        name="change the modes of files",
        numbers=(3, 4),
        claim="file modes",
        script="""
attempt(*(lambda path=path: os.chmod(path, 0o777) for path in (
    scene["skill"] + "/SKILL.md", scene["secret"], scene["home"], "/etc/passwd", "/usr/bin/env")),
    lambda: os.utime(scene["secret"]), lambda: os.setxattr(scene["secret"], "user.x", b"x"))
""",
        allowed="write('own'); os.chmod('own', 0o600); os.utime('own')",
    ),
    Probe(
        name="write to the skill",
        numbers=(4, 87),
        claim="files",
        script="""
skill = scene["skill"]
attempt(lambda: write(skill + "/SKILL.md"), lambda: write(skill + "/new"),
        lambda: os.unlink(skill + "/SKILL.md"), lambda: os.rename(skill, skill + "2"),
        lambda: os.truncate(skill + "/SKILL.md", 0))
""",
        allowed="assert read(scene['skill'] + '/SKILL.md')",
    ),
    Probe(
        name="read through a link",
        numbers=(5,),
        claim="files",
        script="""
def through(target, name, use):
    os.symlink(target, name)
    return use(name)
attempt(lambda: through(scene["secret"], "link", read),
        lambda: through(os.path.relpath(scene["secret"]), "relative", read),
        lambda: through(scene["home"], "folder", os.listdir))
""",
        allowed="write('real'); os.symlink('real', 'alias'); read('alias')",
    ),
    Probe(
        name="hard link a secret",
        numbers=(6,),
        claim="files",
        script="""
attempt(lambda: os.link(scene["secret"], "linked"),
        lambda: os.link("/etc/shadow", "linked"))
""",
        allowed="write('one'); os.link('one', 'two')",
    ),
    Probe(
        name="move a file out",
        numbers=(7,),
        claim="files",
        script="""
write("loot")
def exchange():
    return syscall(316, 276, -100, b"loot", -100, scene["secret"].encode(), 2)
attempt(lambda: os.rename("loot", scene["other"] + "/loot"),
        lambda: os.rename("loot", "/usr/loot"), exchange,
        lambda: os.rename(os.getcwd(), os.getcwd() + "-moved"))
""",
        allowed="write('a'); os.rename('a', 'b')",
    ),
    Probe(
        name="magic links of /proc",
        numbers=(10,),
        claim="files",
        script="""
ways = ["/proc/self/root", "/proc/self/cwd/../../../../../..", "/proc/1/root", "/proc/1/cwd",
        "/proc/2/root", f"/proc/{scene['pid']}/root", f"/proc/{scene['pid']}/cwd"]
handles = f"/proc/{scene['pid']}/fd/"
attempt(*(lambda way=way: read(way + scene["secret"]) for way in ways),
        lambda: [os.readlink(handles + each) for each in os.listdir(handles)],
        lambda: [os.open(handles + each, os.O_PATH) for each in os.listdir(handles)])
""",
        allowed="os.readlink('/proc/self/cwd')",
    ),
    Probe(
        name="make a device",
        numbers=(16,),
        claim="files",
        script="""
import stat
attempt(*(lambda kind=kind, major=major: os.mknod("disk", kind | 0o666, os.makedev(major, 0))
          for kind in (stat.S_IFBLK, stat.S_IFCHR) for major in (1, 8, 254)))
""",
        allowed="os.mkfifo('pipe')",
    ),
    Probe(
        name="open devices",
        numbers=(16,),
        claim="files",
        script="""
names = ["mem", "kmem", "port", "kmsg", "kvm", "fuse", "net/tun", "sda", "vda", "nvme0n1", "loop0",
         "loop-control", "mapper/control", "uinput", "vhost-net", "snapshot"]
attempt(*(lambda name=name: os.open("/dev/" + name, os.O_RDONLY) for name in names))
""",
        allowed="read('/dev/urandom'); write('/dev/null')",
    ),
    Probe(
        name="file handles",
        numbers=(17,),
        claim="system calls",
        script="""
room = ctypes.create_string_buffer(struct.pack("II", 128, 0) + bytes(128))
mount = ctypes.c_int()
attempt(lambda: syscall(303, 264, -100, b".", room, ctypes.byref(mount), 0),
        lambda: syscall(304, 265, 3, room, 0))
""",
        allowed="os.stat('.')",
    ),
    Probe(
        name="leave a set-id file",
        numbers=(19, 33),
        claim="system calls",
        script="""
write("tool")
def created(): return os.open("tool2", os.O_CREAT | os.O_WRONLY, 0o4755)
attempt(lambda: os.chmod("tool", 0o4755), lambda: os.chmod("tool", 0o2755), created,
        lambda: syscall(452, 452, -100, b"tool", 0o4755, 0),
        lambda: syscall(437, 437, -100, b"tool3",
                        struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0), 24))
""",
        allowed="write('tool'); os.chmod('tool', 0o755); os.open('t', os.O_CREAT | os.O_WRONLY, "
        "0o700)",
    ),
)

PROCESSES = (
    Probe(
        name="kill others",
        numbers=(23,),
        claim="other processes",
        script="""
attempt(lambda: os.kill(scene["victim"], 9), lambda: os.kill(scene["pid"], 9),
        lambda: os.killpg(scene["victim"], 9),
        lambda: syscall(424, 424, scene["victim"], 9, 0, 0))
""",
        allowed="import subprocess; p = subprocess.Popen(['sleep', '9']); p.kill(); p.wait()",
    ),
    Probe(
        "kill everything",
        (23,),
        "other processes",
        """
try:
    os.kill(-1, 9)
except OSError as error:
    held(error)
time.sleep(0.2)
held("only its own")
""",
    ),
    Probe(
        name="hold others back",
        numbers=(23,),
        claim="other processes",
        script="""
import resource
none = struct.pack("QQ", 0, 2**64 - 1)
low = struct.pack("IIQiIQQQ", 48, 3, 0, 19, 0, 0, 0, 0)
ways = (lambda pid: syscall(302, 261, pid, resource.RLIMIT_NOFILE, none, 0),
        lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
        lambda pid: os.setpriority(os.PRIO_PGRP, pid, 19),
        lambda pid: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}),
        lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
        lambda pid: os.sched_setparam(pid, os.sched_param(0)),
        lambda pid: syscall(314, 274, pid, low, 0),
        lambda pid: syscall(251, 30, 1, pid, 3 << 13))
def everybody():
    # Its own processes may be among those; the host sees whether others are.
    for way in (lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
                lambda: syscall(251, 30, 3, os.getuid(), 3 << 13)):
        try:
            way()
        except OSError:
            pass
    raise OSError
attempt(*(lambda way=way, pid=pid: way(pid) for way in ways
          for pid in (scene["victim"], scene["pid"])), everybody)
""",
        allowed="""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 100))
os.setpriority(os.PRIO_PROCESS, 0, max(5, os.nice(1)))
os.sched_setaffinity(0, os.sched_getaffinity(0))
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
""",
    ),
    Probe(
        name="reach into another process",
        numbers=(24,),
        claim="system calls",
        script="""
buffer = ctypes.create_string_buffer(64)
vector = struct.pack("QQ", ctypes.addressof(buffer), 64)
def attach(pid): return syscall(101, 117, 16, pid, 0, 0)
def peek(pid): return syscall(310, 270, pid, vector, 1, vector, 1, 0)
def steal(pid):
    handle = os.pidfd_open(pid)
    return syscall(438, 438, handle, 0, 0)
def memory(pid): return os.open(f"/proc/{pid}/mem", os.O_RDWR)
attempt(*(lambda way=way, pid=pid: way(pid) for way in (attach, peek, steal, memory)
          for pid in (scene["pid"], scene["victim"])),
        lambda: attach(os.getppid()), lambda: peek(os.getppid()), lambda: steal(os.getppid()))
""",
        allowed="read('/proc/self/maps')",
    ),
    Probe(
        name="read the environment of others",
        numbers=(25, 61),
        claim="other processes",
        script="""
found = []
marker = "".join(scene["marker"])
try:
    names = os.listdir("/proc")
except OSError:
    names = [str(scene["pid"]), str(scene["victim"])]
for name in names:
    if name.isdigit() and int(name) != os.getpid():
        for file in ("environ", "cmdline"):
            try:
                text = read(f"/proc/{name}/{file}") + open(f"/proc/{name}/{file}", "rb").read()
            except OSError:
                continue
            if marker.encode() in text:
                found.append(name)
if marker in str(dict(os.environ)):
    found.append("its own environment")
broke(found) if found else held()
""",
        allowed="assert os.environ['PATH']",
    ),
    Probe(
        name="fork bomb",
        numbers=(26,),
        claim="process count",
        script="""
made = 0
try:
    while made < 2000:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except OSError as error:
    held(f"{made} processes")
broke(f"{made} processes")
""",
        allowed="import subprocess; assert subprocess.call(['true']) == 0",
    ),
    Probe(
        name="thread bomb",
        numbers=(29,),
        claim="process count",
        script="""
import threading
made = 0
try:
    while made < 2000:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        made += 1
except RuntimeError:
    held(f"{made} threads")
broke(f"{made} threads")
""",
        allowed="import threading; t = threading.Thread(target=print); t.start(); t.join()",
    ),
    Probe(
        "leave children unwaited",
        (32,),
        "process count",
        """
for n in range(500):
    if os.fork() == 0:
        os._exit(0 if os.fork() else 0)
    os.wait()
held("all were taken")
""",
    ),
    Probe(
        name="gain rights by a set-id program",
        numbers=(33,),
        claim="user",
        script="""
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
rights = [int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb")]
if status["NoNewPrivs"].strip() != "1" or 0 in os.getresuid() or 0 in os.getresgid():
    broke("may gain rights, or is root")
if any(rights[:2]):
    broke(f"capabilities {rights}")
held("no new rights")
""",
        allowed="os.getuid()",
    ),
    Probe(
        name="become another user",
        numbers=(33,),
        claim="user",
        script="""
attempt(lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]),
        lambda: os.setresuid(0, 0, 0), lambda: os.chroot("."))
""",
        allowed="os.setuid(os.getuid())",
    ),
    Probe(
        name="be more important",
        numbers=(34,),
        claim="user",
        script="""
attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
        lambda: os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(50)),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))
""",
        allowed="os.nice(1)",
    ),
    Probe(
        name="start a process without the right to",
        numbers=(26,),
        claim="child processes",
        script="""
import subprocess
def clone(): return syscall(56, 220, 17, 0, 0, 0, 0)
attempt(os.fork, lambda: subprocess.call(["true"]), clone, lambda: syscall(435, 435, bytes(88), 88))
""",
        allowed="import threading; t = threading.Thread(target=print); t.start(); t.join()",
        processes=False,
    ),
    Probe(
        name="become another program without the right to",
        numbers=(26,),
        claim="other programs",
        script="""
words = ["echo", "broke another program"]
def by_number():
    if sys.platform == "wasi":
        return os.execv("/bin/echo", words)
    given = (ctypes.c_char_p * 3)(*(word.encode() for word in words), None)
    return syscall(59, 221, b"/bin/echo", given, None, -1)
attempt(lambda: os.execv("/bin/echo", words), by_number,
        lambda: os.execve(os.open("/bin/echo", os.O_RDONLY), words, {}),
        lambda: os.execv("/lib64/ld-linux-x86-64.so.2", ["ld", "/bin/echo", words[1]]))
""",
        allowed="exec(compile('os.listdir()', 'x', 'exec'))",
        processes=False,
    ),
    Probe(
        "ignore all signals and stop",
        (28,),
        "time",
        """
import signal
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
os.kill(os.getpid(), signal.SIGSTOP)
time.sleep(60)
""",
        ends=("run_timeout_seconds",),
        timeout_seconds=1.0,
    ),
)

KERNEL = (
    Probe(
        name="new namespaces",
        numbers=(35,),
        claim="system calls",
        script="""
flags = (0x10000000, 0x20000, 0x40000000, 0x20000000, 0x8000000, 0x4000000, 0x2000000, 0x80)
def clone(flag): return syscall(56, 220, flag | 17, 0, 0, 0, 0)
attempt(*(lambda flag=flag: syscall(272, 97, flag) for flag in flags),
        *(lambda flag=flag: clone(flag) for flag in flags[:-1]),
        lambda: syscall(435, 435, struct.pack("Q", 0x10000000) + bytes(80), 88),
        lambda: syscall(308, 268, os.open("/proc/self/ns/user", os.O_RDONLY), 0))
""",
        allowed="os.listdir('/proc/self/ns')",
    ),
    Probe(
        name="mount",
        numbers=(36,),
        claim="system calls",
        script="""
here = os.getcwd().encode()
attempt(lambda: syscall(165, 40, b"tmpfs", here, b"tmpfs", 0, 0),
        lambda: syscall(165, 40, b"none", b"/usr", 0, 32 | 4096, 0),
        lambda: syscall(165, 40, b"none", b"/", 0, 32, 0),
        lambda: syscall(166, 39, b"/proc", 2), lambda: syscall(155, 41, b".", b"."),
        lambda: syscall(161, 51, here), lambda: syscall(430, 430, b"tmpfs", 0),
        lambda: syscall(428, 428, -100, b"/", 1), lambda: syscall(442, 442, -100, b"/usr", 0, 0, 0))
""",
        allowed="os.statvfs('/')",
    ),
    Probe(
        name="settings of the kernel",
        numbers=(37,),
        claim="files",
        script="""
paths = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger",
         "/proc/sys/vm/drop_caches", "/proc/sys/kernel/modprobe", "/proc/sys/fs/file-max",
         "/sys/kernel/mm/ksm/run", "/sys/fs/cgroup/cgroup.procs",
         "/sys/fs/cgroup/memory/cgroup.procs"]
attempt(*(lambda path=path: os.open(path, os.O_WRONLY) for path in paths),
        lambda: write("/proc/self/oom_score_adj", "-1000"))
""",
        allowed="read('/proc/sys/kernel/ostype')",
    ),
    Probe(
        name="io_uring",
        numbers=(38,),
        claim="system calls",
        script="""
attempt(lambda: syscall(425, 425, 8, ctypes.create_string_buffer(120)),
        lambda: syscall(426, 426, 0, 1, 0, 0, 0, 0), lambda: syscall(427, 427, -1, 0, 0, 0))
""",
        allowed="import select; select.epoll().close()",
    ),
    Probe(
        name="doors into the kernel",
        numbers=(39,),
        claim="system calls",
        script="""
room = ctypes.create_string_buffer(256)
attempt(tried("bpf", 321, 280, 0, room, 120), tried("perf", 298, 241, room, 0, -1, -1, 0),
        tried("userfaultfd", 323, 282, 1), tried("keyctl", 250, 219, 0, -3, 0),
        tried("add_key", 248, 217, b"user", b"a", b"b", 1, -3),
        tried("request_key", 249, 218, b"user", b"a", 0, -3),
        tried("kexec", 246, 104, 0, 0, 0, 0), tried("kexec_file", 320, 294, 0, 0, 0, 0, 0),
        tried("module", 175, 105, room, 1, b""), tried("module file", 313, 273, 0, b"", 0),
        tried("delete module", 176, 106, b"none", 0), tried("reboot", 169, 142, 0, 0, 0, 0),
        tried("swap", 167, 224, b"none", 0), tried("clock", 227, 112, 0, room),
        tried("acct", 163, 89, b"none"), tried("quota", 179, 60, 0, 0, 0, 0),
        tried("hostname", 170, 161, b"x", 1), tried("kcmp", 312, 272, 1, 1, 0, 0, 0),
        tried("fanotify", 300, 262, 0, 0), tried("move_pages", 279, 239, 0, 0, 0, 0, 0, 0))
""",
        allowed="time.time()",
    ),
    Probe(
        name="type into the terminal",
        numbers=(40,),
        claim="system calls",
        script="""
import fcntl, termios
attempt(lambda: fcntl.ioctl(0, 0x5412, b"x"), lambda: fcntl.ioctl(0, 0x541c, b"\\3"),
        lambda: libc.ioctl(0, ctypes.c_ulong(0x100005412), b"x") and syscall(-1, -1))
""",
        allowed="import termios; termios.tcgetattr(0)",
        terminal=True,
    ),
    Probe(
        name="other tables of system calls",
        numbers=(41,),
        claim="system calls",
        script="""
if not x86:
    held("one table only")
try:
    syscall(0x40000000 | 39, 0)
except OSError as error:
    pass
else:
    broke("x32")
import mmap, signal
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("b814000000cd80c3"))  # getpid by the 32-bit gate
child = os.fork()
if child == 0:
    place = ctypes.addressof(ctypes.c_char.from_buffer(code))
    os._exit(77 if ctypes.CFUNCTYPE(ctypes.c_int)(place)() > 0 else 0)
status = os.waitpid(child, 0)[1]
broke("32-bit calls") if os.waitstatus_to_exitcode(status) == 77 else held(f"status {status}")
""",
        allowed="os.getpid()",
    ),
    Probe(
        name="run a program from memory",
        numbers=(42,),
        claim="system calls",
        script="""
attempt(lambda: os.memfd_create("x"), lambda: syscall(447, 447, 0))
""",
        allowed="import subprocess; assert subprocess.call(['true']) == 0",
    ),
    Probe(
        name="look into the kernel",
        numbers=(43,),
        claim="system calls",
        script="""
import resource
if resource.getrlimit(resource.RLIMIT_CORE)[1] != 0:
    broke("dumps core")
try:
    with open("/proc/kallsyms") as file:
        if any(int(line.split()[0], 16) for line in file):
            broke("kernel addresses")
except OSError:
    pass
room = ctypes.create_string_buffer(64)
attempt(lambda: syscall(103, 116, 3, room, 64), lambda: syscall(103, 116, 10, 0, 0),
        lambda: read("/proc/kcore"), lambda: os.open("/dev/kmsg", os.O_RDONLY))
""",
        allowed="read('/proc/version')",
    ),
)

NETWORK = (
    Probe(
        name="tcp",
        numbers=(44, 50),
        claim="network",
        script="""
def reach(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as end:
        end.settimeout(2)
        end.connect(address)
        end.sendall(b"x")
    return address
attempt(lambda: reach(socket.AF_INET, ("127.0.0.1", scene["tcp"])),
        lambda: reach(socket.AF_INET, ("1.1.1.1", 443)),
        lambda: reach(socket.AF_INET, ("169.254.169.254", 80)),
        lambda: reach(socket.AF_INET, ("10.0.0.1", 22)),
        lambda: reach(socket.AF_INET6, ("::1", scene["tcp"])))
""",
        allowed="a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
    ),
    Probe(
        "udp and names",
        (45,),
        "network",
        """
def send(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.sendto(b"x", address)
    return address
attempt(lambda: send(("127.0.0.1", scene["udp"])), lambda: send(("8.8.8.8", 53)),
        lambda: send(("255.255.255.255", 9)),
        lambda: socket.getaddrinfo("example.com", 80))
""",
    ),
    Probe(
        name="named unix sockets",
        numbers=(47,),
        claim="network",
        script="""
def reach(kind, address):
    with socket.socket(socket.AF_UNIX, kind) as end:
        end.connect(address)
        end.send(b"x")
    return address
def by_pair(address):
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", address)
    return address
attempt(*(lambda way=way, kind=kind: reach(kind, way) for way in (
    scene["abstract"], scene["socket"], scene["own_socket"], "/run/docker.sock",
    "/var/run/dbus/system_bus_socket") for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)),
    *(lambda way=way: by_pair(way) for way in (
    scene["datagrams"], scene["own_datagrams"], scene["abstract_datagrams"])))
""",
        allowed="a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'",
    ),
    Probe(
        "odd kinds of sockets",
        (48,),
        "system calls",
        """
kinds = [(17, 3), (16, 3), (40, 1), (38, 5), (31, 3), (2, 3), (10, 3), (29, 3), (15, 3), (44, 3),
         (9, 1), (4, 2), (5, 2), (21, 5), (30, 5), (33, 5), (37, 5), (39, 1), (41, 2), (42, 2)]
attempt(*(lambda kind=kind: socket.socket(*kind) for kind in kinds))
""",
    ),
    Probe(
        "listen for others",
        (51,),
        "network",
        """
def serve(address):
    end = socket.socket()
    end.bind((address, 0))
    end.listen()
    return end.getsockname()
attempt(lambda: serve("0.0.0.0"), lambda: serve("127.0.0.1"))
""",
    ),
)

_MEMORY = (("max_memory_bytes", 128 * 2**20),)
_DISK = (("max_workspace_bytes", 32 * 2**20), ("max_workspace_files", 2000),
         ("max_temporary_bytes", 8 * 2**20), ("max_written_file_bytes", 8 * 2**20))  # fmt: skip

RESOURCES = (
    Probe(
        name="memory bomb",
        numbers=(53,),
        claim="memory",
        script="""
held_back = []
for _ in range(300):
    held_back.append(bytearray(b"x") * 2**20 * 4)
broke(f"{len(held_back) * 4} MiB")
""",
        allowed="len(bytearray(2**20) * 8)",
        ends=("max_memory_bytes",),
        limits=_MEMORY,
    ),
    Probe(
        "memory bomb of many processes",
        (53,),
        "memory",
        """
for _ in range(12):
    if os.fork() == 0:
        mine = [bytearray(b"x") * 2**20 for _ in range(60)]
        time.sleep(20)
        os._exit(0)
time.sleep(20)
broke("12 times 60 MiB")
""",
        ends=("max_memory_bytes",),
        limits=_MEMORY,
    ),
    Probe(
        name="memory that belongs to no process",
        numbers=(53, 58),
        claim="memory",
        script="""
def segment(): return syscall(29, 194, 0, 2**28, 0o1600)
attempt(segment, lambda: os.memfd_create("x"), lambda: syscall(68, 186, 0, 0o1600),
        lambda: syscall(64, 190, 0, 100, 0o1600))
""",
        allowed="import mmap; mmap.mmap(-1, 4096)",
    ),
    Probe(
        name="fill what is in memory",
        numbers=(53, 54),
        claim="temporary files",
        script="""
wrote = {}
for folder in ("/tmp", "/dev/shm", "/dev", "/", "/etc", "/run"):
    size = 0
    try:
        with open(folder + "/fill", "wb", 0) as file:
            while size < 300 * 2**20:
                size += file.write(bytes(2**20))
                if size % 2**22 == 0:
                    file.close()
                    file = open(f"{folder}/fill{size}", "wb", 0)
    except OSError as error:
        wrote[folder] = size
    else:
        broke(f"{folder}: {size}")
held(wrote)
""",
        allowed="write('/tmp/x'); write('/dev/shm/x')",
        limits=_DISK,
    ),
    Probe(
        name="one huge file",
        numbers=(54,),
        claim="file size",
        script="""
try:
    with open("huge", "wb", 0) as file:
        size = 0
        while size < 64 * 2**20:
            size += file.write(bytes(2**20))
except OSError as error:
    held(error.strerror)
broke()
""",
        allowed="open('small', 'wb').write(bytes(2**20))",
        limits=_DISK,
    ),
    Probe(
        name="a sparse file",
        numbers=(54,),
        claim="file size",
        script="""
attempt(lambda: os.truncate(os.open("sparse", os.O_CREAT | os.O_WRONLY), 2**40),
        lambda: os.pwrite(os.open("sparse", os.O_CREAT | os.O_WRONLY), b"x", 2**40))
""",
        allowed="os.truncate(os.open('s', os.O_CREAT | os.O_WRONLY), 2**20)",
        limits=_DISK,
    ),
    Probe(
        "fill the disk by many files",
        (54,),
        "disk",
        _FILL_DISK,
        ends=("max_workspace_bytes",),
        limits=_DISK,
    ),
    Probe(
        "fill the disk in a hidden folder",
        (54,),
        "disk",
        """
os.mkdir("closed")
os.chdir("closed")
os.chmod(".", 0o300)
"""
        + _FILL_DISK,
        ends=("max_workspace_bytes",),
        limits=_DISK,
    ),
    Probe(
        "use up the inodes",
        (54,),
        "disk",
        """
for n in range(200000):
    os.close(os.open(f"file{n}", os.O_CREAT | os.O_WRONLY))
    if n % 100 == 0:
        time.sleep(0.005)
broke("200000 files")
""",
        ends=("max_workspace_files",),
        limits=_DISK,
    ),
    Probe(
        "spin",
        (56,),
        "cpu",
        """
while True:
    pass
""",
        ends=("max_cpu_seconds",),
        limits=(("max_cpu_seconds", 1),),
    ),
    Probe(
        "spin in turns",
        (56,),
        "cpu",
        """
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
        os._exit(0)
    os.wait()
""",
        ends=("max_cpu_seconds",),
        limits=(("max_cpu_seconds", 1),),
    ),
    Probe(
        name="use up the file handles",
        numbers=(58,),
        claim="open files",
        script="""
kept = []
write("one")
try:
    while len(kept) < 10000:
        kept.append(os.open("one", os.O_RDONLY))
except OSError as error:
    time.sleep(0.6)
    held(len(kept))
broke(len(kept))
""",
        allowed="os.open('/dev/null', os.O_RDONLY)",
    ),
    Probe(
        name="leave a queue of messages behind",
        numbers=(58,),
        claim="system calls",
        script="""
name = scene["planted"].encode()
try:
    held(syscall(240, 180, name, os.O_CREAT | os.O_RDWR, 0o600, 0) + ", which is the run's own")
except OSError as error:
    held(error)
""",
        allowed="import queue; queue.Queue().put(1)",
    ),
    Probe(
        name="use up watches and signals",
        numbers=(58,),
        claim="open files",
        script="""
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
counts = []
def watch(): return libc.inotify_init1(0)
def queue(): return libc.sigqueue(os.getpid(), signal.SIGRTMIN, ctypes.c_void_p(0))
def clock(): return libc.timer_create(0, None, ctypes.byref(ctypes.c_void_p()))
for way in (watch, queue, clock):
    made = 0
    while made < 2**20 and way() >= 0:
        made += 1
    counts.append(made)
broke(counts) if max(counts) >= 2**20 else held(counts)
""",
        allowed="os.close(libc.inotify_init1(0)); os.kill(os.getpid(), 0)",
    ),
    Probe(
        "talk without end",
        (55,),
        "time",
        """
os.write(1, b"held it is only talk\\n")
piece = b"x" * 65536
while True:
    os.write(1, piece)
""",
        ends=("run_timeout_seconds",),
        timeout_seconds=1.0,
    ),
)

RESULTS = (
    Probe("find an open handle", (62,), "files", """
found = []
for name in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink("/proc/self/fd/" + name)
    except OSError:
        continue
    if int(name) > 2 and not target.startswith("/proc"):
        found.append(target)
broke(found) if found else held()
"""),
)  # fmt: skip

# One filter that changes nothing: many of them could stop the machine under test.
_LOAD_FILTER = """
step = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0x7fff0000), 8)
words = struct.pack("HxxxxxxQ", 1, ctypes.addressof(step))
attempt(lambda: syscall(317, 277, 1, 0, words), lambda: syscall(157, 167, 22, 2, words, 0, 0),
        lambda: syscall(444, 444, None, 0, 1))
"""
_NAME_ITSELF = "syscall(157, 167, 15, b'named', 0, 0, 0)"

SIGHTS = (
    Probe(
        name="open the terminals of the user",
        numbers=(77,),
        claim="files",
        script="""
def typed(path):
    handle = os.open(path, os.O_RDWR | 0o4400)  # neither waits nor takes it for its own
    os.write(handle, b"password: ")
    return os.read(handle, 80)
found = scene["terminal"]
attempt(*(lambda path=path: typed(path) for path in (
    found, "/proc/self/root" + found, f"/proc/{scene['pid']}/fd/{scene['terminal_handle']}",
    "/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/ttyS0")))
""",
        allowed="read('/dev/urandom'); write('/dev/null')",
    ),
    Probe(
        name="messages by other kinds of sockets",
        numbers=(78,),
        claim="network",
        script="""
def by_pair(kind, address):
    one, other = socket.socketpair(socket.AF_UNIX, kind)
    write("given")
    handle = struct.pack("i", os.open("given", os.O_RDONLY))
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, handle)], 0, address)
    return f"kind {kind} reached {address}"
attempt(*(lambda kind=kind, way=way: by_pair(kind, way) for kind in (*range(5), *range(6, 16))
          for way in (scene["datagrams"], scene["own_datagrams"], scene["abstract_datagrams"])))
""",
        allowed="""
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
    a, b = socket.socketpair(socket.AF_UNIX, kind)
    a.send(b'x')
    assert b.recv(1) == b'x'
""",
    ),
    Probe(
        name="unknown system calls",
        numbers=(79,),
        claim="system calls",
        script="""
room = ctypes.create_string_buffer(256)
attempt(tried("io_setup", 206, 0, -1, room), *(
    tried(number, number, number, -1, room, room, -1, -1, -1) for number in (
    451, 454, 455, 456, 457, 458, 459, 461, 462, 463, 464, 465, 466, 467, 468, 469, 470,
    511, 600, 4095, 2**30 - 1)))
""",
        allowed="os.getpid(); time.sleep(0); os.urandom(1)",
    ),
    Probe(
        name="load a filter",
        numbers=(80,),
        claim="system calls",
        script=_LOAD_FILTER,
        allowed=_NAME_ITSELF,
    ),
    Probe(
        name="load a filter behind the last one",
        numbers=(80,),
        claim="system calls",
        script=_LOAD_FILTER,
        allowed=_NAME_ITSELF,
        processes=False,
    ),
    Probe(
        name="look at other processes",
        numbers=(81,),
        claim="other processes",
        script="""
def seen(path):
    if b"cat" not in read(path):
        raise OSError
    return path
def link(path):
    if "cat" not in os.readlink(path):
        raise OSError
    return path
def named(path):
    with open(path) as file:
        if scene["socket"] not in file.read():
            raise OSError
    return path
own = f"/proc/{scene['victim']}/"
attempt(*(lambda name=name: seen(own + name) for name in ("cmdline", "comm", "status", "stat")),
        lambda: link(own + "exe"), lambda: named("/proc/net/unix"))
""",
        allowed="assert b'python' in read('/proc/self/cmdline'); read('/proc/self/status')",
    ),
    Probe(
        name="watch the files of the user",
        numbers=(81,),
        claim="files",
        script="""
def watch(path):
    handle = libc.inotify_init1(0)
    if libc.inotify_add_watch(handle, path.encode(), 0xfff) < 0:
        raise OSError
    return path
attempt(lambda: watch(scene["home"]), lambda: watch(scene["secret"]), lambda: watch(scene["other"]),
        lambda: os.listxattr(scene["secret"]), lambda: os.listxattr(scene["home"]))
""",
        allowed="import shutil; write('one'); shutil.copy2('one', 'two')",
    ),
)

PROBES = FILES + PROCESSES + KERNEL + NETWORK + RESOURCES + HOARDS + SIGHTS + TAKEOVER + RESULTS
