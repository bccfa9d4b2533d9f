/* The first process of a pod: it keeps the pod's namespaces, reaps orphans, and exits on SIGINT or SIGTERM. */
#include <signal.h>
#include <unistd.h>

static void end(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

int main(void)
{
    signal(SIGINT, end);
    signal(SIGTERM, end);
    signal(SIGCHLD, SIG_IGN); /* the kernel reaps children: sigaction(2), SA_NOCLDWAIT */
    for (;;) {
        pause();
    }
}
