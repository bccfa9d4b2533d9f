from kit.report import Skip, expect, skip
from kit.shares import Shares, Tenant, has_busy_kernel


def two_gpus(kit, measure, command):
    second = kit.nvml.second_uuid()
    if second is None:
        raise Skip("this machine has one GPU")
    gpus = [kit.uuid, second]
    whole = sum(result["work"] for result in measure.run_tenants([Tenant(None, command, 2)], gpus=gpus))
    [result] = measure.run_tenants([Tenant(30, command, 2)], gpus=gpus)
    found = 100 * result["work"] / whole
    figure = f"limit 30 % of both, measured {found:.1f} % (charged {result['charged']:.1f} %)"
    expect(abs(found - 30) <= kit.arguments.tolerance, figure)
    return figure


def run(kit):
    measure = Shares(kit)
    busy = measure.busy
    if not has_busy_kernel(kit, "duty"):
        return

    def check(shares, how, command, **options):
        tenants = [Tenant(share[0], command, share[1]) if isinstance(share, tuple) else Tenant(share, command)
                   for share in shares]
        limits = " and ".join("no limit" if tenant.share is None else f"{tenant.share} %" +
                              (f" ({tenant.count} processes)" if tenant.count > 1 else "") for tenant in tenants)
        name = (f"tenants with {limits} get their shares" if len(tenants) > 1 else
                f"a tenant with {limits} gets its share")
        kit.check("duty", f"{name} {how}", measure.shares_hold, tenants, **options)

    for milliseconds in (0.2, 2):
        for shares in ([25], [50], [75], [25, 25], [75, 25], [50, 50], [10, 20, 30, 40]):
            check(shares, f"with kernels of {milliseconds:g} ms", busy(milliseconds))
    for milliseconds in (0.02, 20):
        for shares in ([30], [70, 30]):
            check(shares, f"with kernels of {milliseconds:g} ms", busy(milliseconds))
    check([30, None], "with kernels of 0.2 ms", busy(0.2))
    check([(30, 2), 70], "with kernels of 0.2 ms", busy(0.2))
    # Without an arbiter no process knows that it is alone.
    check([70, 30], "with kernels of 0.2 ms, without an arbiter", busy(0.2), arbiter=False,
          tolerance=max(10, kit.arguments.tolerance))
    kit.check("duty", "processes on two GPUs get 30 % of each", two_gpus, kit, measure, busy(0.2))
    for shares in ([30], [70, 30]):
        check(shares, "with CUDA_DEVICE_MAX_CONNECTIONS=1", busy(0.2),
              environment={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
        check(shares, "on 16 streams", busy(0.2, "streams=16"))
        check(shares, "with a graph, captured and replayed", busy(0.2, "graph"))
    # Two of 30 % and not of 70 %: without work in the queue, a program that waits or copies loses turns to the other.
    for shares in ([30], [30, 30]):
        check(shares, "waiting for each kernel", busy(0.2, "wait"), reference=busy(0.2))
        check(shares, "with copies from the host", busy(0.2, "copies"), reference=busy(0.2))
    copies = "with copies within the GPU only"
    if kit.fake:
        kit.check("duty", f"a tenant {copies}", skip,
                  "the fake driver copies by the host's CPU, which takes longer than on a GPU")
    else:
        check([30], copies, busy(0.2, "device-copies"))
