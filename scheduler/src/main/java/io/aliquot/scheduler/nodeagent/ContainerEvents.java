package io.aliquot.scheduler.nodeagent;

import io.aliquot.api.shim.Region;
import io.aliquot.api.usage.PodContainer;
import io.aliquot.api.usage.UsageReport;
import io.aliquot.api.usage.UsageReport.ApplicationXid;
import io.aliquot.api.usage.UsageReport.Finding;
import io.aliquot.api.usage.UsageReport.Problem;
import io.aliquot.scheduler.cluster.Cluster;
import io.aliquot.scheduler.cluster.Cluster.LeaderStatus.Leads;
import io.aliquot.scheduler.ledger.Holding;
import io.aliquot.scheduler.ledger.Ledger;
import io.aliquot.scheduler.ledger.PodId;
import java.util.List;
import java.util.Optional;
import java.util.function.Predicate;
import java.util.function.Supplier;

/**
 * Writes events on pods about what their node's agent says of their containers: a program caused an XID error, or the
 * container enlarged its region, a file on the node's disk; leader only. Only a pod that holds a share of that node's GPUs
 * gets one, for an XID error of that GPU.
 */
public final class ContainerEvents {
    private static final long MIB = 1L << 20;

    private final Supplier<List<UsageReport>> reports;
    private final Ledger ledger;
    private final Cluster cluster;

    private record Event(String reason, String message) {}

    ContainerEvents(Supplier<List<UsageReport>> reports, Ledger ledger, Cluster cluster) {
        this.reports = reports;
        this.ledger = ledger;
        this.cluster = cluster;
    }

    /** One run, every few seconds. */
    public void report() {
        if (!(cluster.leadership() instanceof Leads)) {
            return;
        }
        for (UsageReport report : reports.get()) {
            report.xids().forEach(xid -> report(report.node(), xid));
            report.findings().forEach(finding -> report(report.node(), finding));
        }
    }

    private void report(String node, ApplicationXid xid) {
        PodContainer container = xid.container();
        String meaning = xid.meaning().isEmpty() ? "" : " (" + xid.meaning() + ")";
        pod(node, holding -> holding.isShareOf(xid.gpu()) && holding.pod().uid().equals(container.uid()))
                .ifPresent(pod -> cluster.warn(
                        pod,
                        "GpuProgramError",
                        container.container() + " " + xid.number() + " " + xid.gpu(),
                        "a program of container " + container.container() + " caused XID " + xid.number() + meaning
                                + " on " + xid.gpu()
                                + ", which works as before. No other container used the GPU then"));
    }

    private void report(String node, Finding finding) {
        PodContainer container = finding.container();
        event("container " + container.container(), finding.problem())
                .ifPresent(event -> pod(
                                node,
                                holding -> holding.state() == Holding.State.HELD
                                        && holding.pod().has(container))
                        .ifPresent(pod -> cluster.warn(pod, event.reason, container.container(), event.message)));
    }

    /** Empty for what {@link OveruseMonitor} acts on. */
    private static Optional<Event> event(String container, Problem problem) {
        return switch (problem) {
            case Problem.LimitsNotSeen unseen -> Optional.empty();
            case Problem.WithoutShim without -> Optional.empty();
            case Problem.Other other -> Optional.empty();
            case Problem.ImageWithoutLoader without ->
                event(
                        "GpuImageWithoutLoader",
                        "the image of " + container
                                + " has no dynamic loader, so its programs can load neither CUDA nor"
                                + " the shim, which limits them, and the share stays unused: use an image with glibc"
                                + " (Debian, Ubuntu, UBI), or remove the GPU from the container's resources. A static"
                                + " program that reaches the GPU without CUDA cannot be limited, and ends its pod");
            case Problem.GpuNotSeen unseen ->
                event(
                        "GpuNotVisible",
                        container + " holds a vGPU and sees no GPU, because another runtime than NVIDIA's has started"
                                + " it: give its pod a RuntimeClass whose handler is NVIDIA's, such as nvidia; or, where"
                                + " the node's GPUs come by CDI, because the kubelet has lost its device checkpoint: delete"
                                + " the pod");
            case Problem.LargeRegion(long bytes, boolean cut) ->
                event(
                        "GpuRegionTooLarge",
                        cut
                                ? container + " made its region, a file on the node's disk, " + bytes / MIB
                                        + " MiB large, where its programs need less than 1 MiB. The node's agent has cut it"
                                : container + " made its region, a file on the node's disk, too large for the node's"
                                        + " agent to cut, and can fill the disk with it: delete the pod");
            case Problem.ClosedFile() ->
                event(
                        "GpuFileClosed",
                        container + " has closed one of Aliquot's files to the node's agent, by a lease or by its owner"
                                + " and mode. No program needs that: delete the pod");
            case Problem.ProcessTableFull() ->
                event(
                        "GpuProcessTableFull",
                        Region.PROCESSES + " processes of " + container
                                + " hold GPU memory, as many as can; further ones"
                                + " get CUDA_ERROR_OUT_OF_MEMORY, whatever memory is free");
        };
    }

    private static Optional<Event> event(String reason, String message) {
        return Optional.of(new Event(reason, message));
    }

    private Optional<PodId> pod(String node, Predicate<Holding> wanted) {
        return ledger.view(node).stream()
                .flatMap(view -> view.holdings().stream())
                .filter(wanted)
                .map(Holding::pod)
                .findFirst();
    }
}
