"""The Python code in front of each attack."""

# An interpreter in WASM lacks much of the system. Using a missing part raises an OSError; one that
# an attack does not catch counts as stopped.
_WITHOUT_SYSTEM = """
class NotThere(OSError):
    pass
def not_there(name):
    def call(*_, **__):
        raise NotThere(f"not there: {name}")
    return call
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if "." in name else importlib.machinery.ModuleSpec(name, Finder)
    @staticmethod
    def create_module(spec):
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: not_there(f"{spec.name}.{name}")
        return module
    @staticmethod
    def exec_module(module):
        pass
def uncaught(kind, error, trace):
    path = str(getattr(error, "filename", None) or "")
    if (isinstance(error, NotThere) or "new thread" in str(error)
            or "not support processes" in str(error) or "has no attribute" in str(error)
            or isinstance(error, OSError) and path.startswith(("/proc", "/dev", "/sys"))):
        held("not there: " + str(path or error).removeprefix("not there: "))
    sys.__excepthook__(kind, error, trace)
def without_modes(call):
    def made(path, *words, **named):
        done = call(path, *words, **named)
        if call is not plain_open or words[-1:] and words[-1] & 0o6000:
            raise NotThere("not there: modes; the host looks whether one was changed")
        return done
    return made
if sys.platform == "wasi":
    import importlib.machinery, socket, types
    sys.meta_path.append(Finder)
    sys.excepthook = uncaught
    plain_open = os.open
    os.open, os.chmod = without_modes(os.open), without_modes(os.chmod)
    os.__getattr__ = lambda name: not_there(f"os.{name}")
    socket.socketpair = not_there("socket.socketpair")
"""
NOT_THERE = "not there: "
PRELUDE = """
import os, sys
def held(why="stopped"):
    os.write(1, ("held " + str(why)[:300] + "\\n").encode()); os._exit(0)
""" + _WITHOUT_SYSTEM + """
import ctypes, errno, json, socket, struct, time
scene = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True) if sys.platform != "wasi" else os
x86 = sys.platform == "wasi" or os.uname().machine == "x86_64"
absent = (AttributeError,) if sys.platform == "wasi" else ()
def broke(what="worked"):
    os.write(1, ("broke " + str(what)[:300] + "\\n").encode()); os._exit(0)
def attempt(*calls):
    why = []
    for call in calls:
        try:
            got = call()
        except (OSError, ValueError, *absent) as error:
            why.append(type(error).__name__)
        else:
            if got is not None and got is not False:
                broke(repr(got))
            broke(getattr(call, "__name__", "call"))
    held(", ".join(sorted(set(why))))
def syscall(on_x86, on_arm, *arguments):
    number = on_x86 if x86 else on_arm
    done = libc.syscall(ctypes.c_long(number), *(
        ctypes.c_long(each) if isinstance(each, int) else each for each in arguments))
    if done < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return f"system call {number} gave {done}"
def tried(name, on_x86, on_arm, *arguments):
    def call():
        try:
            return syscall(on_x86, on_arm, *arguments)
        except OSError as error:
            # Any other error means that the kernel has read the arguments.
            if error.errno in (errno.EPERM, errno.ENOSYS):
                raise
            return f"call {name}: {error}"
    return call
def write(path, text="x"):
    with open(path, "w") as file:
        file.write(text)
    return "wrote " + path
def read(path):
    with open(path, "rb") as file:
        return file.read(80)
"""  # fmt: skip
