package sandbox

import "strings"

// A probe is code that does harm, a little of it, and prints REACHED where it
// could. The same code is run outside of the sandbox by the tests, to show that
// it can.
type probe struct {
	name string
	code string
	root bool // reaches something outside only as root
}

// Outcome is how one probe of a Pool ended.
type Outcome struct {
	Name    string
	Stopped bool
	Detail  string // what it ran into
}

// targets are what the probes aim at.
type targets struct {
	home, project  string // files that hold secret
	secret         string // also the value of a variable of our environment
	tcp, udp       string // ports at 127.0.0.1
	unix, abstract string // names of stream sockets
	datagram       string // the name of an abstract datagram socket
	pid            string // ours
	shmKey         string
}

func (t targets) aim(code string) string {
	return "import os, sys, ctypes, socket, errno, mmap\nlibc = ctypes.CDLL(None, use_errno=True)\n" + strings.NewReplacer("$HOME_FILE", t.home, "$PROJECT_FILE", t.project, "$SECRET", t.secret[:len(t.secret)/2]+"'+'"+t.secret[len(t.secret)/2:],
		"$TCP", t.tcp, "$UDP", t.udp, "$UNIX", t.unix, "$ABSTRACT", t.abstract, "$DATAGRAM", t.datagram, "$PID", t.pid, "$KEY", t.shmKey).Replace(code)
}

// syscallProbe reaches its aim if the kernel looks at the call at all.
func syscallProbe(amd64 string, args string) string {
	return `
libc.syscall.restype = ctypes.c_long
r = libc.syscall(` + amd64 + `, ` + args + `)
e = ctypes.get_errno() if r < 0 else 0
if r >= 0 or e not in (errno.EPERM, errno.ENOSYS, errno.EACCES): print('REACHED', r, e)
else: print(os.strerror(e))
`
}

