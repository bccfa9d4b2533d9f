/* The first process of a pod: it holds the pod's namespaces, reaps what is left to it, and ends when told to. */
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
    signal(SIGCHLD, SIG_IGN); /* ended children need no wait(2) then: signal(7), SA_NOCLDWAIT */
    for (;;) {
        pause();
    }
}
