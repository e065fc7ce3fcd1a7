"""The system calls that a command may make: one table for all filters.

Each call has its number on x86-64 and on arm64, -1 where it does not exist. A call in no table
fails with ENOSYS, as in an older kernel, so that a new kernel allows nothing new.
"""

from collections.abc import Iterable
from errno import ENOSYS, EOPNOTSUPP, EPERM
from typing import NamedTuple

Numbers = tuple[int, int]

NAMESPACES = 0x7E020000  # every CLONE_NEW* that clone knows
THREAD = 0x00010000
SET_ID_BITS = 0o6000
_DEVICE = 0o20000  # set in the mode of both kinds of devices, not of pipes and sockets
MAKES_FILE = 0o20000000 | 0o100  # O_TMPFILE and O_CREAT
TERMINAL_INPUT, TERMINAL_LINUX = 0x5412, 0x541C  # TIOCSTI and TIOCLINUX type into a terminal
UNIX, INET, INET6 = 1, 2, 10
STREAM, DATAGRAM, SEQUENCED = 1, 2, 5
# Flags that may be combined with the type of a socket: SOCK_CLOEXEC and SOCK_NONBLOCK.
SOCKET_FLAGS = 0o2004000
# Unix sockets have only these two types: the kernel makes a datagram socket of a raw one, which
# sends to any name.
UNIX_KINDS, INET_KINDS = (STREAM, SEQUENCED), (STREAM, DATAGRAM)
PROTOCOLS = (0, 6, 17)  # the default, TCP, UDP; others use rarely tested kernel code
SOCKET_LEVEL = 1
SOCKET_FILTERS = (26, 50, 51, 52)  # SO_ATTACH_FILTER and its relatives
SAME_PERSONALITY = (0, 0xFFFFFFFF)
SET_SECCOMP = 22
# The allowed modes of fallocate: allocate, punch a hole, collapse a range, zero it. All others make
# a file take more space than its size, or grow beyond the limit on its size.
ALLOCATIONS = (0, 3, 8, 16)
RESERVES = (0x40305828, 0x4030582A, 0x40305839)  # FS_IOC_RESVSP and its relatives do so too
# The options of prctl by which a process may change itself: names, signals, timers, whether it can
# be traced or gain rights.
PRCTL = (1, 2, 3, 4, 7, 8, 13, 14, 15, 16, 21, 23, 24, 25, 27, 29, 30, 36, 37, 38, 39, 40, 41, 42,
         50, 51, 52, 53, 54, 55, 56)  # fmt: skip

