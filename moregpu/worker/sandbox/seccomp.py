"""A filter of system calls, as a classic BPF program: what no function needs, and what would lead out of a sandbox.

Made here rather than by libseccomp, which is not on every machine: a list of numbers for each of two processors. The
same bytes are handed to bubblewrap, or installed by the process itself.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_X86_64, _AARCH64 = 0xC000003E, 0xC00000B7  # AUDIT_ARCH_*, linux/audit.h

_NUMBERS: dict[str, tuple[int, int]] = {
    # other processes' memory and descriptors
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    # the kernel's larger attack surfaces, and ways around this filter
    "bpf": (321, 280), "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "acct": (163, 89), "quotactl": (179, 60), "syslog": (103, 116), "personality": (135, 92),
    "fanotify_init": (300, 262), "lookup_dcookie": (212, 18),
    # memory that no limit of a process counts
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
_SOCKET, _SOCKETPAIR, _CONNECT, _BIND, _LISTEN = (41, 198), (53, 199), (42, 203), (49, 200), (50, 201)
_SENDTO, _CLONE, _CLONE3, _IOCTL = (44, 206), (56, 220), (435, 435), (16, 29)

_CLONE_NEW = 0x7E020000  # CLONE_NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET | NEWNS
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_AF_UNIX, _SOCK_STREAM = 1, 1

_LOAD, _EQUAL, _ANY_BIT, _AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16  # struct seccomp_data
_ALLOW = 0x7FFF0000
_X32_BIT = 0x40000000  # x86-64's second table of the same calls


def program(*, sockets: bool = True, unix_sockets: bool = True) -> bytes:
    """The filter as an array of `struct sock_filter`; raises `OSError` on a processor that it is not written for.

    `sockets=False` denies every new socket but a pair of connected streams: for where no network namespace stands
    between a function and the machine. `unix_sockets=False` denies those named by a path or an abstract name.
    """
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64"):
        raise OSError(errno.ENOSYS, f"no filter of system calls for {machine}")
    column = 0 if machine == "x86_64" else 1
    code = [
        _step(_LOAD, _ARCH_AT),
        _step(_EQUAL, (_X86_64, _AARCH64)[column], 1, 0),
        _deny(errno.EPERM),
        _step(_LOAD, _NUMBER_AT),
        _step(_AT_LEAST, _X32_BIT, 0, 1),
        _deny(errno.EPERM),
    ]
    for numbers in _NUMBERS.values():
        code += _denied(numbers[column])
    # clone3 hides its flags in memory: glibc falls back to clone, whose flags can be read here.
    code += _denied(_CLONE3[column], errno.ENOSYS)
    code += _when(_CLONE[column], [*_argument(0), _step(_ANY_BIT, _CLONE_NEW, 0, 1), _deny(errno.EPERM)])
    terminal = [_step(_EQUAL, _TIOCSTI, 1, 0), _step(_EQUAL, _TIOCLINUX, 0, 1), _deny(errno.EPERM)]
    code += _when(_IOCTL[column], [*_argument(1), *terminal])
    if not sockets:
        for numbers in (_SOCKET, _CONNECT, _BIND, _LISTEN):
            code += _denied(numbers[column], errno.EACCES)
        # A datagram pair could be pointed at a named socket later; a stream pair could not.
        kind = [*_argument(1), _step(_AND, 0xF), _step(_EQUAL, _SOCK_STREAM, 1, 0), _deny(errno.EACCES)]
        code += _when(_SOCKETPAIR[column], kind)
        named = [*_argument(4), _step(_EQUAL, 0, 0, 2), *_argument(4, high=True), _step(_EQUAL, 0, 1, 0)]
        code += _when(_SENDTO[column], [*named, _deny(errno.EACCES)])
    elif not unix_sockets:
        code += _when(_SOCKET[column], [*_argument(0), _step(_EQUAL, _AF_UNIX, 0, 1), _deny(errno.EACCES)])
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def install(filter_bytes: bytes) -> None:
    """Put this process and all that it starts under the filter, for good. Needs no_new_privs. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = ctypes.create_string_buffer(filter_bytes, len(filter_bytes))
    header = struct.pack("HxxxxxxP", len(filter_bytes) // 8, ctypes.addressof(steps))
    if libc.prctl(22, 2, header, 0, 0) != 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _deny(number: int) -> bytes:
    return _step(_RETURN, 0x00050000 | number)  # SECCOMP_RET_ERRNO


def _denied(call: int, number: int = errno.EPERM) -> list[bytes]:
    return [_step(_EQUAL, call, 0, 1), _deny(number)]


def _when(call: int, steps: list[bytes]) -> list[bytes]:
    """Steps for one call alone; the number is loaded again behind them, since they look at arguments."""
    return [_step(_EQUAL, call, 0, len(steps) + 1), *steps, _step(_LOAD, _NUMBER_AT)]


def _argument(index: int, high: bool = False) -> list[bytes]:
    return [_step(_LOAD, _ARGUMENTS_AT + 8 * index + (4 if high else 0))]
