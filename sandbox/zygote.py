# The zygote: imports the usual modules once and forks a process for each call.
# It never runs code of others itself. A process puts itself behind namespaces,
# limits, Landlock and seccomp before it reads the code that it is given.
#
# Control (SEQPACKET, descriptor 3) in: its configuration, then "start N FOLDER"
# with three descriptors (the process's control, stdout, stderr), "kill N",
# "stop N", "cont N". Out: {"ready": ...}, {"exit": N, "status": S}.
# A process's control (a stream): in, frames of a length (4 bytes), a byte that
# says whether the process goes on afterwards (1), a random key (8 bytes), and code;
# out, one byte "R" (ready), "F" + reason (a part is refused, then the end), or
# "D" + the frame's key (8 bytes) + exit code (4 bytes) after each code.
#
# A process pays for every page that it is given, and more for every one that it
# writes to, if only a reference count: what can be made before the fork is, and
# between the fork and the code there is as little Python as may be.
import builtins, sys

# Ours: code that spoils its own builtins does not spoil what shows its results.
__builtins__ = dict(vars(builtins))


def main():
    import os

    # Modules may want something done after a fork. What these few want is known:
    # random a new seed, the others new locks in case another thread held theirs.
    strangers = []
    register = os.register_at_fork

    def registered(**hooks):
        register(**hooks)
        if any(getattr(f, "__module__", "") not in ("random", "threading", "logging") for f in hooks.values()):
            strangers.append(hooks)

    os.register_at_fork = registered
    import _signal, atexit, ctypes, errno, gc, json, random, resource, select, signal, socket, struct

    control = socket.socket(fileno=3)
    cfg = json.loads(control.recv(1 << 20))
    want = set(cfg["parts"])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.mount, libc.unshare, libc.setns, libc.prctl  # looked up here, not in every process

    CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
    NOSUID, NODEV, NOEXEC = 2, 4, 8
    PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_SECUREBITS = 1, 4, 24, 28
    PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_SET_CHILD_SUBREAPER = 38, 47, 36
    NR_PIDFD_OPEN, NR_LANDLOCK = 434, 444
    NR_CAPSET = {"amd64": 126, "arm64": 91}.get(cfg["arch"], -1)
    NR_SECCOMP = {"amd64": 317, "arm64": 277}.get(cfg["arch"], -1)

    class Refused(Exception):
        pass

    # What a kernel says that does not do something, or not for us; any other
    # error is a fault, and refuses no part. refusal_linux.go has the same list.
    refusals = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSPC}

    def refuse(part, what, e):
        if e not in refusals:
            raise OSError(e, f"{part}: {what}: {os.strerror(e)}")
        raise Refused(f"{part}\n{what}: {os.strerror(e)}")

    def check(part, what, r):
        if r < 0:
            refuse(part, what, ctypes.get_errno())
        return r

    def must(what, r):
        # A call that fails by our own fault only.
        if r < 0:
            raise OSError(ctypes.get_errno(), what)
        return r

    # --- the modules

    import importlib

    for name in cfg["modules"]:
        try:
            importlib.import_module(name)
        except Exception:
            pass
    import ast, linecache, threading, traceback, types, io

    os.register_at_fork = register

    def key_of_numpy():
        # Where the state of numpy.random's own generator is: 624 words, then
        # where in them it stands. Writing there is a twentieth of a call of seed.
        try:
            import numpy.random

            made = numpy.random.get_state()
            at = numpy.random.mtrand._rand._bit_generator.ctypes.state_address
            here = struct.unpack("=624Ii", ctypes.string_at(at, 2500))
            if made[0] == "MT19937" and made[3] == 0 and here == (*(int(x) for x in made[1]), made[2]):
                return at
        except Exception:
            pass
        return None

    numpy = sys.modules.get("numpy")
    numpy_key = key_of_numpy() if numpy is not None else None

    used_up = struct.pack("=i", 624)
    rng_of_sympy = getattr(sys.modules.get("sympy.core.random"), "rng", None)

    # Not Random.seed, which is Python around this: its objects are a dozen pages
    # that each process would have copied.
    seed, generators = random.Random.__base__.seed, [random._inst]
    if rng_of_sympy is not None:
        generators.append(rng_of_sympy)

    def reseed():
        for generator in generators:
            seed(generator)
        if numpy_key is not None:
            ctypes.memmove(numpy_key, os.urandom(2496) + used_up, 2500)
        elif numpy is not None:
            try:
                numpy.random.seed(int.from_bytes(os.urandom(4), "little"))
            except Exception:
                pass

    # --- how code is run, as a notebook does

    def show(e, out):
        # The user's own frames only: what is in between is of no use to them.
        t = traceback.TracebackException.from_exception(e)
        seen = set()

        def trim(t):
            if t is None or id(t) in seen:
                return
            seen.add(id(t))
            if t.stack is not None:
                own = [f for f in t.stack if f.filename.startswith("<code") or f.filename.startswith(os.getcwd() + "/")]
                t.stack = traceback.StackSummary.from_list(own)
            trim(t.__cause__)
            trim(t.__context__)
            for x in getattr(t, "exceptions", None) or ():
                trim(x)

        trim(t)
        for line in t.format():
            out.write(line)

    def silent(code, node):
        lines = code.splitlines()
        rest = lines[node.end_lineno - 1].encode()[node.end_col_offset:].decode("utf-8", "replace")
        return rest.lstrip().startswith(";")

    def execute(code, names, number):
        # The exit code.
        file = "<code>" if number == 1 else f"<code {number}>"
        linecache.cache[file] = (len(code), None, (code + "\n").splitlines(True), file)
        try:
            tree = ast.parse(code, file, "exec")
            last = None
            if tree.body and isinstance(tree.body[-1], ast.Expr) and not silent(code, tree.body[-1]):
                last = ast.Expression(tree.body.pop().value)
            exec(compile(tree, file, "exec"), names)
            if last is not None:
                value = eval(compile(last, file, "eval"), names)
                if value is not None:
                    names["_"] = value
                    print(repr(value))
            return 0
        except SystemExit as e:
            if e.code is None:
                return 0
            if isinstance(e.code, int):
                return e.code & 0xFF
            print(e.code, file=sys.stderr)
            return 1
        except BaseException as e:
            try:
                sys.stdout.flush()
            except BaseException:
                pass
            show(e, sys.stderr)
            return 1

    def end_of_script():
        # What Python does at the end of a script: wait for threads, then atexit. It is
        # called only where the code has left any.
        try:
            threading._shutdown()
        except BaseException as e:
            show(e, sys.stderr)
        atexit._run_exitfuncs()

    # --- the walls of one process

    LANDLOCK_READ = 1 | 4 | 8

    def ruleset(writable):
        abi = check("Landlock", "Landlock", libc.syscall(NR_LANDLOCK, None, ctypes.c_size_t(0), 1))
        fs = (1 << 13) - 1
        for version, bit in ((2, 13), (3, 14), (5, 15)):
            if abi >= version:
                fs |= 1 << bit
        attr = struct.pack("QQQ", fs, 3, 3)[: 8 if abi < 4 else 16 if abi < 6 else 24]
        fd = must("Landlock: a ruleset", libc.syscall(NR_LANDLOCK, attr, ctypes.c_size_t(len(attr)), 0))
        of_files = 1 | 2 | 4 | 1 << 14 | 1 << 15
        everything = fs & ~(1 << 6 | 1 << 11)  # no device nodes
        paths = [(p, LANDLOCK_READ) for p in cfg["read"]] + [(p, 2 | 4) for p in cfg["devices"]] + [(writable, everything)]
        if "namespaces" in want:
            paths.append(("/", 8))  # nothing is there but what is shown
        for path, access in paths:
            try:
                at = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            if not os.path.isdir(path):
                access &= of_files
            rule = struct.pack("=Qi", access & fs, at)
            must(f"Landlock: a rule for {path}", libc.syscall(NR_LANDLOCK + 1, fd, 1, rule, 0))
            os.close(at)
        return fd

    class Prog(ctypes.Structure):
        _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    bpf = bytes.fromhex(cfg["filter"])
    prog = Prog(len(bpf) // 8, bpf)

    limits = []
    for name, value in cfg["limits"].items():
        n = getattr(resource, "RLIMIT_" + name)
        _, hard = resource.getrlimit(n)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        limits.append((n, (value, value)))
    capabilities = range(64)
    options = b"mode=1777,size=%d,nr_inodes=%d" % (cfg["disk"], cfg["inodes"])
    no_capability = struct.pack("=Ii", 0x20080522, 0), bytes(24)

    def write(path, text):
        fd = os.open(path, os.O_WRONLY)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)

    def confine(tmp):
        if "namespaces" in want:
            part = "namespaces"
            check(part, "a mount and an ipc namespace of a call's own", libc.unshare(CLONE_NEWNS | CLONE_NEWIPC))
            check(part, "a folder of a call's own", libc.mount(b"tmpfs", tmp.encode(), b"tmpfs", NOSUID | NODEV, options))
            if libc.mount(b"proc", b"/proc", b"proc", NOSUID | NODEV | NOEXEC, b"subset=pid") < 0:
                check(part, "a /proc of a call's own", libc.mount(b"proc", b"/proc", b"proc", NOSUID | NODEV | NOEXEC, None))
            uid, gid = os.getuid(), os.getgid()
            check(part, "a user namespace of a call's own", libc.unshare(CLONE_NEWUSER))
            libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # or /proc/self would not be ours
            try:
                write("/proc/self/setgroups", b"deny")
                write("/proc/self/uid_map", b"%d %d 1" % (uid, uid))
                write("/proc/self/gid_map", b"%d %d 1" % (gid, gid))
            except OSError as e:
                refuse(part, "the users of a call's own namespace", e.errno)
        os.chdir(tmp)
        for n, both in limits:
            resource.setrlimit(n, both)
        if "namespaces" in want or os.getuid() == 0:
            # Locked: no capability comes back with user 0 or with an exec.
            prctl = libc.prctl
            prctl(PR_SET_SECUREBITS, 0xEF, 0, 0, 0)
            for c in capabilities:
                if prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0:
                    break
            prctl(PR_CAP_AMBIENT, 4, 0, 0, 0)
            check("namespaces", "dropping capabilities", libc.syscall(NR_CAPSET, *no_capability))
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no core for a handler of the host's
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        check("seccomp", "no_new_privs", libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        if "Landlock" in want:
            fd = rules if rules >= 0 else ruleset(tmp)
            check("Landlock", "restrict_self", libc.syscall(NR_LANDLOCK + 2, fd, 0))
        os.closerange(4, 4096)  # the zygote's; our control is 3
        if "seccomp" in want:
            check("seccomp", "a filter", libc.syscall(NR_SECCOMP, 1, 0, ctypes.byref(prog)))

    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins

    def child(ctl, out, err, tmp):
        _signal.set_wakeup_fd(-1)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        # A process group of its own, within the zygote's session: a session of its own
        # would be one more share of the processors where the kernel groups by session.
        os.setpgid(0, 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        ctl = os.dup2(ctl, 3, False)  # and the zygote's control is closed
        try:
            write("/proc/self/oom_score_adj", b"1000")
        except OSError:
            pass
        try:
            confine(tmp)
        except Refused as e:
            os.write(ctl, b"F" + str(e).encode())
            os._exit(1)
        except BaseException as e:
            os.write(ctl, b"F\n" + repr(e).encode())
            os._exit(1)
        reseed()
        sys.modules["__main__"] = main
        sys.path.insert(0, "")
        names = main.__dict__
        read, put, kill, wait, flush = os.read, os.write, os.kill, os.waitpid, [sys.stdout, sys.stderr]
        leave, pack, unpack, getpid, end = os._exit, struct.pack, struct.unpack, os.getpid, end_of_script
        threads, callbacks, close = threading._active, atexit._ncallbacks, os.closerange
        own = getpid()

        def exactly(n):
            b = b""
            while len(b) < n:
                more = read(ctl, n - len(b))
                if not more:
                    leave(0)
                b += more
            return b

        put(ctl, b"R")
        number = 0
        while True:
            n, keep, key = unpack("<IBQ", exactly(13))
            code = exactly(n).decode("utf-8", "replace")
            number += 1
            if not keep:
                resource.setrlimit(resource.RLIMIT_CPU, (cfg["cpu"], cfg["cpu"]))
            status = execute(code, names, number)
            forked = getpid() != own  # by the code, and came to its end: it must not read our control
            if (forked or not keep) and (len(threads) > 1 or callbacks() != exits):
                end()
            for f in flush + [sys.stdout, sys.stderr]:
                try:
                    f.flush()
                except BaseException:
                    pass
            if forked:
                leave(status)
            if not keep:
                close(1, 3)  # our output is complete, and nobody waits for our end
                put(ctl, b"D" + pack("<QI", key, status))
                leave(0)
            if "namespaces" in want:
                # All but ourselves: nothing runs on between two calls.
                try:
                    kill(-1, 9)
                    while wait(-1, 0):
                        pass
                except OSError:
                    pass
            put(ctl, b"D" + pack("<QI", key, status))

    # --- the zygote's own loop

    wake_r, wake_w = socket.socketpair()
    wake_r.setblocking(False)
    wake_w.setblocking(False)
    signal.set_wakeup_fd(wake_w.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    self_fd = -1
    if "namespaces" in want:
        self_fd = libc.syscall(NR_PIDFD_OPEN, os.getpid(), 0)

    sys.stdin = open(0, closefd=False)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", "backslashreplace", line_buffering=True)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8", "backslashreplace", line_buffering=True)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr

    rules = -1
    if "Landlock" in want and "namespaces" in want:
        # One for all: what is mounted in a call's own folder is beneath its parent.
        try:
            rules = ruleset(os.path.dirname(cfg["tmp"]))
        except (Refused, OSError) as e:
            control.send(json.dumps({"refused": str(e) if isinstance(e, Refused) else f"\n{e}"}).encode())
            os._exit(1)

    pids, ids = {}, {}
    grouped = "namespaces" not in want

    def finish(pid):
        if grouped:
            try:
                os.killpg(pid, signal.SIGKILL)
            except OSError:
                pass

    def reap():
        while not grouped and ids:  # none but ours
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            id = pids.pop(pid)
            del ids[id]
            control.send(b'{"exit":%d,"status":%d}' % (id, status))
        while grouped:
            try:
                # Look first: while the leader is not reaped its group's number is nobody else's.
                w = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if w is None:
                return
            finish(w.si_pid)
            pid, status = os.waitpid(w.si_pid, 0)
            id = pids.pop(pid, None)
            if id is not None:
                ids.pop(id, None)
                control.send(b'{"exit":%d,"status":%d}' % (id, status))

    direct = ctypes.PyDLL(None, use_errno=True)
    try:
        alone = not strangers and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        alone = False

    def fork():
        # By itself: what os.fork does besides is for programs with threads, and for
        # strangers, and touches as many pages as the code of a small call.
        if not alone:
            return os.fork()
        pid = direct.fork()
        if pid < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return pid

    def start(id, fds, tmp):
        try:
            if "namespaces" in want:
                # Back to our own pid namespace first: a new one can only be made from there.
                check("namespaces", "our own pid namespace", libc.setns(self_fd, CLONE_NEWPID))
                check("namespaces", "a pid namespace of a call's own", libc.unshare(CLONE_NEWPID))
            pid = fork()
        except (Refused, OSError) as e:
            reason = str(e) if isinstance(e, Refused) else f"\na new process: {e}"
            os.write(fds[0], b"F" + reason.encode())
            control.send(b'{"exit":%d,"status":0}' % id)
            return
        if pid == 0:
            try:
                child(*fds, tmp)
            finally:
                os._exit(70)
        pids[pid], ids[id] = id, pid

    def collapse():
        # Memory in pages of 2 MiB, where the kernel can: a fork shares one entry
        # for each, and a process that writes to one copies only 4 KiB of it.
        huge, MADV_COLLAPSE = 2 << 20, 25
        try:
            with open("/proc/self/maps") as f:
                lines = [x.split() for x in f]
        except OSError:
            return
        for where, access, *_, path in lines:
            if access == "rw-p" and not path.startswith("/"):
                start, end = (int(x, 16) for x in where.split("-"))
                for at in range(-(-start // huge) * huge, end - huge + 1, huge):
                    libc.madvise(at, huge, MADV_COLLAPSE)

    # What the first use of something sets up, every process has from here.
    warm = io.StringIO()
    for code in ("import math\nx = [math.sqrt(i) for i in range(9)]\ndef f(): return sum(x)\nf'{f():.3f}'", "1/0", "def"):
        hidden, sys.stdout, sys.stderr = (sys.stdout, sys.stderr), warm, warm
        execute(code, {"__builtins__": builtins}, 1)
        sys.stdout, sys.stderr = hidden
    linecache.cache.clear()
    gc.collect()
    gc.freeze()
    collapse()
    control.send(json.dumps({"ready": sys.version.split()[0], "modules": [m for m in cfg["modules"] if m in sys.modules]}).encode())
    exits = atexit._ncallbacks()
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wake_r, select.POLLIN)
    signals = {b"kill": 9, b"stop": _signal.SIGSTOP, b"cont": _signal.SIGCONT}
    room = socket.CMSG_SPACE(12)
    while True:
        ready = poll.poll()
        for fd, _ in ready:
            if fd == wake_r.fileno():
                try:
                    wake_r.recv(4096)
                except BlockingIOError:
                    pass
                reap()
                continue
            msg, rights, _, _ = control.recvmsg(4096, room, socket.MSG_CMSG_CLOEXEC)
            if not msg:
                for pid in list(pids):
                    finish(pid)
                os._exit(0)
            op, which, *tmp = msg.split(b" ", 2)
            which = int(which)
            if op == b"start":
                fds = struct.unpack("3i", rights[0][2])
                start(which, fds, os.fsdecode(tmp[0]))
                for fd in fds:
                    os.close(fd)
            elif which in ids:
                os.kill(ids[which], signals[op])


main()