ALLOWED: dict[str, Numbers] = {
    # streams and handles
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "preadv2": (327, 286),
    "pwritev2": (328, 287), "lseek": (8, 62), "close": (3, 57), "close_range": (436, 436),
    "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24), "fcntl": (72, 25), "flock": (73, 32),
    "pipe": (22, -1), "pipe2": (293, 59), "poll": (7, -1), "ppoll": (271, 73), "select": (23, -1),
    "pselect6": (270, 72), "epoll_create": (213, -1), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, -1), "epoll_pwait": (281, 22),
    "epoll_pwait2": (441, 441), "eventfd": (284, -1), "eventfd2": (290, 19), "signalfd": (282, -1),
    "signalfd4": (289, 74), "timerfd_create": (283, 85), "timerfd_settime": (286, 86),
    "timerfd_gettime": (287, 87), "sendfile": (40, 71), "splice": (275, 76), "tee": (276, 77),
    "copy_file_range": (326, 285),
    # files
    "open": (2, -1), "openat": (257, 56), "creat": (85, -1), "access": (21, -1),
    "faccessat": (269, 48), "faccessat2": (439, 439), "stat": (4, -1), "lstat": (6, -1),
    "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291), "statfs": (137, 43),
    "fstatfs": (138, 44), "readlink": (89, -1), "readlinkat": (267, 78), "getdents": (78, -1),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "mkdir": (83, -1), "mkdirat": (258, 34), "rmdir": (84, -1), "unlink": (87, -1),
    "unlinkat": (263, 35), "rename": (82, -1), "renameat": (264, 38), "renameat2": (316, 276),
    "link": (86, -1), "linkat": (265, 37), "symlink": (88, -1), "symlinkat": (266, 36),
    "mknod": (133, -1), "mknodat": (259, 33), "chmod": (90, -1), "fchmod": (91, 52),
    "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, -1), "fchown": (93, 55),
    "lchown": (94, -1), "fchownat": (260, 54), "umask": (95, 166), "truncate": (76, 45),
    "ftruncate": (77, 46), "fallocate": (285, 47), "utime": (132, -1), "utimes": (235, -1),
    "utimensat": (280, 88), "futimesat": (261, -1), "fsync": (74, 82), "fdatasync": (75, 83),
    "sync": (162, 81), "syncfs": (306, 267), "sync_file_range": (277, 84), "fadvise64": (221, 223),
    "readahead": (187, 213), "getxattr": (191, 8), "lgetxattr": (192, 9), "fgetxattr": (193, 10),
    "listxattr": (194, 11), "llistxattr": (195, 12), "flistxattr": (196, 13), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "inotify_init": (253, -1),
    "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "inotify_rm_watch": (255, 28),
    "ioctl": (16, 29),
    # memory
    "brk": (12, 214), "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226),
    "mremap": (25, 216), "madvise": (28, 233), "msync": (26, 227), "mincore": (27, 232),
    "mlock": (149, 228), "mlock2": (325, 284), "munlock": (150, 229), "mlockall": (151, 230),
    "munlockall": (152, 231), "pkey_alloc": (330, 289), "pkey_free": (331, 290),
    "pkey_mprotect": (329, 288), "map_shadow_stack": (453, 453), "membarrier": (324, 283),
    # processes and threads
    "clone": (56, 220), "fork": (57, -1), "vfork": (58, -1), "execve": (59, 221),
    "execveat": (322, 281), "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260),
    "waitid": (247, 95), "set_tid_address": (218, 96), "set_robust_list": (273, 99),
    "get_robust_list": (274, 100), "rseq": (334, 293), "futex": (202, 98),
    "futex_waitv": (449, 449), "arch_prctl": (158, -1), "prctl": (157, 167),
    "personality": (135, 92), "pidfd_open": (434, 434), "pidfd_send_signal": (424, 424),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getpgid": (121, 155),
    "setpgid": (109, 154), "getpgrp": (111, -1), "getsid": (124, 156), "setsid": (112, 157),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "sched_setaffinity": (203, 122),
    "sched_getparam": (143, 121), "sched_setparam": (142, 118), "sched_getscheduler": (145, 120),
    "sched_setscheduler": (144, 119), "sched_getattr": (315, 275), "sched_setattr": (314, 274),
    "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "sched_rr_get_interval": (148, 127), "getpriority": (140, 141), "setpriority": (141, 140),
    "ioprio_get": (252, 31), "ioprio_set": (251, 30), "getcpu": (309, 168), "getrlimit": (97, 163),
    "setrlimit": (160, 164), "prlimit64": (302, 261), "getrusage": (98, 165), "times": (100, 153),
    # users
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "setuid": (105, 146),
    "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147),
    "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151),
    "setfsgid": (123, 152), "capget": (125, 90), "capset": (126, 91),
    # signals
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigtimedwait": (128, 137), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "rt_sigsuspend": (130, 133), "sigaltstack": (131, 132), "restart_syscall": (219, 128),
    "pause": (34, -1), "alarm": (37, -1),
    # time
    "time": (201, -1), "gettimeofday": (96, 169), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "clock_nanosleep": (230, 115), "nanosleep": (35, 101),
    "getitimer": (36, 102), "setitimer": (38, 103), "timer_create": (222, 107),
    "timer_settime": (223, 110), "timer_gettime": (224, 108), "timer_getoverrun": (225, 109),
    "timer_delete": (226, 111),
    # the machine
    "uname": (63, 160), "sysinfo": (99, 179), "getrandom": (318, 278),
    # sockets
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "listen": (50, 201), "accept": (43, 202), "accept4": (288, 242), "getsockname": (51, 204),
    "getpeername": (52, 205), "getsockopt": (55, 209), "setsockopt": (54, 208),
    "shutdown": (48, 210), "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211),
    "recvmsg": (47, 212), "sendmmsg": (307, 269), "recvmmsg": (299, 243),
    # queues of messages
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183), "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
}  # fmt: skip
# Calls that only some runs may make.
CONNECTS, LISTENS = ("connect",), ("bind", "listen", "accept", "accept4")
FORKS = ("fork", "vfork")
PROGRAMS = ("execve", "execveat")
# Without namespaces, a run must not watch or mark the user's other files, or read their queues:
# Landlock does not check these. Programs that copy files treat the error as an old disk.
_SHARED_REFUSED: dict[str, int] = {
    **dict.fromkeys(("mq_open", "mq_unlink"), EPERM),
    "inotify_add_watch": ENOSYS,
    **dict.fromkeys(
        ("getxattr", "lgetxattr", "listxattr", "llistxattr", "setxattr", "lsetxattr", "fsetxattr",
         "removexattr", "lremovexattr", "fremovexattr"), EOPNOTSUPP),
}  # fmt: skip
# A process may then set only its own priority, since the runtime may have the same user. These are
# the arguments that mean the calling process.
OWN_STANDING: dict[str, tuple[tuple[int, int], ...]] = {
    "setpriority": ((0, 0), (1, 0)),
    "ioprio_set": ((0, 1), (1, 0)),
    "sched_setparam": ((0, 0),),
    "sched_setscheduler": ((0, 0),),
    "sched_setaffinity": ((0, 0),),
    "sched_setattr": ((0, 0),),
}
# Calls that our own programs need before a command, and that the command must not make. The memory
# of filters and rules is not accounted, and thousands of them stop a kernel.
FILTERS: dict[str, Numbers] = {"seccomp": (317, 277)}
RULES: dict[str, Numbers] = {
    "landlock_create_ruleset": (444, 444), "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
}  # fmt: skip
_MORE = {**FILTERS, **RULES}

