"""The program that comes before the command in a sandbox: it waits, sets the limits and goes on.

As the first process of a pid namespace it stays there, above the command: nobody inside can read
it, change it or send it a signal, it has the limits and the filter of the command, and with it
everything inside ends.

A shell takes 0.4 ms to start, for libraries it has no use for here. This one is a page of machine
code without any; processors that it is not written for have the shell.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from skillbelt.sandbox.linux import seccomp
from skillbelt.sandbox.protocol import Job

# It is named as a shell is, since it becomes one for whatever it can not start itself.
PLACE = "/.sandbox/sh"
# The same for a run that begins behind a shell: it only sees to it that no other program follows.
LAST_PLACE = "/.sandbox/last"
# What they are given before the command, for the shell.
WORDS = (PLACE, "-c", 'exec "$@"', "sandbox")
# A shell that may not become anything else can still say what is wrong.
LOCKED_WORDS = (
    PLACE,
    "-c",
    '[ -e "$1" ] && { echo "$0: $1: Permission denied" >&2; exit 126; }; '
    'echo "$0: $1: not found" >&2; exit 127',
    "sandbox",
)

_BASE = 0x400000
_HEADERS = 64 + 56
_NO_MORE = 2**64 - 1
# What comes after it: "1", the shell, how long the filter is, whether to wait and whether to stay
# above the command, the filter, the limits, the paths. The filter lets a program be started by who
# gives a number with it; the number is made here, put into the filter, and gone with this program.
_X86_64 = """
    4889e3                    mov rbx, rsp
    4c8d25cb010000            lea r12, [data]
    4d8b3424                  mov r14, [r12]          ; how long the filter is
    4d8d7c2410                lea r15, [r12+16]       ; the filter
    41807c240800              cmp byte [r12+8], 0     ; whether to wait
    4f8d24f7                  lea r12, [r15+r14*8]    ; the limits
    7439                      je limit
    b801000000                mov eax, 1              ; write(1, "1", 1)
    bf01000000                mov edi, 1
    488d359c010000            lea rsi, [said]
    ba01000000                mov edx, 1
    0f05                      syscall
    83f801                    cmp eax, 1
    0f853e010000              jne fail
    50                        push rax
    31c0                      xor eax, eax            ; read(0, ..., 3): the answer
    31ff                      xor edi, edi
    4889e6                    mov rsi, rsp
    ba03000000                mov edx, 3
    0f05                      syscall
    83f803                    cmp eax, 3
    0f8526010000              jne fail
    498b3424           limit: mov rsi, [r12]
    85f6                      test esi, esi
    781f                      js limited
    b82e010000                mov eax, 302            ; prlimit64(0, kind, limit, NULL)
    31ff                      xor edi, edi
    498d542408                lea rdx, [r12+8]
    4531d2                    xor r10d, r10d
    0f05                      syscall
    85c0                      test eax, eax
    0f8505010000              jne fail
    4983c418                  add r12, 24
    ebd9                      jmp limit
    4983c408         limited: add r12, 8
    31ed                      xor ebp, ebp
    41807ff900                cmp byte [r15-7], 0     ; whether to stay above
    7436                      je lock
    b89d000000                mov eax, 157            ; prctl(SET_DUMPABLE, 0)
    bf04000000                mov edi, 4
    31f6                      xor esi, esi
    0f05                      syscall
    85c0                      test eax, eax
    0f85dc000000              jne fail
    b838000000                mov eax, 56             ; clone(SIGCHLD, 0, 0, 0, 0)
    bf11000000                mov edi, 17
    31f6                      xor esi, esi
    31d2                      xor edx, edx
    4531d2                    xor r10d, r10d
    4531c0                    xor r8d, r8d
    0f05                      syscall
    89c5                      mov ebp, eax            ; 0 below, where the command comes
    85c0                      test eax, eax
    0f88bc000000              js fail
    4585f6              lock: test r14d, r14d
    745f                      je ready
    50                        push rax
    b83e010000                mov eax, 318            ; getrandom(..., 8, 0)
    4889e7                    mov rdi, rsp
    be08000000                mov esi, 8
    31d2                      xor edx, edx
    0f05                      syscall
    83f808                    cmp eax, 8
    0f859c000000              jne fail
    415a                      pop r10                 ; the number
    4489f1                    mov ecx, r14d
    4c89fe                    mov rsi, r15
    4a8d04f500000000          lea rax, [r14*8]
    4829c4                    sub rsp, rax
    4889e7                    mov rdi, rsp
    f348a5                    rep movsq
    448954242c                mov [rsp+44], r10d      ; into both halves of the test
    4c89d0                    mov rax, r10
    48c1e820                  shr rax, 32
    8944243c                  mov [rsp+60], eax
    4889e0                    mov rax, rsp
    50                        push rax
    4156                      push r14
    b83d010000                mov eax, 317            ; seccomp(FILTER, 0, filter)
    bf01000000                mov edi, 1
    31f6                      xor esi, esi
    4889e2                    mov rdx, rsp
    0f05                      syscall
    85c0                      test eax, eax
    7558                      jne fail
    85ed               ready: test ebp, ebp
    7560                      jne above
    488b03                    mov rax, [rbx]
    4c8d6cc310                lea r13, [rbx+rax*8+16] ; the environment
    4883c308                  add rbx, 8              ; the words
    41803c2400          path: cmp byte [r12], 0
    742d                      je shell
    b83b000000                mov eax, 59             ; execve(path, words + 4, environment, number)
    4c89e7                    mov rdi, r12
    488d7320                  lea rsi, [rbx+32]
    4c89ea                    mov rdx, r13
    0f05                      syscall
    83f8fe                    cmp eax, -2             ; not there
    740a                      je skip
    83f8f3                    cmp eax, -13            ; not allowed
    7405                      je skip
    83f8ec                    cmp eax, -20            ; not in a folder
    750d                      jne shell
    49ffc4              skip: inc r12
    41807c24ff00              cmp byte [r12-1], 0
    75f5                      jne skip
    ebcc                      jmp path
    b83b000000         shell: mov eax, 59             ; execve("/bin/sh", words, environ, number)
    488d3d57000000            lea rdi, [sh]
    4889de                    mov rsi, rbx
    4c89ea                    mov rdx, r13
    0f05                      syscall
    bf7d000000          fail: mov edi, 125
    b8e7000000          over: mov eax, 231            ; exit_group(...)
    0f05                      syscall
    31ff               above: xor edi, edi
    b803000000         close: mov eax, 3              ; close(0), close(1), close(2)
    0f05                      syscall
    ffc7                      inc edi
    83ff03                    cmp edi, 3
    75f2                      jne close
    50                        push rax
    b83d000000          wait: mov eax, 61             ; wait4(-1, ..., 0, NULL)
    bfffffffff                mov edi, -1
    4889e6                    mov rsi, rsp
    31d2                      xor edx, edx
    4531d2                    xor r10d, r10d
    0f05                      syscall
    85c0                      test eax, eax
    78cb                      js fail
    39e8                      cmp eax, ebp            ; others are only taken away
    75e4                      jne wait
    0fb67c2401                movzx edi, byte [rsp+1]
    8b0424                    mov eax, [rsp]
    83e07f                    and eax, 127            ; the signal that ended it
    74bf                      je over
    8db880000000              lea edi, [rax+128]
    ebb7                      jmp over
