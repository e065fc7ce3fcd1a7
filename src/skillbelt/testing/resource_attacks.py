"""Attacks on limits, by holding resources that no folder and no process shows.

Each takes 700 MiB at most.
"""

from skillbelt.testing.probe import Probe

_MEMORY = (("max_memory_bytes", 128 * 2**20),)
_LITTLE_MEMORY = (("max_memory_bytes", 48 * 2**20),)
_DISK = (("max_workspace_bytes", 32 * 2**20), ("max_written_file_bytes", 8 * 2**20))
# A file of 4 MiB without a name: unlinked, or never linked.
_NAMELESS = """
def nameless(number):
    if number % 2 and sys.platform != "wasi":
        handle = os.open(".", os.O_TMPFILE | os.O_RDWR)
    else:
        handle = os.open("part", os.O_CREAT | os.O_EXCL | os.O_RDWR)
        os.unlink("part")
    for _ in range(4):
        os.write(handle, os.urandom(2**20))
    return handle
"""

HOARDS = (
    Probe(
        name="hold files without a name",
        numbers=(82,),
        claim="files without a name",
        script=_NAMELESS
        + """
kept = [nameless(number) for number in range(150)]
time.sleep(5)
broke("600 MiB")
""",
        allowed="import tempfile; f = tempfile.TemporaryFile(dir='.'); f.write(bytes(2**22)); "
        "f.flush()",
        ends=("max_workspace_bytes",),
        limits=_DISK,
    ),
    Probe(
        "hold files that are only mapped",
        (82,),
        "files without a name",
        """
import mmap
"""
        + _NAMELESS
        + """
kept = []
for number in range(150):
    handle = nameless(number)
    kept.append(mmap.mmap(handle, 4096, prot=mmap.PROT_READ))
    os.close(handle)
time.sleep(5)
broke("600 MiB")
""",
        ends=("max_workspace_bytes",),
        limits=_DISK,
    ),
    Probe(
        name="shared memory of a child that ended",
        numbers=(83,),
        claim="memory beside processes",
        script="""
import mmap
kept = []
for number in range(20):
    room = mmap.mmap(-1, 2**25)
    if os.fork() == 0:
        for at in range(0, len(room), 4096):
            room[at] = 1
        os._exit(0)
    os.wait()
    if number % 2:
        room.resize(4096)  # what lies behind is not given back
    kept.append(room)
time.sleep(5)
broke("640 MiB")
""",
        allowed="""
import mmap
rooms = [mmap.mmap(-1, 2**20) for _ in range(8)]
assert os.fork() or os._exit(rooms[0].write(b"x") and 0) or True
os.wait()
assert rooms[0][0] == 120
""",
        ends=("max_memory_bytes",),
        limits=_MEMORY,
    ),
    Probe(
        name="fill socket buffers",
        numbers=(84,),
        claim="memory beside processes",
        script="""
kept, size, piece = [], 0, bytes(2**14)
for number in range(4):
    if number < 3 and os.fork():
        continue
    for pair in range(200):
        if size > 150 * 2**20:
            break
        one, other = socket.socketpair()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**23)
        one.setblocking(False)
        try:
            while size <= 150 * 2**20:
                size += one.send(piece)
        except BlockingIOError:
            pass
        # What it has sent is still there, but not charged to any socket that is.
        kept += [other] if pair % 2 else [one, other]
        one = None
    time.sleep(8)
    break
broke(f"4 times {size >> 20} MiB")
""",
        allowed="pairs = [socket.socketpair() for _ in range(40)]; [a.send(bytes(2**12)) for a, b "
        "in pairs]",
        ends=("max_memory_bytes",),
        limits=_MEMORY,
    ),
    Probe(
        name="fill pipes",
        numbers=(85,),
        claim="memory beside processes",
        script="""
import fcntl
kept, size = [], 0
try:
    while size < 120 * 2**20 and len(kept) < 900:
        kept += os.pipe()
        try:
            fcntl.fcntl(kept[-1], 1031, 2**20)
        except OSError:
            pass
        os.set_blocking(kept[-1], False)
        try:
            while True:
                size += os.write(kept[-1], bytes(2**16))
        except BlockingIOError:
            pass
except OSError:
    pass
if size < 2**25:
    held(f"there are no more: {size >> 20} MiB")
time.sleep(5)
broke(f"{size >> 20} MiB")
""",
        allowed="pipes = [os.pipe() for _ in range(40)]; [os.write(b, bytes(2**12)) for a, b in "
        "pipes]",
        limits=_LITTLE_MEMORY,
    ),
    Probe(
        name="handles in flight",
        numbers=(86,),
        claim="files without a name",
        script=_NAMELESS
        + """
kept = []
for number in range(150):
    one, other = socket.socketpair()
    handle = nameless(number)
    socket.send_fds(one, [b"x"], [handle])
    os.close(handle)
    one.close()
    kept.append(other)
time.sleep(5)
broke("600 MiB")
""",
        allowed="""
one, other = socket.socketpair()
socket.send_fds(one, [b"x"], [os.open("own", os.O_CREAT | os.O_RDWR)])
os.write(socket.recv_fds(other, 9, 9)[1][0], b"x")
""",
        ends=("max_workspace_bytes",),
        limits=_DISK,
    ),
)
