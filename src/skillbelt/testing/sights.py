"""Attacks on what a command may see and ask for: terminals, names, calls, filters, processes."""

from skillbelt.testing.probe import Probe

# One filter that changes nothing: many of them could stop the machine that is being tried out.
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
def tried(on_x86, on_arm, *arguments):
    def call():
        try:
            return syscall(on_x86, on_arm, *arguments)
        except OSError as error:
            # Any other answer means that the kernel looked at the arguments.
            if error.errno in (errno.EPERM, errno.ENOSYS):
                raise
            return f"call {on_x86 if x86 else on_arm}: {error}"
    return call
room = ctypes.create_string_buffer(256)
attempt(tried(206, 0, -1, room), *(tried(number, number, -1, room, room, -1, -1, -1) for number in (
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
