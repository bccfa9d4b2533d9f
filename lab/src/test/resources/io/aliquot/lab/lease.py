# Takes leases on Aliquot's files whenever it can, as the host's owner of these files.
import fcntl, os, signal, time

signal.signal(signal.SIGIO, signal.SIG_IGN)
files = ["/usr/local/aliquot/region", "/usr/local/aliquot/agent"]
readable = [os.open(path, os.O_RDONLY) for path in files]
turn = 0
while True:
    time.sleep(0.001)
    turn += 1
    for file in readable:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK if turn % 2 else fcntl.F_WRLCK)
            open("/tmp/taken", "w").close()
        except OSError:
            pass