# Fail with EPERM: programs that use these have no fallback for ENOSYS.
REFUSED: dict[str, Numbers] = {
    # mounts and roots
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "statmount": (457, 457), "listmount": (458, 458),
    "open_tree_attr": (467, 467), "swapon": (167, 224), "swapoff": (168, 225),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "uselib": (134, -1),
    "ustat": (136, -1), "sysfs": (139, -1), "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    # namespaces
    "unshare": (272, 97), "setns": (308, 268),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # where memory lies
    "get_mempolicy": (239, 236), "set_mempolicy": (238, 237), "mbind": (237, 235),
    "set_mempolicy_home_node": (450, 450),
    # the kernel itself
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "create_module": (174, -1),
    "query_module": (178, -1), "get_kernel_syms": (177, -1), "reboot": (169, 142),
    "syslog": (103, 116), "_sysctl": (156, -1), "nfsservctl": (180, 42), "iopl": (172, -1),
    "ioperm": (173, -1), "modify_ldt": (154, -1), "remap_file_pages": (216, 234),
    "vmsplice": (278, 75), "vhangup": (153, 58),
    # clocks and names of the machine
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    # memory that belongs to no process, which no limit covers
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semctl": (66, 191), "semop": (65, 193), "semtimedop": (220, 192),
    "memfd_secret": (447, 447),
}  # fmt: skip
# Fail with ENOSYS, like all calls in no table. A filter cannot read the structures of openat2 and
# clone3; programs have fallbacks for them.
ABSENT: dict[str, Numbers] = {
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "memfd_create": (319, 279), "openat2": (437, 437), "clone3": (435, 435), **_MORE,
}  # fmt: skip
# The position of the mode of a new or changed file among the arguments, and the bits it must not
# have.
MODES: dict[str, tuple[int, int]] = {
    "chmod": (1, SET_ID_BITS), "fchmod": (1, SET_ID_BITS), "fchmodat": (2, SET_ID_BITS),
    "fchmodat2": (2, SET_ID_BITS), "creat": (1, SET_ID_BITS),
    "mknod": (1, SET_ID_BITS | _DEVICE), "mknodat": (2, SET_ID_BITS | _DEVICE),
}  # fmt: skip
# The same, with the position of the flags that make it count.
OPENS: dict[str, tuple[int, int]] = {"open": (1, 2), "openat": (2, 3)}


class Rights(NamedTuple):
    """The calls that a filter allows.

    `more` names calls that our own programs need before the command. Without `processes` fork
    fails, without `programs` exec. `network` allows IP sockets, `named_sockets` Unix sockets. With
    `shared` the run has no namespaces. `listens` is for a run with namespaces and without a
    network: it may listen on a Unix socket, as LibreOffice does for its second start, and connect
    to none.
    """

    processes: bool
    network: bool
    named_sockets: bool = False
    programs: bool = True
    shared: bool = False
    more: tuple[str, ...] = ()
    listens: bool = False

    def allowed(self) -> dict[str, Numbers]:
        """Return the allowed calls; the arguments of some are checked."""
        taken = set(refusals(self))
        return {
            **{name: numbers for name, numbers in ALLOWED.items() if name not in taken},
            **{name: _MORE[name] for name in self.more},
        }

    def prctl(self) -> tuple[int, ...]:
        """Return the allowed options of prctl."""
        return (*PRCTL, SET_SECCOMP) if "seccomp" in self.more else PRCTL


def refusals(rights: Rights) -> dict[str, int]:
    """Return the calls that fail with another error than ENOSYS, and the error."""
    found = dict.fromkeys(REFUSED, EPERM)
    for names, granted in (
        (CONNECTS, rights.network or rights.named_sockets),
        (LISTENS, rights.network or rights.named_sockets or rights.listens),
        (FORKS, rights.processes),
        (PROGRAMS, rights.programs),
    ):
        found.update(_list_refused(names, granted))
    return {**found, **_SHARED_REFUSED} if rights.shared else found


def _list_refused(names: Iterable[str], granted: bool) -> dict[str, int]:
    return {} if granted else dict.fromkeys(names, EPERM)


def numbers_of(name: str) -> Numbers:
    """Return the numbers of a call in one of the tables."""
    for table in (ALLOWED, REFUSED, ABSENT):
        if name in table:
            return table[name]
    raise KeyError(name)