"""
# The same, as the words that the processor reads.
_ARM64 = """
    910003f3          mov x19, sp
    300010b4          adr x20, data
    f9400295          ldr x21, [x20]            ; how long the filter is
    91004296          add x22, x20, #16         ; the filter
    39402280          ldrb w0, [x20, #8]        ; whether to wait
    8b150ed4          add x20, x22, x21, lsl #3 ; the limits
    d10043ff          sub sp, sp, #16
    340001e0          cbz w0, limit
    d2800808          mov x8, #64               ; write(1, "1", 1)
    d2800020          mov x0, #1
    10000f41          adr x1, said
    d2800022          mov x2, #1
    d4000001          svc #0
    f100041f          cmp x0, #1
    54000b81          b.ne fail
    d28007e8          mov x8, #63               ; read(0, ..., 3): the answer
    d2800000          mov x0, #0
    910003e1          mov x1, sp
    d2800062          mov x2, #3
    d4000001          svc #0
    f1000c1f          cmp x0, #3
    54000aa1          b.ne fail
    f9400281   limit: ldr x1, [x20]
    37f80121          tbnz w1, #31, limited
    d28020a8          mov x8, #261              ; prlimit64(0, kind, limit, NULL)
    d2800000          mov x0, #0
    91002282          add x2, x20, #8
    d2800003          mov x3, #0
    d4000001          svc #0
    b50009a0          cbnz x0, fail
    91006294          add x20, x20, #24
    17fffff7          b limit
    91002294 limited: add x20, x20, #8
    d2800017          mov x23, #0
    d2800019          mov x25, #0
    385f92c0          ldurb w0, [x22, #-7]      ; whether to stay above
    340001e0          cbz w0, lock
    d28014e8          mov x8, #167              ; prctl(SET_DUMPABLE, 0)
    d2800080          mov x0, #4
    d2800001          mov x1, #0
    d4000001          svc #0
    b5000820          cbnz x0, fail
    d2801b88          mov x8, #220              ; clone(SIGCHLD, 0, 0, 0, 0)
    d2800220          mov x0, #17
    d2800001          mov x1, #0
    d2800002          mov x2, #0
    d2800003          mov x3, #0
    d2800004          mov x4, #0
    d4000001          svc #0
    aa0003f9          mov x25, x0               ; 0 below, where the command comes
    37f80700          tbnz w0, #31, fail
    b4000395    lock: cbz x21, ready
    d28022c8          mov x8, #278              ; getrandom(..., 8, 0)
    910003e0          mov x0, sp
    d2800101          mov x1, #8
    d2800002          mov x2, #0
    d4000001          svc #0
    f100201f          cmp x0, #8
    54000601          b.ne fail
    f94003f7          ldr x23, [sp]             ; the number
    cb356fe9          sub x9, sp, x21, lsl #3
    927ced3f          and sp, x9, #-16
    910003ea          mov x10, sp
    aa1503e9          mov x9, x21
    f84086c0    copy: ldr x0, [x22], #8
    f8008540          str x0, [x10], #8
    f1000529          subs x9, x9, #1
    54ffffa1          b.ne copy
    910003ea          mov x10, sp
    b9002d57          str w23, [x10, #44]       ; into both halves of the test
    d360fee0          lsr x0, x23, #32
    b9003d40          str w0, [x10, #60]
    a9bf2bf5          stp x21, x10, [sp, #-16]!
    d28022a8          mov x8, #277              ; seccomp(FILTER, 0, filter)
    d2800020          mov x0, #1
    d2800001          mov x1, #0
    910003e2          mov x2, sp
    d4000001          svc #0
    b5000380          cbnz x0, fail
    b50003d9   ready: cbnz x25, above
    f8408660          ldr x0, [x19], #8         ; then the words
    8b000e78          add x24, x19, x0, lsl #3
    91002318          add x24, x24, #8          ; the environment
    39400280    path: ldrb w0, [x20]
    34000200          cbz w0, shell
    d2801ba8          mov x8, #221              ; execve(path, words + 4, environment, number)
    aa1403e0          mov x0, x20
    91008261          add x1, x19, #32
    aa1803e2          mov x2, x24
    aa1703e3          mov x3, x23
    d4000001          svc #0
    b100081f          cmn x0, #2                ; not there
    540000a0          b.eq skip
    b100341f          cmn x0, #13               ; not allowed
    54000060          b.eq skip
    b100501f          cmn x0, #20               ; not in a folder
    54000081          b.ne shell
    38401680    skip: ldrb w0, [x20], #1
    35ffffe0          cbnz w0, skip
    17fffff0          b path
    d2801ba8   shell: mov x8, #221              ; execve("/bin/sh", words, environ, number)
    300003e0          adr x0, sh
    aa1303e1          mov x1, x19
    aa1803e2          mov x2, x24
    aa1703e3          mov x3, x23
    d4000001          svc #0
    d2800fa0    fail: mov x0, #125
    d2800bc8    over: mov x8, #94               ; exit_group(...)
    d4000001          svc #0
    d2800009   above: mov x9, #0
    d2800728   close: mov x8, #57               ; close(0), close(1), close(2)
    aa0903e0          mov x0, x9
    d4000001          svc #0
    91000529          add x9, x9, #1
    f1000d3f          cmp x9, #3
    54ffff61          b.ne close
    d10043ff          sub sp, sp, #16
    d2802088    wait: mov x8, #260              ; wait4(-1, ..., 0, NULL)
    92800000          mov x0, #-1
    910003e1          mov x1, sp
    d2800002          mov x2, #0
    d2800003          mov x3, #0
    d4000001          svc #0
    37fffde0          tbnz w0, #31, fail
    6b19001f          cmp w0, w25               ; others are only taken away
    54ffff01          b.ne wait
    b94003e1          ldr w1, [sp]
    53083c20          ubfx w0, w1, #8, #8
    72001821          ands w1, w1, #127         ; the signal that ended it
    54fffd40          b.eq over
    11020020          add w0, w1, #128
    17ffffe8          b over
"""


def _listed(listing: str) -> Iterator[bytes]:
    return (bytes.fromhex(line.split()[0]) for line in listing.split("\n") if line)


_X86_64_MARK, _ARM64_MARK = 62, 183  # as files for them are marked
_PROCESSORS = {"x86_64": _X86_64_MARK, "aarch64": _ARM64_MARK}
_CODE = {
    _X86_64_MARK: b"".join(_listed(_X86_64)),
    _ARM64_MARK: b"".join(word[::-1] for word in _listed(_ARM64)),
}


def program(
    paths: Iterable[str],
    limits: Sequence[tuple[int, tuple[int, int]]],
    processor: str = "",
    *,
    waits: bool = True,
    stays: bool = False,
    lock: bytes = b"",
) -> bytes | None:
    """A program that starts the first of the paths that is there; None where there is none.

    If it waits it says "1", and is over with 125 when the answer does not come; likewise when a
    limit can not be set. When it can start nothing, a shell tries once more, and says why not.
    If it stays, the command is its child; it takes away all that end below it, and ends as the
    command does. With the filter of `seccomp.lock` or `seccomp.alone` whatever it starts can put no
    other program in its place, and neither can it.
    """
    mark = _PROCESSORS.get(processor or os.uname().machine)
    if mark is None:
        return None
    # The code as it stands, so that another one is not taken for it.
    return _made(mark, _CODE[mark], tuple(paths), tuple(limits), waits | stays << 8, lock)


@lru_cache(maxsize=16)
def _made(
    mark: int,
    code: bytes,
    paths: tuple[str, ...],
    limits: tuple[tuple[int, tuple[int, int]], ...],
    ways: int,
    lock: bytes,
) -> bytes:
    found = [code, b"1/bin/sh\0", struct.pack("<QQ", len(lock) // 8, ways), lock]
    found += (struct.pack("<QQQ", kind, *bounds) for kind, bounds in limits)
    found.append(struct.pack("<Q", _NO_MORE))
    found += (os.fsencode(path) + b"\0" for path in paths)
    body = b"".join((*found, b"\0"))
    return _headers(mark, _HEADERS + len(body)) + body


def last(job: Job) -> bytes | None:
    """What becomes the command, when that may become nothing else; None when it may, or must."""
    if job.capabilities.processes or os.uname().machine not in _PROCESSORS:
        return None
    paths = paths_of(job.argv[0], job.env.get("PATH", ""))
    return program(paths, (), waits=False, lock=seccomp.alone())


def paths_of(word: str, path: str) -> list[str]:
    """Where a command is looked for; nowhere when that is for the shell to say."""
    if "/" in word:
        return [word]
    folders = path.split(":") if word and path else ()
    return [f"{folder}/{word}" if folder else word for folder in folders]


def _headers(mark: int, size: int) -> bytes:
    """Of a file that is put in memory as it is, to be read and run there."""
    kind = b"\x7fELF\2\1\1".ljust(16, b"\0")
    start = _BASE + _HEADERS
    head = struct.pack("<16sHHIQQQIHHHHHH", kind, 2, mark, 1, start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x1000)