var probes = []probe{
	{name: "home file", code: `print('REACHED' if ('$SECRET') in open('$HOME_FILE').read() else '')`},
	{name: "project file", code: `print('REACHED' if ('$SECRET') in open('$PROJECT_FILE').read() else '')`},
	{name: "etc shadow", root: true, code: `print('REACHED' if 'root:' in open('/etc/shadow').read() else '')`},
	{name: "symlink", code: `
os.symlink('$HOME_FILE', 'link-of-a-probe')
try: print('REACHED' if ('$SECRET') in open('link-of-a-probe').read() else '')
finally: os.unlink('link-of-a-probe')
`},
	{name: "proc root", code: `
for pid in [p for p in os.listdir('/proc') if p.isdigit()]:
    try:
        if ('$SECRET') in open(f'/proc/{pid}/root$HOME_FILE').read(): print('REACHED'); break
    except OSError: pass
`},
	{name: "write to usr", root: true, code: `os.close(os.open('/usr/bin/env', os.O_WRONLY)); print('REACHED')`},
	{name: "environment", code: `
found = ('$SECRET') in str(os.environ)
for pid in [p for p in os.listdir('/proc') if p.isdigit()]:
    try: found = found or ('$SECRET').encode() in open(f'/proc/{pid}/environ', 'rb').read()
    except OSError: pass
print('REACHED' if found else '')
`},
	{name: "parent memory", code: `
pids = {'$PID', str(os.getppid())} | {p for p in os.listdir('/proc') if p.isdigit()}
for pid in pids - {str(os.getpid())}:
    try:
        first = int(open(f'/proc/{pid}/maps').readline().split('-')[0], 16)
        with open(f'/proc/{pid}/mem', 'rb') as f:
            f.seek(first); f.read(16); print('REACHED'); break
    except (OSError, ValueError): pass
`},
	{name: "ptrace", code: `
import time, signal
pid = os.fork()
if pid == 0: time.sleep(5); os._exit(0)
r = libc.ptrace(0x4206, pid, None, None)
os.kill(pid, signal.SIGKILL); os.waitpid(pid, 0)
print('REACHED' if r == 0 else os.strerror(ctypes.get_errno()))
`},
	{name: "signal", code: `os.kill($PID, 0); print('REACHED')`},
	{name: "tcp", code: `
s = socket.create_connection(('127.0.0.1', $TCP), 2); print('REACHED')
`},
	{name: "udp", code: `
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('127.0.0.1', $UDP)); print('REACHED')
`},
	{name: "unix socket", code: `
s = socket.socket(socket.AF_UNIX); s.connect('$UNIX'); print('REACHED')
`},
	{name: "abstract socket", code: `
s = socket.socket(socket.AF_UNIX); s.connect('\0$ABSTRACT'); print('REACHED')
`},
	{name: "datagram pair", code: `
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', '\0$DATAGRAM'); print('REACHED')
`},
	{name: "netlink", code: `socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); print('REACHED')`},
	{name: "fork bomb", code: `
import time, signal
pids = []
try:
    for _ in range(200):
        pid = os.fork()
        if pid == 0: time.sleep(20); os._exit(0)
        pids.append(pid)
except OSError as e: print(e)
finally:
    for pid in pids: os.kill(pid, signal.SIGKILL)
    for pid in pids: os.waitpid(pid, 0)
if len(pids) == 200: print('REACHED')
`},
	{name: "memory", code: `m = mmap.mmap(-1, 4 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000); print('REACHED')`},
	{name: "memfd", code: syscallProbe("319 if os.uname().machine == 'x86_64' else 279", "b'x', 0")},
	{name: "disk", code: `
names, n = [], 0
try:
    for i in range(10):
        names.append(f'filler-of-a-probe-{i}')
        with open(names[-1], 'wb') as f:
            for _ in range(10): n += f.write(bytes(1 << 20))
except OSError as e: print(e)
finally:
    for name in names: os.unlink(name)
if n == 100 << 20: print('REACHED')
`},
	{name: "file size", code: `
try:
    with open('file-of-a-probe', 'wb') as f: f.truncate(1 << 30)
    print('REACHED')
finally: os.unlink('file-of-a-probe')
`},
	{name: "open files", code: `
try: fs = [open('/dev/null') for _ in range(1000)]
except OSError as e: print(e)
else: print('REACHED')
`},
	{name: "shared memory", code: `
r = libc.shmget($KEY, 4096, 0o1600)
if r >= 0: libc.shmctl(r, 0, None); print('REACHED')
else: print(os.strerror(ctypes.get_errno()))
`},
	{name: "new namespaces", code: `
r = libc.unshare(0x10000000)
print('REACHED' if r == 0 else os.strerror(ctypes.get_errno()))
`},
	{name: "mount", root: true, code: `
r = libc.mount(b'none', b'/proc', None, 1 << 18, None)
print('REACHED' if r == 0 else os.strerror(ctypes.get_errno()))
`},
	{name: "capabilities", root: true, code: `
for line in open('/proc/self/status'):
    if line.startswith(('CapEff', 'CapPrm', 'CapBnd')) and int(line.split()[1], 16): print('REACHED', line)
`},
	{name: "user 0", root: true, code: `os.setuid(0); print('REACHED')`},
	{name: "perf_event_open", code: syscallProbe("298 if os.uname().machine == 'x86_64' else 241", "None, 0, -1, -1, 0")},
	{name: "io_uring", code: syscallProbe("425", "0, None")},
	{name: "bpf", root: true, code: syscallProbe("321 if os.uname().machine == 'x86_64' else 280", "0, None, 0")},
	{name: "keyctl", code: syscallProbe("250 if os.uname().machine == 'x86_64' else 219", "0, -3, 0")},
	{name: "kexec", root: true, code: syscallProbe("246 if os.uname().machine == 'x86_64' else 104", "0, 99, None, 0xffff")},
	{name: "module loading", root: true, code: syscallProbe("175 if os.uname().machine == 'x86_64' else 105", "None, 0, None")},
}
